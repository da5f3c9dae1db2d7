"""Stages of a text as people see them: tokens, and which of them each stage inserted."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt


class Token(NamedTuple):
    """A token of a stage; `new` if this stage inserted it."""

    text: str
    new: bool


Stage: TypeAlias = tuple[Token, ...]
"""The tokens of a stage."""


def births(stages: Sequence[Stage]) -> npt.NDArray[np.int64]:
    """For every token of the last stage the stage that inserted it."""
    born = np.zeros(len(stages[-1]), np.int64)
    alive = np.arange(len(born))
    for number in range(len(stages) - 1, 0, -1):
        new = np.array([token.new for token in stages[number]], bool)
        born[alive[new]] = number
        alive = alive[~new]
    return born
