"""The language of a causal model: its tokens, what each of them writes, and the words in which a task is put to it."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from pointer.errors import CheckpointError

STYLES = {
    "everyday": "sentence",
    "captions": "caption",
    "reviews": "review",
    "news": "news sentence",
    "wiki": "encyclopedia sentence",
}
"""What a text can be like, and by which words the model is asked for it."""

REQUESTS = {
    "everyday": """Write short sentences about everyday life.
She left her keys on the kitchen table.
The mechanic said that the car would be ready by noon.
We were so tired that we fell asleep on the train.
His brother has never liked spiders.
""",
    "captions": """Write short captions for pictures.
A man holding an umbrella in front of a shop.
Two children sitting on the steps of a house.
An old boat lying on the beach at low tide.
A woman in a red coat waiting for the bus.
""",
    "reviews": """Write short reviews of places.
The soup was cold, and we waited an hour for it. I will not come back.
Lovely little shop with fair prices. The owner knows everything about tea.
Our room was clean and quiet, and the staff could not have been nicer!
The haircut was fine, but they charged me more than they had said.
""",
    "news": """Write single sentences from the news.
The minister said on Tuesday that the bridge would stay closed until spring.
Two people were injured when a bus left the road near the airport.
Shares of the company fell by 4 percent after the report.
She won the first set but lost the match in less than two hours.
""",
    "wiki": """Write single sentences from an encyclopedia.
The village lies on the left bank of the river, about ten kilometres north of the town.
He studied law before he became a member of parliament in 1921.
The species is found in dry forests and feeds mainly on insects.
The album was recorded in three weeks and released in the autumn of the same year.
""",
}
"""Of each style, what a model is asked for that is to judge texts, and what it has answered so far: the more of a kind
it has seen, the surer it is what is none. It is not told the words that a text should have."""

_ENDS = ("<|im_end|>", "<|endoftext|>", "</s>")
_TURN = "<|im_start|>"
"""What begins a turn of a conversation, for models that hold one."""


def task(words: Sequence[str], style: str) -> str:
    """What the model is asked.

    >>> task(["dog", "frisbee"], "everyday")
    'Write a sentence with the words: dog, frisbee'
    """
    return f"Write a {STYLES[style]} with the words: {', '.join(words)}"


class Likelihood(NamedTuple):
    """How likely a language model finds a text."""

    total: float
    """The log-probability of all its tokens and of its end."""
    tokens: int


class Language:
    """Texts to tokens and back, for the tokenizer of any causal model.

    `writes[i]` is what token `i` adds to a text, empty for tokens that nobody should read: specials, line breaks, parts
    of a character.
    """

    def __init__(self, tokenizer: Tokenizer, end: int) -> None:
        self.tokenizer = tokenizer
        self.tokenizer.encode_special_tokens = True  # a "<|im_end|>" that somebody wrote is text
        self.end = end
        self.turn: int | None = tokenizer.token_to_id(_TURN)
        """The token that begins a turn of a conversation; None for a model that only goes on with texts."""
        self.size = tokenizer.get_vocab_size()

    @classmethod
    def open(cls, folder: Path) -> "Language":
        """The tokenizer of a Transformers folder."""
        try:
            tokenizer = _tokenizer(folder / "tokenizer.json")
            ends = json.loads((folder / "config.json").read_text("utf-8")).get("eos_token_id")
        except Exception as error:  # tokenizers raises plain exceptions
            raise CheckpointError(
                f"Expected tokenizer.json and config.json in {folder}, found something else ({type(error).__name__}).",
                "Name the folder of a complete causal language model.",
            ) from error
        known = [end for name in _ENDS if (end := tokenizer.token_to_id(name)) is not None]
        end = next(iter(known or (ends if isinstance(ends, list) else [ends])), None)
        if not isinstance(end, int):
            raise CheckpointError(
                f"Expected a token that ends a text in {folder}, found none.",
                "Its config.json should name an eos_token_id.",
            )
        return cls(tokenizer, end)

    @cached_property
    def fingerprint(self) -> str:
        """What tells vocabularies apart: a digest of all tokens, in order."""
        tokens = "\n".join(self.tokenizer.id_to_token(i) or "" for i in range(self.size))
        return hashlib.sha256(tokens.encode()).hexdigest()[:16]

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, nothing added."""
        found: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return found

    @property
    def lead(self) -> str:
        """What stands before the first word of a text: nothing in a turn of its own, else a space."""
        return " " if self.turn is None else ""

    def prompt(self, words: Sequence[str], style: str) -> list[int]:
        """What the model reads before it writes: the task, as a conversation if it holds one."""
        if self.turn is None:
            return self.encode(f"{task(words, style)}\n{STYLES[style].capitalize()}:")
        return self._answering(task(words, style))

    def _answering(self, asked: str) -> list[int]:
        """A conversation up to where the answer begins."""
        assert self.turn is not None
        turn = [self.turn, *self.encode(f"user\n{asked}"), self.end]
        return [*turn, *self.encode("\n"), self.turn, *self.encode("assistant\n")]

    @cached_property
    def starts(self) -> list[tuple[int, ...]]:
        """How the prompts of each style begin, whatever the words."""
        prompts = ((self.prompt(["a"], style), self.prompt(["1"], style)) for style in STYLES)
        same = (takewhile(lambda pair: pair[0] == pair[1], zip(*some, strict=False)) for some in prompts)
        return [tuple(token for token, _ in start) for start in same]

    def request(self, style: str | None) -> tuple[int, ...]:
        """What stands before a text that the model judges: a request for a text of that style.

        A model that holds no conversation reads the token that ends a text, as between those that it was trained on.
        """
        if self.turn is None or style is None:
            return (self.end,)
        asked, _, answers = REQUESTS[style].partition("\n")
        return (*self._answering(asked), *self.encode(answers))

    @cached_property
    def writes(self) -> list[str]:
        """What every token adds to a text."""
        special = {i for i, token in self.tokenizer.get_added_tokens_decoder().items() if token.special}
        spell = _byte_level if "ByteLevel" in self.tokenizer.to_str() else _metaspace
        tokens = (self.tokenizer.id_to_token(i) or "" for i in range(self.size))
        return ["" if i in special else _readable(spell(token)) for i, token in enumerate(tokens)]

    @cached_property
    def kinds(self) -> "Kinds":
        """Which tokens begin, continue or end a word."""
        return Kinds.of(self.writes)


@dataclass(frozen=True)
class Kinds:
    """For every token: does it write something, begin a word after a space, go on with one, or only close one?"""

    starts: npt.NDArray[np.bool_]
    """A space, then a word or a mark."""
    continues: npt.NDArray[np.bool_]
    """Letters, digits or an apostrophe, without a space before them."""
    marks: npt.NDArray[np.bool_]
    """Marks only, without a space before them."""

    @classmethod
    def of(cls, writes: Sequence[str]) -> "Kinds":
        """The kinds of tokens that write these strings; one that mixes marks and letters is of no kind."""
        words = np.array([bool(w) and all(c.isalnum() or c in "'\u2019" for c in w.removeprefix(" ")) for w in writes])
        marks = np.array([bool(w) and not any(c.isalnum() for c in w) for w in writes])
        spaced = np.array([len(w) > 1 and w[0] == " " for w in writes])
        bare = np.array([bool(w) and w[0] != " " for w in writes])  # the space before a number is a token of its own
        is_word = words & ~marks | np.array([w in ("'", "\u2019") for w in writes])
        return cls(spaced & (words | marks), bare & is_word, bare & marks & ~is_word)


def _tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a file, without the space that one of SentencePiece adds to the start of whatever it reads."""
    tokenizer = Tokenizer.from_file(str(path))
    content = json.loads(path.read_text("utf-8"))
    for part in ("normalizer", "pre_tokenizer"):
        steps = content[part] or {}
        steps = steps.get("normalizers") or steps.get("pretokenizers") or [steps]
        adds = [
            step for step in steps if step.get("type") == "Prepend" or step.get("prepend_scheme", "never") != "never"
        ]
        for step in adds:
            step["prepend" if step["type"] == "Prepend" else "prepend_scheme"] = (
                "" if step["type"] == "Prepend" else "never"
            )
        if adds:
            tokenizer = Tokenizer.from_str(json.dumps(content))
    return tokenizer


def _readable(text: str) -> str:
    """The text of a token, or nothing if it is not one that stands in a line of text."""
    is_plain = text.isprintable() and "\ufffd" not in text and " " not in text[1:]
    return text if is_plain else ""


def _byte_level(token: str) -> str:
    """What a token of a byte-level vocabulary writes; a part of a character writes U+FFFD."""
    return bytes(_BYTES[c] for c in token if c in _BYTES).decode("utf-8", "replace")


def _metaspace(token: str) -> str:
    """What a token of a SentencePiece vocabulary writes; `<0x0A>` is a byte."""
    return "" if token.startswith("<0x") else token.replace("\u2581", " ")


def _byte_letters() -> dict[str, int]:
    """The letter that stands for each byte in byte-level vocabularies: itself if it can be seen, else a stand-in."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(256 + i): byte for i, byte in enumerate(hidden)}


_BYTES = _byte_letters()
