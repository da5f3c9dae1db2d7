"""Picking among drafts: which of several texts reads best."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from pointer.base import has_base


def likelihood(texts: Sequence[str]) -> list[float]:
    """The log-probability of each text by the base language model; nothing where it is not installed."""
    if not has_base():
        return []
    from pointer.causal import likelihoods

    return [total for total, _ in likelihoods(*_base(), texts)]


@cache
def _base() -> tuple[Any, Any]:
    """The base alone, opened once in a process."""
    from pointer.causal import open_base

    return open_base()
