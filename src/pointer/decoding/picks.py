"""Picking among drafts: which of several texts reads best."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Protocol, TypeVar

from pointer.base import has_base
from pointer.errors import UsageError, missing_extra


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
    """Drafts, the one that reads best first; `scores` are those of a language model, if it was asked and is there.

    By a language model it is the probability of the whole text that counts. By that of a token on average, texts win
    that go on and on.
    """
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


WEIGHTS = 135
"""Millions of weights of the base language model."""


def likelihood(texts: Sequence[str]) -> list[float]:
    """The log-probability of each text by the base language model; nothing where it is not installed."""
    if not has_base():
        return []
    return _base()(list(texts))


@cache
def _base() -> Callable[[list[str]], list[float]]:
    """The base alone, opened once in a process."""
    from pointer.runtime.writer import OnnxBase

    return OnnxBase().likelihood
