"""Picking among drafts: which of several texts reads best."""

from collections.abc import Callable, Sequence
from functools import cache

from pointer.base import has_base

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
