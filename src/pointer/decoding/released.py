"""The decoder of the authors' 2020 release, bug for bug: the preset `released` and the baseline of the benchmarks.

One text at a time, always padded to 256 ids, always six rounds. It may lose constraints and insert special tokens; that
is what it is for. It shares nothing with the engine, so that neither can bend the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from pointer.vocabulary import Vocabulary

ROUNDS = 6
LENGTH = 256
TEMPERATURE, TOP_K, TOP_P = 0.8, 10, 0.9
"""How the release samples; greedy decoding has a temperature of 1."""
DAMPED = ("[UNK]", '"', "(", ")", "-", "[", "]", "'", "&")
"""Tokens whose logits are multiplied by 0.3 in every round."""
# The release lists [PAD] too, but drops its id 0 as if it were not in the vocabulary.
LATE = (
    "[SEP]", "[CLS]", "the", "of", "and", "in", "a", "to", "was", "is", '"', "for", "on", "as", "with", "by", "he",
    "'s", "at", "that", "from", "it", "his", "an", "which", "s", ".", ",", "(", ")", "'", "%",
)  # fmt: skip
"""Tokens whose logits are zero in the first round and their own from then on."""
FORBIDDEN = ("[", "]", "(", ")")
TOO_LONG = "Error : Input exceeds length limit;"
"""What the release decodes in the place of constraints that do not fit."""


class Model(Protocol):
    """What predicts the gaps: an `InsertionTransformer`, or a script in a test."""

    def __call__(self, *, input_ids: Tensor, attention_mask: Tensor) -> Any:
        """An object with `.logits` of shape 1 T V."""


@dataclass(frozen=True)
class ReleasedDecoding:
    """The text as the release prints it, and the ids of the input and of every round without padding."""

    stages: list[list[int]]
    text: str


@torch.no_grad()
def decode_released(
    model: Model,
    vocabulary: Vocabulary,
    constraints: Sequence[str],
    *,
    sampling: torch.Generator | None = None,
    length: int = LENGTH,
) -> ReleasedDecoding:
    """Decode as the 2020 release does: greedy, or with random draws from the generator `sampling`.

    `length` is the release's `max_seq_length`; a model with fewer positions needs a smaller one.

    >>> from types import SimpleNamespace
    >>> vocabulary = Vocabulary.open("english")
    >>> def model(input_ids, attention_mask):
    ...     logits = torch.zeros(*input_ids.shape, len(vocabulary))
    ...     logits[:, :, vocabulary.id("great")], logits[:, :, vocabulary.noi] = 1, 2
    ...     return SimpleNamespace(logits=logits)
    >>> decode_released(model, vocabulary, ["happy hour", "drinks"]).text
    'great happy hour great drinks great'
    """
    ids, locked = first_stage(vocabulary, constraints, length)
    stages = [ids]
    for round_ in range(ROUNDS):
        padded = torch.full((1, length), vocabulary.id("[PAD]"), device=getattr(model, "device", None))  # 1 T
        padded[0, : len(ids)] = torch.tensor(ids)
        visible = (padded != vocabulary.id("[PAD]")) & (padded != vocabulary.noi)
        logits = model(input_ids=padded, attention_mask=visible.long()).logits[0]  # T V
        logits = adjust(logits, padded[0], round_, vocabulary, TEMPERATURE if sampling else 1.0)
        predictions = (sample(logits, sampling) if sampling else logits.softmax(-1).argmax(-1)).tolist()
        ids, locked = insert(ids, locked, predictions, vocabulary, length)
        stages.append(ids)
    pad = vocabulary.id("[PAD]")
    return ReleasedDecoding([[i for i in stage if i != pad] for stage in stages], released_text(vocabulary, ids))


def first_stage(vocabulary: Vocabulary, constraints: Sequence[str], length: int) -> tuple[list[int], list[bool]]:
    """`[CLS]` and the pieces of the constraints, and which gaps (each right of an id) are locked; no `[SEP]`."""
    pieces = [encoding.ids.tolist() for encoding in vocabulary.encode(list(constraints))]
    if 1 + sum(map(len, pieces)) > length:
        pieces = [vocabulary.encode([TOO_LONG])[0].ids.tolist()]
    ids, locked = [vocabulary.id("[CLS]")], [False]
    for constraint in pieces:
        ids += constraint
        locked += [True] * (len(constraint) - 1) + [False] * bool(constraint)
    return ids, locked


def adjust(logits: Tensor, padded: Tensor, round_: int, vocabulary: Vocabulary, temperature: float) -> Tensor:
    """What the release does to the logits (T V) before it chooses, in its order."""
    logits = logits.clone()
    late = min(round_ / 1, 1)  # the release divides by its settings noi_decay and reduce_decay, both 1
    logits[:, vocabulary.noi] *= late
    logits /= temperature
    logits[:, _known(vocabulary, DAMPED)] *= 0.3
    logits[:, _known(vocabulary, LATE)] *= late
    for i in padded.tolist():  # once per occurrence, so the padding drives [PAD] to zero
        logits[:, i] *= 0.8
    logits[:, _known(vocabulary, FORBIDDEN)] = -1e10
    return logits


def _known(vocabulary: Vocabulary, tokens: Sequence[str]) -> list[int]:
    found = (vocabulary.tokenizer.token_to_id(token) for token in tokens)
    return [i for i in found if i is not None]


def sample(logits: Tensor, generator: torch.Generator, top_k: int = TOP_K, top_p: float = TOP_P) -> Tensor:
    """One draw for every position of `logits` (T V), among the top k and of these among the top p."""
    least = logits.topk(min(top_k, logits.shape[-1]), -1).values[:, -1:]
    logits = logits.masked_fill(logits < least, -torch.inf)
    ordered, order = logits.sort(-1, descending=True)
    before = ordered.softmax(-1).cumsum(-1).roll(1, -1)  # the token that crosses the threshold stays
    before[:, 0] = 0
    logits = logits.masked_fill((before > top_p).gather(-1, order.argsort(-1)), -torch.inf)
    return logits.softmax(-1).to(generator.device).multinomial(1, generator=generator)[:, 0]


def insert(
    ids: list[int], locked: list[bool], predictions: list[int], vocabulary: Vocabulary, length: int
) -> tuple[list[int], list[bool]]:
    """The next stage: every id, then what was predicted for the gap on its right.

    It ends after a `[SEP]` or before a `[PAD]` of the previous stage, whatever follows there, and at the length limit:
    no further id once `length - 1` are there, but a prediction may still become the last one.
    """
    grown: list[int] = []
    locks: list[bool] = []
    for i, closed, predicted in zip(ids, locked, predictions, strict=False):
        if len(grown) >= length - 1 or i == vocabulary.id("[PAD]"):
            break
        grown.append(i)
        locks.append(closed)
        if i == vocabulary.id("[SEP]"):
            break
        if not closed and predicted != vocabulary.noi:
            grown.append(predicted)
            locks.append(False)
    return grown, locks


def released_text(vocabulary: Vocabulary, ids: Sequence[int]) -> str:
    """Tokens as the release prints them: pieces joined, three specials dropped, characters beyond ASCII dropped."""
    dropped = {vocabulary.id(token) for token in ("[CLS]", "[SEP]", "[PAD]")}
    tokens = (vocabulary.tokens[i].encode("ascii", "ignore").decode() for i in ids if i not in dropped)
    return " ".join(tokens).replace(" ##", "")
