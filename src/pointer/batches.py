"""From rows to batches: every stage pair of every row, close in length to its neighbours, under a budget of tokens.

An epoch goes through the rows in a random order, block by block. A block's stages may be drawn anew, its pairs are
sorted by length, cut into batches and shuffled. All of it follows from the seed, the epoch and the block, so a place in
the stream is three numbers, and every process of a run knows the batches of all the others.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from typing import NamedTuple, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt
import torch

from pointer.errors import TrainingError
from pointer.prepare.keywords import draw
from pointer.prepare.shards import Rows
from pointer.prepare.stages import SKELETON_SIZE, eager, schedule
from pointer.vocabulary import Vocabulary

IGNORED = -100
"""The label of positions that have no gap to decide: `[SEP]`, padding, and what is decided already."""
BLOCK_ROWS = 8192
"""Enough rows to find pairs of equal length, few enough to plan in a second."""
CLOSING = 0
"""Stands for the closing `(X, [NOI]...)` pair where a stage number is expected."""
MOST_BEGUN = 0.75
"""How likely a gap is decided at most: what is left for the last of four rounds. Beyond, there is little to learn."""
MOST_TAKEN = 0.3
"""How likely a word is taken out of a finished text at most: a revision asks about a quarter of the words at a time."""


class Place(NamedTuple):
    """Where in the endless stream of steps a run is."""

    epoch: int = 0
    block: int = 0
    step: int = 0


@dataclass(frozen=True)
class Stages:
    """How rows become pairs; what `Batches` needs to know beside the rows."""

    skeleton: str = "prepared"
    keywords: tuple[int, int] = (1, 8)
    closing_share: float = 1.0
    begun_share: float = 0.0
    taken_share: float = 0.0
    seed: int = 0
    schedule: str = "paper"


@dataclass(frozen=True)
class Pairs:
    """Stage pairs, one entry each: row, stage (the pair is X^{stage-1} -> X^stage), positions, weight of its loss.

    A pair may be begun: some gaps are decided, and what goes into them is part of the input. The others have labels,
    so the model learns to fill a stage in several rounds. Out of the finished text of a closing pair some words may be
    taken, which are the labels of the gaps that they leave, so the model learns to revise what it has written.
    """

    row: npt.NDArray[np.int64]
    stage: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    closing: npt.NDArray[np.bool_]
    weight: npt.NDArray[np.float32]
    begun: npt.NDArray[np.float64]
    """How likely each gap is decided; 0 where nothing is."""
    taken: npt.NDArray[np.float64]
    """How likely each word is taken out; 0 where none is."""
    draw: npt.NDArray[np.uint64]
    """What the draws of those gaps and words depend on."""
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

    def taken_out(self, pair: npt.NDArray[np.int64], texts: Rows, vocabulary: Vocabulary) -> npt.NDArray[np.bool_]:
        """Which tokens of the texts of some pairs are taken out; `pair` names that of each token.

        Of two neighbours one stays, because a gap gets one token, and of a word its last piece goes first.
        """
        place = np.arange(len(texts.ids)) - np.repeat(texts.offsets[:-1], np.diff(texts.offsets))
        ends_word = ~np.append(vocabulary.continues[texts.ids[1:]], False)
        drawn = (self._drawn(pair, place) < self.taken[pair]) & ends_word & (texts.stage > 0)
        is_beside = np.concatenate([[False], drawn[:-1]]) & (place > 0)
        taken: npt.NDArray[np.bool_] = drawn & ~is_beside
        return taken

    def _drawn(self, pair: npt.NDArray[np.int64], number: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """A random number in [0, 1) for everything numbered in a pair, the same whenever it is asked for."""
        mixed = (self.draw[pair] + number.astype(np.uint64) * _SPREAD) * _SPREAD  # overflow is part of the mixing
        mixed = (mixed ^ (mixed >> np.uint64(32))) * _SPREAD
        drawn: npt.NDArray[np.float64] = (mixed >> np.uint64(11)) * 2.0**-53
        return drawn


_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""An odd number whose multiples are spread evenly over 64 bits (the golden ratio's)."""


@dataclass(frozen=True)
class Batch:
    """What the model sees: `[CLS] tokens [SEP]` a row, and the label of the gap right of each position."""

    ids: torch.Tensor  # B T
    attention: torch.Tensor | None  # B T, None where nothing is padded
    labels: torch.Tensor  # B T
    weight: torch.Tensor  # B
    stage: torch.Tensor  # B, CLOSING for closing pairs

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device."""
        attention = None if self.attention is None else self.attention.to(device)
        return Batch(
            self.ids.to(device), attention, self.labels.to(device), self.weight.to(device), self.stage.to(device)
        )


def take(rows: Rows, which: npt.NDArray[np.int64]) -> Rows:
    """The rows of these numbers, in this order."""
    lengths = rows.offsets[which + 1] - rows.offsets[which]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    flat = np.repeat(rows.offsets[which] - offsets[:-1], lengths) + np.arange(offsets[-1])
    return Rows(rows.ids[flat], rows.stage[flat], rows.importance[flat], rows.rank[flat], offsets)


def redrawn(rows: Rows, vocabulary: Vocabulary, stages: Stages, random: np.random.Generator) -> Rows:
    """The same rows with new stages: their skeleton is what importance leaves over, or drawn keywords."""
    parts = [slice(a, b) for a, b in zip(rows.offsets[:-1], rows.offsets[1:], strict=True)]
    continues = vocabulary.continues[rows.ids]
    if stages.skeleton != "prepared":
        rows = _with_skeletons(rows, parts, continues, vocabulary, stages, random)
    if stages.schedule == "eager":
        born = [eager(rows.importance[p], continues[p], rows.stage[p] == 0) for p in parts]
        rows = replace(rows, stage=np.concatenate(born))
    return rows


def _with_skeletons(
    rows: Rows,
    parts: list[slice],
    continues: npt.NDArray[np.bool_],
    vocabulary: Vocabulary,
    stages: Stages,
    random: np.random.Generator,
) -> Rows:
    keep = rows.ids == vocabulary.id("[UNK]")
    sizes = np.full(len(rows), SKELETON_SIZE)
    wanted = random.random(len(rows)) < {"importance": 0.0, "mixed": 0.5, "keywords": 1.0}[stages.skeleton]
    most = random.integers(stages.keywords[0], stages.keywords[1], len(rows), endpoint=True)
    for i in np.flatnonzero(wanted):
        chosen = keyword_pieces(rows.rank[parts[i]], continues[parts[i]], int(most[i]), random)
        keep[parts[i]] |= chosen
        if chosen.any():
            sizes[i] = 0
    born = schedule(
        [rows.importance[p] for p in parts], [continues[p] for p in parts], [keep[p] for p in parts], sizes.tolist()
    )
    return replace(rows, stage=np.concatenate(born))


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
    pairs = Pairs(row, stage, gaps + 1, closing, weight, none, none, none.astype(np.uint64), gaps)
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


def _some_taken(pairs: Pairs, rows: Rows, vocabulary: Vocabulary, share: float, random: np.random.Generator) -> Pairs:
    """The same pairs, with words taken out of a share of the closing ones."""
    which = np.flatnonzero(pairs.closing & (random.random(len(pairs)) < share))
    taken, draw = np.zeros(len(pairs)), pairs.draw.copy()
    taken[which] = random.random(len(which)) * MOST_TAKEN
    draw[which] = random.integers(2**64, size=len(which), dtype=np.uint64)
    pairs = replace(pairs, taken=taken, draw=draw)
    texts = take(rows, pairs.row[which])
    pair_of = np.repeat(which, np.diff(texts.offsets))
    lost = np.bincount(pair_of[pairs.taken_out(pair_of, texts, vocabulary)], minlength=len(pairs))
    return replace(pairs, positions=pairs.positions - lost, labels=pairs.labels - lost)


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
    batches, start = [], 0
    for end, positions in enumerate(pairs.positions.tolist()):
        if end > start and (end - start + 1) * positions > batch_tokens:
            batches.append(pairs[start:end])
            start = end
    return [*batches, pairs[start:]]


def collate(rows: Rows, pairs: Pairs, vocabulary: Vocabulary) -> Batch:
    """The tensors of a batch of pairs."""
    chosen = take(rows, pairs.row)
    pair_of = np.repeat(np.arange(len(pairs)), np.diff(chosen.offsets))
    stage = pairs.stage[pair_of]
    before, new = chosen.stage < stage, chosen.stage == stage
    if pairs.taken.any():
        taken = pairs.taken_out(pair_of, chosen, vocabulary)
        before, new = before & ~taken, new | taken
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


@dataclass(frozen=True)
class Step:
    """The batches of one optimizer step, for all processes, and where the run is after it."""

    rows: Rows
    batches: list[Pairs]
    after: Place
    epochs: float
    """How many epochs are done after this step."""


class Batches:
    """The endless stream of training steps over some rows."""

    def __init__(
        self, rows: Rows, vocabulary: Vocabulary, stages: Stages, batch_tokens: int, batches_per_step: int = 1
    ) -> None:
        self.rows = rows
        self.vocabulary = vocabulary
        self.stages = stages
        self.batch_tokens = batch_tokens
        self.batches_per_step = batches_per_step
        self.blocks = max(1, -(-len(rows) // BLOCK_ROWS))

    def plan(self, epoch: int, block: int) -> tuple[Rows, list[list[Pairs]]]:
        """The rows of a block with their stages, and its steps."""
        order = np.random.default_rng([self.stages.seed, epoch]).permutation(len(self.rows))
        random = np.random.default_rng([self.stages.seed, epoch, block])
        chosen = take(self.rows, order[block * BLOCK_ROWS : (block + 1) * BLOCK_ROWS])
        rows = redrawn(chosen, self.vocabulary, self.stages, random)
        pairs = all_pairs(rows, self.stages, random)
        if self.stages.taken_share:
            pairs = _some_taken(pairs, rows, self.vocabulary, self.stages.taken_share, random)
        batches = cut(pairs, self.batch_tokens, random)
        size = self.batches_per_step
        batches = even(batches, size)
        batches = [batches[i] for i in random.permutation(len(batches))]
        return rows, [batches[i : i + size] for i in range(0, len(batches), size)]

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
                    part = min(len(self.rows), (place.block + (i + 1) / len(steps)) * BLOCK_ROWS) / len(self.rows)
                    yield Step(rows, steps[i], done, place.epoch + part)
                place = after


class Divisible(Protocol):
    """A batch that can be split."""

    def __len__(self) -> int: ...

    def __getitem__(self, which: slice, /) -> "Divisible": ...


Divided = TypeVar("Divided", bound=Divisible)


def even(batches: list[Divided], multiple: int) -> list[Divided]:
    """Split batches until their number is a multiple, so that every process has work at every step."""
    while len(batches) % multiple:
        largest = max(range(len(batches)), key=lambda i: len(batches[i]))
        half = len(batches[largest]) // 2
        if half == 0:
            raise TrainingError(
                f"Expected enough texts for {multiple} batches a step, found {len(batches)} pairs in the last block.",
                "Prepare more texts, or use fewer processes.",
            )
        parts = batches[largest][:half], batches[largest][half:]
        batches[largest : largest + 1] = cast(list[Divided], list(parts))
    return batches
