"""From texts to batches: inputs close in length to their neighbours, under a budget of positions.

An epoch goes through the texts in a random order, block by block. The inputs of a block are drawn, sorted by length,
cut into batches and shuffled. All of it follows from the seed, the epoch and the block, so a place in the stream is
three numbers, and every process of a run knows the batches of all the others. What a batch is, a kind of model says.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pointer.errors import TrainingError
from pointer.prepare.shards import RowSource

IGNORED = -100
"""The label of positions at which there is nothing to predict."""
BLOCK_ROWS = 8192
"""Enough texts to find inputs of equal length, few enough to plan in a second."""


class Place(NamedTuple):
    """Where in the endless stream of steps a run is."""

    epoch: int = 0
    block: int = 0
    step: int = 0


@dataclass(frozen=True)
class Step:
    """The batches of one optimizer step, for all processes, and where the run is after it."""

    rows: Any
    """The texts of the block, where its batches are numbers of them."""
    batches: list[Any]
    after: Place
    epochs: float
    """How many epochs are done after this step."""


class Batches(ABC):
    """The endless stream of training steps over some texts.

    A batch has the `positions` of each of its inputs, a number of `gaps` (all that is predicted in it), a length, and
    slices that are batches too.
    """

    def __init__(self, texts: int, seed: int, batches_per_step: int = 1) -> None:
        self.texts, self.seed, self.batches_per_step = texts, seed, batches_per_step
        self.blocks = max(1, -(-texts // BLOCK_ROWS))

    @abstractmethod
    def block(self, which: npt.NDArray[np.int64], random: np.random.Generator) -> tuple[Any, list[Any]]:
        """The batches of the texts of these numbers, and the texts, if the batches need them."""

    def numbers(self, epoch: int, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Which texts come from `start` to `stop` of an epoch: all of them in a random order."""
        return np.random.default_rng([self.seed, epoch]).permutation(self.texts)[start:stop]

    def plan(self, epoch: int, block: int) -> tuple[Any, list[list[Any]]]:
        """The texts of a block, and its steps."""
        random = np.random.default_rng([self.seed, epoch, block])
        which = self.numbers(epoch, block * BLOCK_ROWS, min(self.texts, (block + 1) * BLOCK_ROWS))
        rows, batches = self.block(which, random)
        size = self.batches_per_step
        batches = even(batches, size)
        batches = [batches[i] for i in random.permutation(len(batches))]
        return rows, [batches[i : i + size] for i in range(0, len(batches), size)]

    def first_block(self) -> tuple[Any, list[Any]]:
        """The texts and the batches of the first block, which is all where texts are few: to validate on."""
        rows, steps = self.plan(0, 0)
        return rows, [batch for step in steps for batch in step]

    def __call__(self, place: Place) -> Iterator[Step]:
        """Every step from `place` on; the next block is planned while this one is used."""
        with ThreadPoolExecutor(1) as ahead:
            coming = ahead.submit(self.plan, place.epoch, place.block)
            while True:
                rows, steps = coming.result()
                after = place._replace(block=place.block + 1, step=0)
                if after.block == self.blocks:
                    after = Place(place.epoch + 1)
                coming = ahead.submit(self.plan, after.epoch, after.block)
                for i in range(place.step, len(steps)):
                    done = place._replace(step=i + 1) if i + 1 < len(steps) else after
                    part = min(self.texts, (place.block + (i + 1) / len(steps)) * BLOCK_ROWS) / self.texts
                    yield Step(rows, steps[i], done, place.epoch + part)
                place = after


class RowBatches(Batches):
    """The endless stream of training steps over prepared texts, in the order in which these come."""

    def __init__(self, rows: RowSource, seed: int, batches_per_step: int = 1) -> None:
        super().__init__(len(rows), seed, batches_per_step)
        self.rows = rows

    def numbers(self, epoch: int, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Those of streamed rows keep to a few shards at a time."""
        return self.rows.numbers(self.seed, epoch, start, stop)


def within(lengths: list[int], batch_tokens: int) -> Iterator[slice]:
    """Cut inputs of these rising lengths into batches, each of at most `batch_tokens` positions with padding.

    >>> list(within([2, 2, 3, 9], 8))
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None)]
    """
    start = 0
    for end, length in enumerate(lengths):
        if end > start and (end - start + 1) * length > batch_tokens:
            yield slice(start, end)
            start = end
    yield slice(start, len(lengths))


def even(batches: list[Any], multiple: int) -> list[Any]:
    """Split batches until their number is a multiple, so that every process has work at every step."""
    while len(batches) % multiple:
        largest = max(range(len(batches)), key=lambda i: len(batches[i]))
        half = len(batches[largest]) // 2
        if half == 0:
            raise TrainingError(
                f"Expected enough texts for {multiple} batches a step, found {len(batches)} pairs in the last block.",
                "Prepare more texts, or use fewer processes.",
            )
        batches[largest : largest + 1] = [batches[largest][:half], batches[largest][half:]]
    return batches
