"""The WordPiece vocabulary with `[NOI]`, and shrinking one to a domain.

A vocabulary is a `tokenizers.Tokenizer` whose entry `[NOI]` ("no insertion") took the place of an unused entry, or was
added at the end where there was none. It is opened by an embedded name, from a folder or from the Hugging Face Hub.
"""

import hashlib
import json
import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from pointer.checkpoint import EMBEDDED as EMBEDDED
from pointer.checkpoint import embedded_folder
from pointer.errors import CheckpointError, VocabularyError
from pointer.storage import location, write_whole

NOI = "[NOI]"
"""The token that says: nothing goes into this gap."""
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", NOI)

PLAIN_STEPS = (
    "BertNormalizer", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip",
    "BertPreTokenizer", "Whitespace", "WhitespaceSplit", "Punctuation", "Digits",
)  # fmt: skip
"""What a tokenizer may do to a text before its words are looked up."""
MOST_STEPS = 16


@dataclass(frozen=True)
class Encoding:
    """A text as pieces: `ids`, the word each piece belongs to, and the words as they are written."""

    ids: npt.NDArray[np.int64]
    word_of: npt.NDArray[np.int64]
    words: list[str]


class Vocabulary:
    """A WordPiece vocabulary that knows `[NOI]`.

    >>> vocabulary = Vocabulary.open("english")
    >>> [vocabulary.tokens[i] for i in vocabulary.encode(["My sources say so."])[0].ids]
    ['my', 'sources', 'say', 'so', '.']
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = _with_noi(tokenizer)
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.tokenizer.encode_special_tokens = True  # a "[SEP]" that somebody wrote is text, not a separator
        size = self.tokenizer.get_vocab_size()
        self.tokens: list[str] = [self.tokenizer.id_to_token(i) or "" for i in range(size)]
        missing = [token for token in SPECIAL if self.tokenizer.token_to_id(token) is None]
        if missing:
            raise VocabularyError(
                f"Expected a BERT WordPiece vocabulary, found one without {', '.join(missing)}.",
                "Name a BERT vocabulary, for example the embedded one: english.",
            )

    @classmethod
    def open(cls, name: str | Path) -> "Vocabulary":
        """Open a vocabulary by embedded name, from a folder (`tokenizer.json` or `vocab.txt`), or from the Hub."""
        folder = embedded_folder(str(name)) or location(name)
        for file, read in (("tokenizer.json", _from_file), ("vocab.txt", _from_vocab_txt)):
            if (folder / file).is_file():
                try:
                    return cls(read(folder / file))
                except (ValueError, RecursionError) as error:
                    raise VocabularyError(
                        f"Expected a BERT WordPiece vocabulary in {folder / file}, found something else ({error}).",
                        "Copy or download the folder again.",
                    ) from error
        if folder.exists():
            raise VocabularyError(
                f"Expected a folder with tokenizer.json or vocab.txt, found neither in {folder}.",
                "Name a folder that holds a tokenizer, an embedded vocabulary (english) or a Hub id.",
            )
        return cls(_from_hub(str(name)))

    @classmethod
    def of_checkpoint(cls, folder: Path, fingerprint: str) -> "Vocabulary":
        """The vocabulary of a checkpoint, which has to be the one that its weights were trained with."""
        vocabulary = cls.open(folder)
        if vocabulary.fingerprint != fingerprint:
            raise CheckpointError(
                f"Expected the vocabulary of the weights in {folder}, found another.",
                "The folder mixes two checkpoints; copy or download it again.",
            )
        return vocabulary

    def __len__(self) -> int:
        return len(self.tokens)

    def id(self, token: str) -> int:
        """The id of a token, `[UNK]`'s where there is no such token."""
        found: int | None = self.tokenizer.token_to_id(token)
        return found if found is not None else self.id("[UNK]")

    @cached_property
    def noi(self) -> int:
        """The id of `[NOI]`."""
        return self.id(NOI)

    @cached_property
    def special(self) -> npt.NDArray[np.int64]:
        """The ids that are never inserted and never a label, `[NOI]` aside: specials and unused entries."""
        is_special = [(t in SPECIAL and t != NOI) or t.startswith("[unused") or t == "" for t in self.tokens]
        return np.flatnonzero(is_special)

    @cached_property
    def continues(self) -> npt.NDArray[np.bool_]:
        """For every id: is it a `##` piece, which continues a word?"""
        return np.array([token.startswith("##") for token in self.tokens])

    @cached_property
    def is_word(self) -> npt.NDArray[np.bool_]:
        """For every id: is it made of letters or digits, so that a `##` piece may follow?"""
        return np.array([token.removeprefix("##").isalnum() for token in self.tokens])

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the tokens in order: data and weights belong together when theirs agree."""
        return hashlib.sha256("\n".join(self.tokens).encode()).hexdigest()[:16]

    def encode(self, texts: Sequence[str]) -> list[Encoding]:
        """Split every text into words and pieces, without `[CLS]` and `[SEP]`."""
        encodings = []
        for text, found in zip(texts, self.tokenizer.encode_batch(texts, add_special_tokens=False), strict=True):
            word_of = np.array(found.word_ids, np.int64)
            words: dict[int | None, str] = {}
            starts: dict[int | None, int] = {}
            for word, (start, end) in zip(found.word_ids, found.offsets, strict=True):
                words[word] = text[starts.setdefault(word, start) : end]
            encodings.append(Encoding(np.array(found.ids, np.int64), word_of, list(words.values())))
        return encodings

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json` and what `transformers` needs to open it as a fast tokenizer."""
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / "tokenizer.json", self.tokenizer.to_str(pretty=False).encode())
        settings = {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": bool(self.lowercase),
            "model_max_length": 512,
            "additional_special_tokens": [NOI],
        } | {f"{token.strip('[]').lower()}_token": token for token in SPECIAL if token != NOI}
        write_whole(folder / "tokenizer_config.json", (json.dumps(settings, indent=2) + "\n").encode())

    @cached_property
    def lowercase(self) -> bool:
        """Does the vocabulary fold case, as the uncased BERTs do?"""
        normalizer = json.loads(self.tokenizer.to_str()).get("normalizer") or {}
        return bool(normalizer.get("lowercase", False))


def shrink(vocabulary: Vocabulary, counts: Counter[str], size: int) -> tuple[Vocabulary, npt.NDArray[np.int64]]:
    """The `size` most useful entries of a vocabulary, and which old ids they were (to slice the embeddings).

    `counts` tells how often each *word* stands in the corpora of the domain. Specials, punctuation and single ASCII
    characters always stay, so that any ASCII word can still be spelt. The rest is taken by frequency, where a piece
    of a longer word earns the counts of the words it spells: so nearly every word is one piece.
    """
    needed = _spelling_set(vocabulary)
    if size < len(needed):
        raise VocabularyError(
            f"Expected a size of at least {len(needed)} (specials and what spells any ASCII word), found {size}.",
            "Ask for a larger vocabulary.",
        )
    usage: Counter[int] = Counter()
    words = list(counts)
    for start in range(0, len(words), 10_000):
        batch = words[start : start + 10_000]
        for word, encoding in zip(batch, vocabulary.encode(batch), strict=True):
            for i in encoding.ids.tolist():
                usage[i] += counts[word]
    by_use = sorted((i for i in usage if i not in needed), key=lambda i: (-usage[i], i))
    kept = np.array(sorted(needed | set(by_use[: size - len(needed)])), np.int64)
    return Vocabulary(_rebuilt(vocabulary, [vocabulary.tokens[i] for i in kept])), kept


def _spelling_set(vocabulary: Vocabulary) -> set[int]:
    letters = string.ascii_lowercase if vocabulary.lowercase else string.ascii_letters
    # Punctuation always stands alone, so only letters and digits ever continue a word.
    tokens = [*SPECIAL, *string.punctuation, *letters, *string.digits, *(f"##{c}" for c in letters + string.digits)]
    found = (vocabulary.tokenizer.token_to_id(token) for token in tokens)
    return {i for i in found if i is not None}


def word_counts(texts: Iterable[str], vocabulary: Vocabulary) -> Counter[str]:
    """How often each word (lower-case where the vocabulary folds case) stands in the texts."""
    counts: Counter[str] = Counter()
    batch: list[str] = []
    for text in texts:
        batch.append(text)
        if len(batch) == 10_000:
            _count(batch, vocabulary, counts)
            batch = []
    _count(batch, vocabulary, counts)
    return counts


def _count(texts: list[str], vocabulary: Vocabulary, counts: Counter[str]) -> None:
    for encoding in vocabulary.encode(texts):
        counts.update(word.lower() if vocabulary.lowercase else word for word in encoding.words)


def _rebuilt(vocabulary: Vocabulary, tokens: list[str]) -> Tokenizer:
    """The same tokenizer over other entries: everything but the vocabulary and the ids of specials stays."""
    description = json.loads(vocabulary.tokenizer.to_str())
    ids = {token: i for i, token in enumerate(tokens)}
    description["model"]["vocab"] = ids
    description["added_tokens"] = [
        entry | {"id": ids[entry["content"]]} for entry in description["added_tokens"] if entry["content"] in ids
    ]
    for entry in (description.get("post_processor") or {}).get("special_tokens", {}).values():
        entry["ids"] = [ids[token] for token in entry["tokens"]]
    processor = description.get("post_processor") or {}
    for end in ("sep", "cls"):
        if end in processor:
            processor[end] = [processor[end][0], ids[processor[end][0]]]
    return Tokenizer.from_str(json.dumps(description))


def _with_noi(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer with `[NOI]` in the place of the first unused entry, or added where there is none."""
    if tokenizer.token_to_id(NOI) is not None:
        return tokenizer
    description = json.loads(tokenizer.to_str())
    vocab = description["model"]["vocab"]
    unused = sorted((i, token) for token, i in vocab.items() if re.fullmatch(r"\[unused\d+\]", token))
    if not unused:
        tokenizer.add_special_tokens([NOI])
        return tokenizer
    vocab[NOI] = vocab.pop(unused[0][1])
    entry = {"id": vocab[NOI], "content": NOI, "single_word": False, "lstrip": False, "rstrip": False}
    others = [e for e in description["added_tokens"] if e["id"] != vocab[NOI]]
    added = [*others, entry | {"normalized": False, "special": True}]
    description["added_tokens"] = sorted(added, key=lambda e: e["id"])
    return Tokenizer.from_str(json.dumps(description))


def _from_file(path: Path) -> Tokenizer:
    """The tokenizer of a `tokenizer.json`, if all it does to a text is what those of BERTs do.

    Others could take for ever, or turn a short text into a long one: a replacement, a regular expression.
    """
    content = json.loads(path.read_text("utf-8"))
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise ValueError("no tokenizer")
    if content["model"].get("type", "WordPiece") != "WordPiece":
        raise ValueError(f"a model of type {str(content['model'].get('type'))[:40]}")
    for part, inside in (("normalizer", "normalizers"), ("pre_tokenizer", "pretokenizers")):
        for step in _steps(content.get(part), inside):
            if step not in PLAIN_STEPS:
                raise ValueError(f"a {part} of type {step[:40]}")
    try:
        return Tokenizer.from_str(json.dumps(content))
    except Exception as error:  # the library raises nothing more special
        raise ValueError(str(error)[:100]) from error


def _steps(part: object, inside: str) -> list[str]:
    """The types of the steps of a normalizer or a pre-tokenizer."""
    if part is None:
        return []
    if not isinstance(part, dict):
        raise ValueError("a step that is no object")
    steps = part.get(inside) if part.get("type") == "Sequence" else [part]
    if not isinstance(steps, list) or len(steps) > MOST_STEPS or not all(isinstance(step, dict) for step in steps):
        raise ValueError(f"not a list of at most {MOST_STEPS} steps")
    return [str(step.get("type")) for step in steps]


def _from_vocab_txt(path: Path) -> Tokenizer:
    from tokenizers import decoders, normalizers, pre_tokenizers, processors
    from tokenizers.models import WordPiece

    tokens = path.read_text("utf-8").splitlines()
    ids = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(WordPiece(ids, unk_token="[UNK]"))
    lowercase = not any(token.isascii() and token.isalpha() and token != token.lower() for token in tokens)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens([token for token in SPECIAL if token in ids])
    if "[SEP]" in ids and "[CLS]" in ids:
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"]))
    return tokenizer


def _from_hub(name: str) -> Tokenizer:
    from huggingface_hub import hf_hub_download

    try:
        return _from_file(Path(hf_hub_download(name, "tokenizer.json")))
    except Exception as error:  # the Hub client raises a dozen unrelated types for "no such thing" and "no network"
        raise VocabularyError(
            f'Expected an embedded vocabulary (english), a folder or a Hub id, found "{name}", which is none of them '
            f"or cannot be reached ({type(error).__name__}).",
            "Check the name; without a network, give the path of a folder that holds tokenizer.json.",
        ) from error
