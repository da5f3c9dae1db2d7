"""Picking among drafts: which of several texts reads best."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from pointer.base import has_base


def fluency(texts: Sequence[str]) -> list[float]:
    """How likely the base language model finds each text; nothing where it is not installed."""
    if not has_base():
        return []
    from pointer.causal import fluency

    return fluency(*_base(), texts)


@cache
def _base() -> tuple[Any, Any]:
    """The base alone, opened once in a process."""
    from pointer.causal import open_base

    return open_base()
