"""The soft-constraint baseline: a left-to-right transformer that reads the keywords and then writes the text.

It is trained on `keywords [SEP] text [SEP]`, with the keywords of a text drawn anew every epoch and the loss on the
text alone. Nothing makes it use the keywords: what it leaves out is in `Generation.missing`. The paper's has 117
million parameters; `Sizes` has ours.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from pointer.baselines.checkpoint import open_checkpoint
from pointer.baselines.results import accepted, generation, parsed_in_batches
from pointer.baselines.training import TextBatch, Trainee, padded
from pointer.decoding.constraints import FRAME, INSERTED, Tokens, first_stage
from pointer.decoding.generator import Generation
from pointer.decoding.grammar import Given
from pointer.decoding.options import Options
from pointer.decoding.search import sampled
from pointer.errors import CheckpointError, ConstraintError, TrainingError, UsageError
from pointer.runtime import LARGEST_LOGIT, NextToken, Prefix
from pointer.runtime.torch import CachedModel
from pointer.training.batches import IGNORED
from pointer.training.data import TrainingData
from pointer.training.settings import BaselineSettings
from pointer.vocabulary import Vocabulary

SYSTEM = "autoregressive"
ATTEMPTS = 4
"""How often samples are drawn until there are enough different ones."""


@dataclass(frozen=True)
class Sizes:
    """The shape of the transformer; a GPT-2 of 117 million parameters has 12 layers of width 768."""

    layers: int = 6
    """Transformer blocks."""
    width: int = 384
    """Of the hidden states, a multiple of `heads`."""
    heads: int = 6
    """Attention heads of a block."""
    positions: int = 256
    """The most tokens of keywords and text together."""
    dropout: float = 0.0
    """Of hidden states and attention; a run of few epochs needs none."""

    def __post_init__(self) -> None:
        for name, low in (("layers", 1), ("heads", 1), ("width", 1), ("positions", 8)):
            if getattr(self, name) < low:
                raise UsageError(f"{name}: expected at least {low}, found {getattr(self, name)}.", f"Raise {name}.")
        if self.width % self.heads:
            raise UsageError(
                f"width: expected a multiple of the {self.heads} heads, found {self.width}.", "Change one of them."
            )
        if not 0 <= self.dropout < 1:
            raise UsageError(f"dropout: expected a number from 0 to 1, found {self.dropout}.", "Change dropout.")


def configuration(sizes: Sizes, vocabulary: Vocabulary) -> GPT2Config:
    """The sizes as Transformers has them: `AutoModelForCausalLM` opens the checkpoint too."""
    return GPT2Config(
        vocab_size=len(vocabulary),
        n_positions=sizes.positions,
        n_embd=sizes.width,
        n_layer=sizes.layers,
        n_head=sizes.heads,
        resid_pdrop=sizes.dropout,
        embd_pdrop=sizes.dropout,
        attn_pdrop=sizes.dropout,
        bos_token_id=vocabulary.id("[SEP]"),
        eos_token_id=vocabulary.id("[SEP]"),
    )


# ---------------------------------------------------------------------------------------------------------------------
# Training


def trainee(texts: TrainingData, settings: BaselineSettings, chosen: Sizes) -> Trainee[GPT2LMHeadModel]:
    """What is trained on some texts."""
    texts.need_ranks()
    if 2 * texts.longest + 2 > chosen.positions:  # the keywords may be all of the text
        raise TrainingError(
            f"positions: expected at least {2 * texts.longest + 2}, twice the longest text, found {chosen.positions}.",
            "Raise positions, or prepare the data with a smaller --max-length.",
        )
    config = configuration(chosen, texts.vocabulary)
    described = (
        "A left-to-right transformer that reads `keywords [SEP]` and writes a text; the paper's has 117M parameters."
    )
    return Trainee(
        SYSTEM,
        asdict(chosen),
        lambda: GPT2LMHeadModel(config),  # type: ignore[no-untyped-call]
        objective(*settings.keywords),
        predictions,
        described,
        config.to_dict() | {"architectures": ["GPT2LMHeadModel"]},
    )


def objective(fewest: int, most: int) -> Callable[[GPT2LMHeadModel, TextBatch], torch.Tensor]:
    """The loss of every token of the texts and of the `[SEP]` that ends them, given `fewest` to `most` keywords."""

    def loss(model: GPT2LMHeadModel, batch: TextBatch) -> torch.Tensor:
        inputs, labels = pairs(batch, fewest, most)  # B T
        hidden = model.transformer(input_ids=inputs).last_hidden_state  # B T H
        wanted = labels != IGNORED
        # The output layer is a third of the work, so it runs only where there is something to predict. Padding comes
        # after a text, where attention to the left never sees it.
        logits = model.lm_head(hidden[wanted])  # N V
        return torch.nn.functional.cross_entropy(logits, labels[wanted], reduction="sum")

    return loss


def predictions(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How many tokens are predicted for texts of these lengths: all, and the end."""
    return lengths + 1


def pairs(batch: TextBatch, fewest: int, most: int) -> tuple[torch.Tensor, torch.Tensor]:
    """What the model reads and what it should say next, for every text of a batch."""
    separator = np.array([batch.vocabulary.id("[SEP]")])
    inputs, labels = [], []
    for ids, keys in zip(batch.sequences(), batch.keywords(fewest, most), strict=True):
        inputs.append(np.concatenate([ids[keys], separator, ids]))
        labels.append(np.concatenate([np.full(keys.sum(), IGNORED), ids, separator]))
    return padded(inputs, batch.vocabulary.id("[PAD]"), batch.device), padded(labels, IGNORED, batch.device)


# ---------------------------------------------------------------------------------------------------------------------
# Generating


@dataclass(frozen=True)
class _Line:
    """A text on its way."""

    constraints: tuple[str, ...]
    prompt: Prefix
    number: int = 0
    """Tells apart several texts that are drawn for the same constraints."""
    text: Prefix = ()
    likelihood: float = 0.0
    stopped: str = ""

    def draw(self, seed: int) -> float:
        """A number in [0, 1) that depends on the seed, the constraints and the place in the text alone."""
        key = json.dumps([seed, self.number, self.constraints, len(self.text)]).encode()
        return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") / 2**64


@dataclass
class LeftToRight:
    """What the systems with a left-to-right model share: the model, its rules, and how keywords are put to it."""

    begin: Callable[[], NextToken]
    """Gives the model's function for one batch; a new one has nothing in its cache."""
    vocabulary: Vocabulary
    casing: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    positions: int = 256
    name: str = "model"

    @cached_property
    def end(self) -> int:
        """What ends the keywords, and the text."""
        return self.vocabulary.id("[SEP]")

    @cached_property
    def never(self) -> npt.NDArray[np.int64]:
        """What is never part of a text."""
        special = self.vocabulary.special
        return np.array([*special[special != self.end].tolist(), self.vocabulary.noi])

    def tokens(self, constraints: tuple[str, ...]) -> Tokens:
        """The pieces of the constraints, and whose they are."""
        framed = first_stage(constraints, self.vocabulary, "fixed")
        inside = framed.owner != FRAME
        return Tokens(framed.ids[inside], framed.owner[inside])

    def prompt(self, constraints: tuple[str, ...], needed: int = 1) -> Prefix:
        """What the model reads before it writes; there must be room for a text of `needed` tokens."""
        prompt = (*self.tokens(constraints).ids.tolist(), self.end)
        if len(prompt) + needed > self.positions:
            raise ConstraintError(
                f"Expected constraints that leave room for a text within the {self.positions} positions of the model, "
                f"found {len(prompt) - 1} tokens.",
                "Give fewer constraints.",
            )
        return prompt

    def room(self, prompt: Prefix, options: Options) -> int:
        """The most tokens of a text; `max_length` counts `[CLS]` and `[SEP]`, which other systems have."""
        return min(options.max_length - 2, self.positions - len(prompt))

    def ruled(self, found: npt.NDArray[np.float32], prefixes: Sequence[Prefix]) -> npt.NDArray[np.float32]:
        """Log-probabilities with -inf for what may not come: specials, pieces that continue no word, an empty text."""
        if np.isnan(found).any():
            raise CheckpointError(
                f"Expected numbers from the model {self.name}, found NaN.",
                "Its weights are damaged; open another checkpoint.",
            )
        last = np.array([prefix[-1] for prefix in prefixes])
        allowed = np.clip(found, -10 * LARGEST_LOGIT, 0.0)
        allowed[:, self.never] = -np.inf
        no_word = ~self.vocabulary.is_word[last]
        allowed[np.ix_(no_word, self.vocabulary.continues)] = -np.inf
        allowed[last == self.end, self.end] = -np.inf
        return allowed


class Autoregressive(LeftToRight):
    """Writes texts from left to right after having read the keywords; it may forget some."""

    def generate_many(self, lists: Sequence[Given], batch_size: int = 64, **options: Any) -> list[list[Generation]]:
        """For every list of constraints its `n` different texts, best first; the order of the lists is kept.

        Decoding is greedy or sampled (`seed`, `temperature`, `top_k`, `top_p`), of at most `max_length` tokens.
        """
        names = ["n", "seed", "temperature", "top_k", "top_p", "max_length"]
        chosen = accepted(SYSTEM, options, names, ("greedy", "sample"))
        results: list[list[Generation]] = []
        for batch in parsed_in_batches(lists, batch_size):
            results += self._different([_Line(one, self.prompt(one)) for one in batch], chosen)
        return results

    def _different(self, lines: list[_Line], options: Options) -> list[list[Generation]]:
        """The texts of every line; where the model has no more to say after some attempts, fewer than asked."""
        found: list[dict[str, Generation]] = [{} for _ in lines]
        for attempt in range(ATTEMPTS):
            wanted = [
                (i, _Line(line.constraints, line.prompt, attempt * options.n + k))
                for i, line in enumerate(lines)
                for k in range(options.n - len(found[i]))
            ]
            if not wanted:
                break
            written = self._write([line for _, line in wanted], options)
            for (i, _), one in zip(wanted, written, strict=True):
                found[i].setdefault(one.text, one)
        return [sorted(texts.values(), key=lambda one: -one.score) for texts in found]

    def _write(self, lines: list[_Line], options: Options) -> list[Generation]:
        """Grow every line token by token; finished ones leave the batch."""
        model = self.begin()
        done: dict[int, _Line] = {}
        live = dict(enumerate(lines))
        while live:
            prefixes = [line.prompt + line.text for line in live.values()]
            scores = self.ruled(model(prefixes), prefixes)  # B V
            tokens = self._chosen(scores, list(live.values()), options)
            for row, (i, token) in enumerate(zip(list(live), tokens, strict=True)):
                live[i] = self._grown(live[i], token, float(scores[row, token]), options)
                if live[i].stopped:
                    done[i] = live.pop(i)
        return [self._generation(done[i]) for i in range(len(lines))]

    def _chosen(self, scores: npt.NDArray[np.float32], lines: list[_Line], options: Options) -> list[int]:
        if options.decoding == "greedy":
            best: list[int] = scores.argmax(-1).tolist()
            return best
        draws = np.array([line.draw(options.seed) for line in lines])
        drawn: list[int] = sampled(scores, draws, options)[:, 0].tolist()
        return drawn

    def _grown(self, line: _Line, token: int, score: float, options: Options) -> _Line:
        likelihood = line.likelihood + score
        if token == self.end:
            return _Line(line.constraints, line.prompt, line.number, line.text, likelihood, "end")
        text = (*line.text, token)
        stopped = "max_length" if len(text) == self.room(line.prompt, options) else ""
        return _Line(line.constraints, line.prompt, line.number, text, likelihood, stopped)

    def _generation(self, line: _Line) -> Generation:
        tokens = Tokens(np.array(line.text), np.full(len(line.text), INSERTED))
        score = line.likelihood / (len(line.text) + (line.stopped == "end"))
        return generation(tokens, line.constraints, self.vocabulary, self.casing, score, line.stopped)


def opened(folder: str | Path, device: str | None, system: str) -> dict[str, Any]:
    """A trained model as the arguments of `LeftToRight`, for a system that writes with it."""
    checkpoint = open_checkpoint(SYSTEM, folder, Sizes)
    sizes = checkpoint.sizes
    model = GPT2LMHeadModel(configuration(sizes, checkpoint.vocabulary))  # type: ignore[no-untyped-call]
    checkpoint.load_into(model)
    model.to(device=torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu")))  # type: ignore[call-arg]
    model.eval()  # type: ignore[no-untyped-call]
    return {
        "begin": lambda: CachedModel(model),
        "vocabulary": checkpoint.vocabulary,
        "casing": checkpoint.casing,
        "positions": sizes.positions,
        "name": f"{system}:{folder}",
    }


def load(folder: str | Path, device: str | None = None) -> Autoregressive:
    """Open what `train` wrote."""
    return Autoregressive(**opened(folder, device, SYSTEM))
