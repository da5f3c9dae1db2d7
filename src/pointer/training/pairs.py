"""Stage pairs: what the insertion transformer learns from (paper 3.2), and how pairs become tensors.

Every pair `(X^{k-1}, X^k)` of a row, and the closing `(X, [NOI]...)` pair, is derived from the row alone. The stages of
a row may be drawn anew, and a stage may be begun.
"""

from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from pointer.prepare.keywords import draw
from pointer.prepare.shards import Rows, RowSource
from pointer.prepare.stages import SKELETON_SIZE, balanced, eager, schedule, uniform
from pointer.training.batches import IGNORED, RowBatches, within
from pointer.training.settings import Stages
from pointer.vocabulary import Vocabulary

CLOSING = 0
"""Stands for the closing `(X, [NOI]...)` pair where a stage number is expected."""
MOST_BEGUN = 0.75
"""How likely a gap is decided at most: what is left for the last of four rounds. Beyond, there is little to learn."""


@dataclass(frozen=True)
class Pairs:
    """Stage pairs, one entry each: row, stage (the pair is X^{stage-1} -> X^stage), positions, weight of its loss.

    A pair may be begun: some gaps are decided, and what goes into them is part of the input. The others have labels,
    so the model learns to fill a stage in several rounds.
    """

    row: npt.NDArray[np.int64]
    stage: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    closing: npt.NDArray[np.bool_]
    weight: npt.NDArray[np.float32]
    begun: npt.NDArray[np.float64]
    """How likely each gap is decided; 0 where nothing is."""
    draw: npt.NDArray[np.uint64]
    """What the draws of those gaps depend on."""
    labels: npt.NDArray[np.int64]
    """How many gaps are left to decide."""

    def __getitem__(self, which: npt.NDArray[np.int64] | npt.NDArray[np.bool_] | slice) -> "Pairs":
        return Pairs(*(getattr(self, field.name)[which] for field in fields(self)))

    def __len__(self) -> int:
        return len(self.row)

    @property
    def gaps(self) -> float:
        """The gaps of these pairs that have a label, each counted with its weight; `[SEP]` has none."""
        return float((self.labels * self.weight.astype(np.float64)).sum())

    def decided(self, pair: npt.NDArray[np.int64], gap: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which gaps of begun pairs are decided."""
        is_decided: npt.NDArray[np.bool_] = self._drawn(pair, gap) < self.begun[pair]
        return is_decided

    def _drawn(self, pair: npt.NDArray[np.int64], number: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """A random number in [0, 1) for everything numbered in a pair, the same whenever it is asked for."""
        mixed = (self.draw[pair] + number.astype(np.uint64) * _SPREAD) * _SPREAD  # overflow is part of the mixing
        mixed = (mixed ^ (mixed >> np.uint64(32))) * _SPREAD
        drawn: npt.NDArray[np.float64] = (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return drawn


_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""An odd number whose multiples are spread evenly over 64 bits (the golden ratio's)."""


class Batch(NamedTuple):
    """What the model sees: `[CLS] tokens [SEP]` a row, and the label of the gap right of each position."""

    ids: torch.Tensor  # B T
    attention: torch.Tensor | None  # B T, None where nothing is padded
    labels: torch.Tensor  # B T
    weight: torch.Tensor  # B
    stage: torch.Tensor  # B, CLOSING for closing pairs


def redrawn(
    rows: Rows, vocabulary: Vocabulary, stages: Stages, random: np.random.Generator, by_importance: bool = False
) -> Rows:
    """The same rows with new stages: their skeleton is what importance leaves over, or drawn keywords.

    Where their stages are `by_importance` already, those skeletons need not be found again.
    """
    parts = [slice(a, b) for a, b in zip(rows.offsets[:-1], rows.offsets[1:], strict=True)]
    continues = vocabulary.continues[rows.ids]
    born = rows.stage.copy()
    if stages.skeleton != "prepared":
        keep, is_drawn = _skeletons(rows, parts, continues, vocabulary, stages, random)
        known = np.full(len(rows), by_importance)
        # All schedules but the paper's need to know the skeleton alone, and a drawn one is known.
        known[is_drawn] = stages.schedule != "paper"
        for i in np.flatnonzero(is_drawn & known):
            born[parts[i]] = ~keep[parts[i]]
        sought = np.flatnonzero(~known)
        found = schedule(
            [rows.importance[parts[i]] for i in sought],
            [continues[parts[i]] for i in sought],
            [keep[parts[i]] for i in sought],
            np.where(is_drawn[sought], 0, SKELETON_SIZE).tolist(),
        )
        for i, stage in zip(sought, found, strict=True):
            born[parts[i]] = stage
    for part in parts if stages.schedule != "paper" else ():
        skeleton = born[part] == 0
        if stages.schedule == "eager":
            born[part] = eager(rows.importance[part], continues[part], skeleton)
        elif stages.schedule == "balanced":
            born[part] = balanced(continues[part], skeleton)
        else:
            born[part] = uniform(continues[part], skeleton, random)
    return replace(rows, stage=born)


def _skeletons(
    rows: Rows,
    parts: list[slice],
    continues: npt.NDArray[np.bool_],
    vocabulary: Vocabulary,
    stages: Stages,
    random: np.random.Generator,
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which tokens are never masked, and which rows have a drawn skeleton: exactly those tokens."""
    keep = rows.ids == vocabulary.id("[UNK]")
    wanted = random.random(len(rows)) < {"importance": 0.0, "mixed": 0.5, "keywords": 1.0}[stages.skeleton]
    most = random.integers(stages.keywords[0], stages.keywords[1], len(rows), endpoint=True)
    for i in np.flatnonzero(wanted):
        chosen = keyword_pieces(rows.rank[parts[i]], continues[parts[i]], int(most[i]), random)
        keep[parts[i]] |= chosen
        wanted[i] = chosen.any()
    return keep, wanted


def keyword_pieces(
    rank: npt.NDArray[np.uint8], continues: npt.NDArray[np.bool_], most: int, random: np.random.Generator
) -> npt.NDArray[np.bool_]:
    """The pieces of at most `most` drawn keywords."""
    word_of = np.cumsum(~continues) - 1
    heads = np.flatnonzero(~continues)
    chosen = np.zeros(len(heads), bool)
    chosen[draw(rank[heads], most, random)] = True
    pieces: npt.NDArray[np.bool_] = chosen[word_of]
    return pieces


def all_pairs(rows: Rows, stages: Stages, random: np.random.Generator) -> Pairs:
    """Every pair of every row, some begun; of the closing ones a share is drawn, which weighs as much as all."""
    row_of = np.repeat(np.arange(len(rows)), np.diff(rows.offsets))
    width = int(rows.stage.max(initial=0)) + 1
    born = np.bincount(row_of * width + rows.stage, minlength=len(rows) * width).reshape(len(rows), width)
    alive = np.cumsum(born, axis=1)  # tokens that live after stage k, per row
    last = np.maximum.reduceat(rows.stage, rows.offsets[:-1]).astype(np.int64)
    row = np.repeat(np.arange(len(rows)), last + 1)
    first = np.cumsum(last + 1) - (last + 1)  # the first pair of each row
    stage = np.arange(len(row)) - first[row] + 1
    closing = stage == last[row] + 1
    weight = np.where(closing, 1 / stages.closing_share, 1).astype(np.float32)
    gaps = alive[row, stage - 1] + 1
    kept = ~closing | (random.random(len(row)) < stages.closing_share)
    none = np.zeros(len(row))
    pairs = Pairs(row, stage, gaps + 1, closing, weight, none, none.astype(np.uint64), gaps)
    if stages.begun_share:
        pairs = _some_begun(pairs, rows, first, stages.begun_share, random)
    return pairs[kept & (pairs.labels > 0)]


def _some_begun(
    pairs: Pairs, rows: Rows, first: npt.NDArray[np.int64], share: float, random: np.random.Generator
) -> Pairs:
    """The same pairs with a share of them begun; `first` is the number of the first pair of each row."""
    is_begun = ~pairs.closing & (random.random(len(pairs)) < share)
    begun = np.zeros(len(pairs))
    begun[is_begun] = random.random(int(is_begun.sum())) * MOST_BEGUN
    pairs = replace(pairs, begun=begun, draw=random.integers(2**64, size=len(pairs), dtype=np.uint64))
    pair_of = np.repeat(np.arange(len(pairs)), pairs.labels)
    gap = np.arange(len(pair_of)) - np.repeat(np.cumsum(pairs.labels) - pairs.labels, pairs.labels)
    decided = np.bincount(pair_of[pairs.decided(pair_of, gap)], minlength=len(pairs))
    new = np.flatnonzero(rows.stage > 0)
    row_of = np.repeat(np.arange(len(rows)), np.diff(rows.offsets))
    born_in = first[row_of[new]] + rows.stage[new] - 1
    put_in = np.bincount(born_in[pairs.decided(born_in, birth_gaps(rows)[new])], minlength=len(pairs))
    return replace(pairs, positions=pairs.positions + put_in, labels=pairs.labels - decided)


def birth_gaps(rows: Rows) -> npt.NDArray[np.int64]:
    """For every token that is inserted, the number of the gap that it goes into."""
    gaps = np.zeros(len(rows.ids), np.int64)
    row_of = np.repeat(np.arange(len(rows)), np.diff(rows.offsets))
    for stage in range(1, int(rows.stage.max(initial=0)) + 1):
        new = rows.stage == stage
        gaps[new] = _count(rows.stage < stage, rows.offsets, row_of)[new]
    return gaps


def _count(
    which: npt.NDArray[np.bool_], offsets: npt.NDArray[np.int64], row_of: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """At every token, how many of its row up to it are meant: its position if it is one, else that of its gap."""
    seen = np.concatenate([[0], np.cumsum(which)])
    position: npt.NDArray[np.int64] = seen[1:] - seen[offsets[:-1]][row_of]
    return position


def cut(pairs: Pairs, batch_tokens: int, random: np.random.Generator) -> list[Pairs]:
    """Batches of pairs of nearly one length, each of at most `batch_tokens` positions with padding."""
    pairs = pairs[np.lexsort((random.random(len(pairs)), pairs.positions))]
    return [pairs[batch] for batch in within(pairs.positions.tolist(), batch_tokens)]


def collate(rows: Rows, pairs: Pairs, vocabulary: Vocabulary) -> Batch:
    """The tensors of a batch of pairs."""
    chosen = rows.take(pairs.row)
    pair_of = np.repeat(np.arange(len(pairs)), np.diff(chosen.offsets))
    stage = pairs.stage[pair_of]
    before, new = chosen.stage < stage, chosen.stage == stage
    gap = _count(before, chosen.offsets, pair_of)
    is_decided = pairs.decided(pair_of, gap)
    old, new = before | (new & is_decided), new & ~is_decided
    position = _count(old, chosen.offsets, pair_of)  # of an old token; of the gap that a new one falls into
    place = np.arange(pairs.positions.max())
    ids = np.full((len(pairs), len(place)), vocabulary.id("[PAD]"))  # B T
    ids[:, 0] = vocabulary.id("[CLS]")
    ids[pair_of[old], position[old]] = chosen.ids[old]
    ids[np.arange(len(pairs)), pairs.positions - 1] = vocabulary.id("[SEP]")
    labels = np.full(ids.shape, IGNORED)  # B T
    every = np.arange(len(pairs))
    labels[:, 0] = np.where(pairs.decided(every, np.zeros_like(every)), IGNORED, vocabulary.noi)
    labelled = before & ~is_decided  # tokens whose right gap is to be decided
    labels[pair_of[labelled], position[labelled]] = vocabulary.noi
    labels[pair_of[new], position[new]] = chosen.ids[new]
    padded = bool((pairs.positions != len(place)).any())
    attention = torch.from_numpy((place < pairs.positions[:, None]).astype(np.int64)) if padded else None
    stage_number = np.where(pairs.closing, CLOSING, pairs.stage)
    return Batch(
        torch.from_numpy(ids),
        attention,
        torch.from_numpy(labels),
        torch.from_numpy(pairs.weight),
        torch.from_numpy(stage_number),
    )


class StageBatches(RowBatches):
    """The endless stream of training steps over the stage pairs of some rows."""

    def __init__(
        self,
        rows: RowSource,
        vocabulary: Vocabulary,
        stages: Stages,
        batch_tokens: int,
        batches_per_step: int = 1,
        by_importance: bool = False,
    ) -> None:
        super().__init__(rows, stages.seed, batches_per_step)
        self.vocabulary, self.stages, self.batch_tokens = vocabulary, stages, batch_tokens
        self.by_importance = by_importance

    def block(self, which: npt.NDArray[np.int64], random: np.random.Generator) -> tuple[Rows, list[Pairs]]:
        """The rows of a block with their stages, and the batches of their pairs."""
        rows = redrawn(self.rows.take(which), self.vocabulary, self.stages, random, self.by_importance)
        pairs = all_pairs(rows, self.stages, random)
        return rows, cut(pairs, self.batch_tokens, random)
