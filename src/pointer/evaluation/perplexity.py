"""Perplexity: how surprised a language model, the scorer, is by a text.

A scorer gives the loss of every text in its own tokens, so perplexities compare systems, never scorers: a number goes
with the signature of its scorer. Three kinds are opened by name: the n-gram model that comes with the package, KenLM
models, and causal language models of Transformers, among them the one that `pointer fetch` brings.
Texts are scored as they are handed over: bring them into the form that the scorer reads.
"""

import importlib
import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pointer.base import SMOLLM2, base_folder
from pointer.checkpoint import EMBEDDED
from pointer.errors import CheckpointError, DataError, MissingPartError, VocabularyError
from pointer.evaluation.ngram import COUNTS, NGram, pieces
from pointer.storage import file_hash
from pointer.vocabulary import Vocabulary

if TYPE_CHECKING:
    from pointer.progress import Progress

KENLM = "kenlm:"
"""What the name of a KenLM file begins with."""
BETWEEN_DOCUMENTS = "<|endoftext|>"
"""What GPT-2, and many after it, read before every document."""
LONGEST_WINDOW = 2048
"""Tokens; some models can see far more, but not in the memory that is there for judging."""
_BATCH_TEXTS = 1000
_BATCH_POSITIONS = 1024  # by 50,257 entries of GPT-2 that is 200 MB of logits


class Loss(NamedTuple):
    """What a text costs a scorer: its negative log-likelihood in nats, and over how many tokens."""

    nats: float
    tokens: int


class Scorer(Protocol):
    """A language model that says how likely texts are."""

    @property
    def name(self) -> str:
        """What `open_scorer` was asked for."""

    @property
    def form(self) -> str:
        """How it reads texts: `canonical`, or `written` as people write them."""

    @property
    def signature(self) -> str:
        """All that a perplexity depends on besides the text."""

    def losses(self, texts: Sequence[str], progress: "Progress | None" = None) -> list[Loss]:
        """The loss of every text."""


def perplexity(losses: Iterable[Loss]) -> float:
    """The perplexity of a corpus a token, from the losses of its texts.

    >>> round(perplexity([Loss(2 * math.log(8), 2), Loss(math.log(8), 1)]), 6)
    8.0
    """
    losses = list(losses)
    tokens = sum(loss.tokens for loss in losses)
    if not tokens:
        raise DataError("Expected texts with at least one token to scorer, found none.", "Check the texts.")
    return math.exp(math.fsum(loss.nats for loss in losses) / tokens)


def open_scorer(spec: str | None = None) -> Scorer:
    """Open a scorer: `embedded` (or None), `kenlm:FILE`, `smollm2`, or the folder or Hub id of a causal language model.

    >>> scorer = open_scorer("embedded")
    >>> sensible, shuffled = scorer.losses(["the food was very good .", "good the was . very food"])
    >>> sensible.nats < shuffled.nats, sensible.tokens == shuffled.tokens == 7
    (True, True)
    """
    if spec is None or spec == "embedded":
        return NGramScorer(Path(__file__).parent / "scorer" / COUNTS)
    if spec.startswith(KENLM):
        return KenlmScorer(Path(spec.removeprefix(KENLM)))
    return CausalScorer(spec)


class NGramScorer:
    """The scorer that comes with the package: n-grams of word pieces; the end of a text counts as one token."""

    name = "embedded"
    form = "canonical"

    def __init__(self, path: Path) -> None:
        self.model = NGram.open(path)
        self.vocabulary = Vocabulary.open(EMBEDDED)
        if self.model.vocabulary != self.vocabulary.fingerprint:
            raise VocabularyError(
                f"Expected an n-gram model of the vocabulary {self.vocabulary.fingerprint} at {path}, found one of "
                f"{self.model.vocabulary}.",
                "Make it again with recipes/scorer.sh.",
            )
        self.signature = f"scorer:embedded|order:{len(self.model.levels)}|end:yes|sha256:{file_hash(path)[:12]}"

    def losses(self, texts: Sequence[str], progress: "Progress | None" = None) -> list[Loss]:
        """The loss of every text."""
        found: list[Loss] = []
        for start in range(0, len(texts), _BATCH_TEXTS):
            batch = pieces(texts[start : start + _BATCH_TEXTS], self.vocabulary)
            found += [Loss(-float(logs.sum()), len(logs)) for logs in self.model.log_probabilities(batch)]
            if progress:
                progress("judging", len(found), len(texts))
        return found


class KenlmScorer:
    """An n-gram model in a file that KenLM reads; tokens are words between blanks, and the end of the text."""

    form = "canonical"

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise CheckpointError(f"Expected a KenLM model, found no file at {path}.", "Check the path after kenlm:.")
        try:
            kenlm = importlib.import_module("kenlm")
        except ImportError as error:
            raise MissingPartError(
                f"The scorer {KENLM}{path} needs the package kenlm, which is not installed.",
                "Install it with: pip install kenlm",
            ) from error
        try:
            self.model: Any = kenlm.Model(str(path))
        except (OSError, RuntimeError) as error:
            raise CheckpointError(
                f"Expected an ARPA file or a binary one that KenLM wrote at {path}, found something else.",
                "Make one with KenLM's lmplz.",
            ) from error
        self.name = f"{KENLM}{path}"
        self.signature = f"scorer:kenlm|order:{self.model.order}|end:yes|sha256:{file_hash(path)[:12]}"

    def losses(self, texts: Sequence[str], progress: "Progress | None" = None) -> list[Loss]:
        """The loss of every text; KenLM gives decimal logarithms."""
        found: list[Loss] = []
        for text in texts:
            found.append(Loss(-self.model.score(text, bos=True, eos=True) * math.log(10), len(text.split()) + 1))
            if progress:
                progress("judging", len(found), len(texts))
        return found


class _Window(NamedTuple):
    """A part of a text that a model sees at once, and how many tokens at its end no earlier window predicted."""

    text: int
    ids: list[int]
    new: int


def windows(ids: list[int], context: int) -> Iterator[tuple[list[int], int]]:
    """Overlapping parts of a text, each with the number of tokens at its end that are predicted in it.

    Every token but the first is predicted exactly once, from at least half a window to its left, or all there is.

    >>> list(windows([0, 1, 2, 3, 4, 5, 6], context=4))
    [([0, 1, 2, 3, 4], 4), ([2, 3, 4, 5, 6], 2)]
    """
    start, done = 0, 1
    while done < len(ids):
        end = min(len(ids), start + context + 1)  # the last token is predicted but not read
        yield ids[start:end], end - done
        start, done = start + max(1, context // 2), end


class CausalScorer:
    """A causal language model of Transformers, in float32, on a GPU if there is one.

    The first token is predicted from the token that begins texts, where the tokenizer has one, and not at all
    elsewhere. Where it knows the mark between documents, that is the one: what models of conversations call the
    beginning is that of a turn, after which they expect the name of a speaker. The end of a text is not predicted: to
    models of long documents it is a surprise after any sentence.
    """

    form = "written"

    def __init__(self, spec: str) -> None:
        import torch

        self.name = spec
        self._source = str(base_folder(spec)) if spec == SMOLLM2 else spec
        self.model, self.tokenizer = _open_causal(self._source)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model.eval().to(self.device)
        if self._sees_ahead():
            raise CheckpointError(
                f"Expected a causal language model in {spec}, found one that sees the words it has to predict.",
                "Name a model that reads from left to right, such as gpt2.",
            )

    @cached_property
    def context(self) -> int:
        """How many tokens the model sees at once."""
        limits = getattr(self.model.config, "max_position_embeddings", None), self.tokenizer.model_max_length
        return int(min(LONGEST_WINDOW, *filter(None, limits)))

    @cached_property
    def signature(self) -> str:
        """All that a perplexity depends on besides the text."""
        weights = sorted(Path(self._source).glob("*.safetensors")) + sorted(Path(self._source).glob("*.bin"))
        revision = getattr(self.model.config, "_commit_hash", None) or "+".join(file_hash(w)[:12] for w in weights)
        settings = f"begin:{self._begin[0]}|end:no|window:{self.context}|stride:{self.context // 2}|revision:{revision}"
        return f"scorer:{Path(self.name).name}|{settings}|transformers:{version('transformers')}"

    @cached_property
    def _begin(self) -> tuple[str, list[int]]:
        """The token before the first word, and what the signature calls it."""
        mark = self.tokenizer.get_vocab().get(BETWEEN_DOCUMENTS)
        if mark is not None:
            return "document", [mark]
        bos = self.tokenizer.bos_token_id
        return ("no", []) if bos is None else ("yes", [bos])

    def losses(self, texts: Sequence[str], progress: "Progress | None" = None) -> list[Loss]:
        """The loss of every text; a text of nothing, or of one token that nothing begins, has no token to predict."""
        encoded = self.tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"] if texts else []
        sequences = [[*self._begin[1], *ids] for ids in encoded]
        parts = [_Window(i, *part) for i, ids in enumerate(sequences) for part in windows(ids, self.context)]
        nats = [0.0] * len(texts)
        done = 0
        for batch in _batches(parts):
            for window, loss in zip(batch, self._nats(batch), strict=True):
                nats[window.text] += loss
            done += len(batch)
            if progress:
                progress("judging", done, len(parts))
        return [Loss(loss, max(0, len(ids) - 1)) for loss, ids in zip(nats, sequences, strict=True)]

    def _nats(self, batch: list[_Window]) -> list[float]:
        import torch
        from torch.nn.functional import cross_entropy

        shape = len(batch), max(len(window.ids) for window in batch) - 1  # B T
        # Padding stands to the right, where a causal model does not look.
        inputs, seen = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
        targets = torch.full(shape, -100)  # what cross_entropy leaves out
        for row, window in enumerate(batch):
            read = len(window.ids) - 1
            inputs[row, :read] = torch.tensor(window.ids[:-1])
            targets[row, read - window.new : read] = torch.tensor(window.ids[-window.new :])
            seen[row, :read] = 1
        logits = self._logits(inputs, seen)  # B T V
        nats = cross_entropy(logits.flatten(0, 1), targets.to(self.device).flatten(), reduction="none")
        sums: list[float] = nats.view(shape).double().sum(1).tolist()
        return sums

    def _logits(self, inputs: Any, seen: Any) -> Any:
        import torch

        with torch.inference_mode():
            return self.model(input_ids=inputs.to(self.device), attention_mask=seen.to(self.device)).logits.float()

    def _sees_ahead(self) -> bool:
        """Does the last token change what is predicted before it?"""
        import torch

        inputs = torch.tensor([[0, 0, 0], [0, 0, 1]])
        one, other = self._logits(inputs, torch.ones_like(inputs))[:, :2]
        return not torch.allclose(one, other, atol=1e-3)


def _batches(parts: list[_Window]) -> Iterator[list[_Window]]:
    """Windows of like length together, the longest first, as many as fit."""
    batch: list[_Window] = []
    for window in sorted(parts, key=lambda window: -len(window.ids)):
        if batch and (len(batch) + 1) * len(batch[0].ids) > _BATCH_POSITIONS:
            yield batch
            batch = []
        batch.append(window)
    if batch:
        yield batch


def _open_causal(spec: str) -> tuple[Any, Any]:
    """The model and the tokenizer behind a folder or a Hub id."""
    import torch
    from huggingface_hub import hf_hub_download
    from huggingface_hub.utils import logging as hub
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from pointer.model import quiet

    if Path(spec).exists() and not (Path(spec) / "config.json").is_file():
        raise CheckpointError(
            f"Expected a causal language model with a config.json in {spec}, found none.",
            "Name a folder that holds one, a Hub id, kenlm:FILE, or the scorer that comes with the package: embedded.",
        )
    told = hub.get_verbosity()
    hub.set_verbosity(logging.ERROR)  # without a network it would tell about every attempt
    try:
        with quiet():
            if not Path(spec).exists():  # it fails once here; what comes next would try file after file, each for long
                hf_hub_download(spec, "config.json")
            tokenizer: Any = AutoTokenizer.from_pretrained(spec)
            loaded: Any = AutoModelForCausalLM.from_pretrained(spec, dtype=torch.float32, output_loading_info=True)
    except Exception as error:  # a dozen types stand for "no such thing", "another thing" and "no network"
        raise CheckpointError(
            "Expected the scorer to be embedded, kenlm:FILE, or the folder or Hub id of a causal language model, found "
            f'"{spec}", which is none of them or cannot be reached ({type(error).__name__}).',
            "Check the name; without a network, give the path of a folder with model and tokenizer.",
        ) from error
    finally:
        hub.set_verbosity(told)
    model, info = loaded
    embeddings = model.get_input_embeddings().num_embeddings
    if info["missing_keys"] or len(tokenizer) > embeddings:
        found = f"{len(info['missing_keys'])} weights missing, {len(tokenizer):,} tokens for {embeddings:,} embeddings"
        raise CheckpointError(
            f"Expected the weights and the tokenizer of one causal language model in {spec}, found {found}.",
            "Name the folder of a complete checkpoint.",
        )
    return model, tokenizer
