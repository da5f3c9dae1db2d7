"""Picking among drafts: which of several texts reads best."""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Protocol, TypeVar

from pointer.base import has_base
from pointer.errors import UsageError, missing_extra
from pointer.language import Likelihood

if TYPE_CHECKING:
    from pointer.runtime.writer import OnnxBase


class Scored(Protocol):
    """A text that its model has scored."""

    @property
    def text(self) -> str:
        """As people write it."""

    @property
    def score(self) -> float:
        """The log-likelihood of a decision, on average."""


Draft = TypeVar("Draft", bound=Scored)


BY_LANGUAGE_MODEL = ("auto", "language-model")
"""Ways to pick for which a language model scores the drafts, where one is installed."""


def ranked(drafts: list[Draft], by: str, scores: list[float]) -> list[Draft]:
    """Drafts, the one that reads best first; `scores` are those of a language model, if it was asked and is there."""
    if by == "language-model" and not scores:
        raise UsageError("pick_by: expected a language model, found none.", "Fetch one: pointer fetch smollm2")
    if by == "mbr":
        scores = agreement([draft.text for draft in drafts])
    order = sorted(zip(scores or [draft.score for draft in drafts], drafts, strict=True), key=lambda one: -one[0])
    return [draft for _, draft in order]


def agreement(texts: Sequence[str]) -> list[float]:
    """How much each text has in common with the others: the mean chrF against them.

    The text with the most is the one of least risk, were any of the others what should have been written: minimum Bayes
    risk decoding (Eikema and Aziz 2020) by chrF (Popovic 2015).
    """
    try:
        from sacrebleu import sentence_chrf
    except ImportError as missing:
        raise missing_extra("Picking by minimum Bayes risk", "sacrebleu", "eval") from missing
    others = [[other for j, other in enumerate(texts) if j != i] for i in range(len(texts))]
    pairs = zip(texts, others, strict=True)
    return [sum(sentence_chrf(text, [one]).score for one in some) / max(1, len(some)) for text, some in pairs]


TOKEN_IS_WORTH = 1.5
"""Nats; chosen by reading what it picks for everyday lists (docs/writer.md)."""
WEIGHTS = 135
"""Millions of weights of the base language model."""


def reading(likelihood: Likelihood) -> float:
    """How well a text reads: how likely it is, and something for every token.

    By likelihood alone the shortest texts win ("The tea kettle was boiled."), by that of a token on average those that
    go on and on.
    """
    return likelihood.total + TOKEN_IS_WORTH * likelihood.tokens


def readings(texts: Sequence[str], style: str | None) -> list[float]:
    """How well each text reads, by the base language model; nothing where it is not installed."""
    return [reading(one) for one in _base().likelihoods(texts, style)] if has_base() else []


@cache
def _base() -> "OnnxBase":
    """The base alone, opened once in a process."""
    from pointer.runtime.writer import OnnxBase

    return OnnxBase()
