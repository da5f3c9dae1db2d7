"""Stage schedules (paper 3.2): which token is born at which stage, and the training pairs that follow from it.

A schedule is one array of stages per text: 0 for the tokens of the skeleton X^0, k for those that stage k inserts.
It is found backwards. Starting from the whole text, each step of the dynamic programme masks the least important
tokens, no two neighbours at once, until the skeleton is left; what is masked first is born last. All texts of a
batch are solved together, one array operation per position. Three more schedules go forwards from a skeleton, gap by
gap: `eager`, and the two orders of the Insertion Transformer.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

SKELETON_SIZE = 4
"""The paper's c: masking goes on until fewer than this many tokens are left."""

# Scores become integers before they are compared, so that equal importance is a true tie on every machine.
_RESOLUTION = 10_000
# Adds "mask the most tokens" below the smallest difference of scores; a text has fewer tokens than this.
_GAIN = 1 << 14
_NEVER = -(1 << 62)


def mask_pattern(importance: IntArray, maskable: BoolArray) -> BoolArray:
    """The best masking of one step: maximal `sum(alpha_max - alpha)` with no two neighbours masked.

    Among the optima the one that masks the most tokens, then the leftmost. `alpha_max` is over all tokens of a row.

    >>> mask_pattern(np.array([[3, 1, 2, 1, 3]]), np.ones((1, 5), bool))[0].astype(int).tolist()
    [0, 1, 0, 1, 0]
    """
    rows, length = importance.shape
    gain = (importance.max(axis=1, keepdims=True, initial=0) - importance) * _GAIN + 1  # B T
    gain[~maskable] = _NEVER
    best = np.zeros((length + 2, rows), np.int64)  # best[t]: the best total over positions t, t+1, ...
    for t in range(length - 1, -1, -1):
        best[t] = np.maximum(best[t + 1], gain[:, t] + best[t + 2])
    masked = np.zeros((rows, length + 1), bool)
    for t in range(length):
        # Taking t whenever that is no worse makes the pattern the leftmost of the best ones.
        masked[:, t] = maskable[:, t] & ~masked[:, t - 1] & (gain[:, t] + best[t + 2] >= best[t + 1])
    return masked[:, :length]


def schedule(
    importance: Sequence[npt.ArrayLike],
    continues: Sequence[npt.ArrayLike],
    keep: Sequence[npt.ArrayLike],
    skeleton_size: int | Sequence[int] = SKELETON_SIZE,
) -> list[npt.NDArray[np.uint8]]:
    """The stage at which each token is born, for a batch of texts.

    `continues` marks the `##` pieces: a word loses its pieces from the back, so that it is born head first.
    `keep` marks tokens that are never masked (`[UNK]`; the words of a `keywords` skeleton). Masking ends when fewer
    than `skeleton_size` tokens are left; 0 means only when nothing can be masked.

    >>> [stages.tolist() for stages in schedule([[0, 3, 0, 1, 0, 3]], [[0] * 6], [[0] * 6], skeleton_size=3)]
    [[2, 0, 2, 1, 2, 0]]
    """
    lengths = np.array([len(np.atleast_1d(np.asarray(row))) for row in importance], np.int64)
    scores = np.rint(_padded(importance, lengths, 0.0) * _RESOLUTION).astype(np.int64)
    piece = _padded(continues, lengths, False).astype(bool)
    frozen = _padded(keep, lengths, True).astype(bool)
    death = _deaths(scores, piece, frozen, lengths, np.broadcast_to(np.asarray(skeleton_size), lengths.shape))
    last = death.max(axis=1, keepdims=True, initial=0)
    born = np.where(death > 0, last - death + 1, 0).astype(np.uint8)
    return [row[:length] for row, length in zip(born, lengths, strict=True)]


def _deaths(scores: IntArray, piece: BoolArray, frozen: BoolArray, lengths: IntArray, smallest: IntArray) -> IntArray:
    """The masking step at which each token goes (1 = the first), 0 where it survives."""
    rows, width = scores.shape
    death = np.zeros((rows, width), np.int64)
    position = np.broadcast_to(np.arange(width), (rows, width))
    alive = position < lengths[:, None]
    row_of = np.arange(rows)
    for step in range(1, int(lengths.max(initial=0)) + 1):
        busy = alive[row_of].sum(axis=1) >= smallest[row_of]
        row_of = row_of[busy]
        # Living tokens move to the front, in order, so that neighbours are neighbours again.
        order = np.argsort(~alive[row_of], axis=1, kind="stable")  # b T
        here = np.take_along_axis(alive[row_of], order, 1)
        order, here = order[:, : here.sum(1).max(initial=0)], here[:, : here.sum(1).max(initial=0)]
        if not here.size:
            break
        score = np.where(here, np.take_along_axis(scores[row_of], order, 1), 0)
        follows = np.take_along_axis(piece[row_of], order, 1) & here
        last_piece = np.ones_like(here)
        last_piece[:, :-1] = ~follows[:, 1:]
        masked = mask_pattern(score, here & last_piece & ~np.take_along_axis(frozen[row_of], order, 1))
        moved = masked.any(axis=1)
        row, column = np.nonzero(masked)
        death[row_of[row], order[row, column]] = step
        alive[row_of[row], order[row, column]] = False
        row_of = row_of[moved]
    return death


def eager(importance: npt.ArrayLike, continues: npt.ArrayLike, skeleton: BoolArray) -> npt.NDArray[np.uint8]:
    """Another schedule: at every stage, each gap that lacks tokens gets the most important of them.

    The paper's stages are found from the end, so a token is born as late as its neighbours allow, and a gap that is to
    be filled stays empty until the longest gap of the text has caught up: whether something goes in now depends on
    gaps elsewhere. Here `[NOI]` says one thing at every stage, that nothing is missing.

    A text is done in as few stages as its longest gap needs; of the tokens of a gap those come into question that leave
    the stages enough for both sides. Words are born head first.

    >>> eager([0, 3, 0, 1, 0, 3], [0] * 6, np.array([0, 1, 0, 0, 0, 1], bool)).tolist()
    [1, 0, 2, 1, 2, 0]
    """
    scores = np.asarray(importance).tolist()

    def most_important(heads: list[int], start: int, stop: int, room: int) -> int:
        in_time = [t for t in heads if max(t - start, stop - 1 - t) <= room] or heads
        return max(in_time, key=lambda t: (scores[t], -abs(2 * t + 1 - start - stop)))

    return _gap_by_gap(continues, skeleton, most_important)


def balanced(continues: npt.ArrayLike, skeleton: BoolArray) -> npt.NDArray[np.uint8]:
    """The balanced binary tree of the Insertion Transformer (Stern et al., 2019): each gap gets its central token.

    Theirs is a soft weighting around the centre; this is what it comes to as its temperature falls to 0. So a gap of n
    words is filled in `ceil(log2(n + 1))` stages. Of two central tokens it is the left one.

    >>> balanced([0] * 7, np.zeros(7, bool)).tolist()
    [3, 2, 3, 1, 3, 2, 3]
    """

    def most_central(heads: list[int], start: int, stop: int, room: int) -> int:
        return min(heads, key=lambda t: abs(2 * t + 1 - start - stop))

    return _gap_by_gap(continues, skeleton, most_central)


def uniform(continues: npt.ArrayLike, skeleton: BoolArray, random: np.random.Generator) -> npt.NDArray[np.uint8]:
    """The other order of the Insertion Transformer: each gap gets any of its tokens, all with the same chance.

    Their loss takes the mean over the tokens of a gap; a draw, made anew at every epoch, has it as its expectation.
    """

    def any_one(heads: list[int], start: int, stop: int, room: int) -> int:
        return heads[int(random.integers(len(heads)))]

    return _gap_by_gap(continues, skeleton, any_one)


def _gap_by_gap(
    continues: npt.ArrayLike, skeleton: BoolArray, choose: Callable[[list[int], int, int, int], int]
) -> npt.NDArray[np.uint8]:
    """Stages in which every gap that lacks tokens gets one, which `choose` picks out of the heads of its words.

    It is told where the gap starts and stops, and how many tokens the stages after this one can bring to a gap if the
    text is to be done in as few stages as its longest gap needs.
    """
    pieces = np.asarray(continues).tolist()
    edges = np.flatnonzero(np.diff(~skeleton, prepend=False, append=False))
    gaps = [(start, stop, 1) for start, stop in edges.reshape(-1, 2).tolist()]
    stages = max(((stop - start).bit_length() for start, stop, _ in gaps), default=0)
    born = np.zeros(len(skeleton), np.uint8)
    while gaps:
        start, stop, stage = gaps.pop()
        heads = [t for t in range(start, stop) if t == start or not pieces[t]]
        chosen = choose(heads, start, stop, (1 << max(0, stages - stage)) - 1)
        born[chosen] = stage
        gaps += [(a, b, stage + 1) for a, b in ((start, chosen), (chosen + 1, stop)) if a < b]
    return born


def _padded(rows: Sequence[npt.ArrayLike], lengths: IntArray, fill: float) -> npt.NDArray[np.float64]:
    table = np.full((len(rows), int(lengths.max(initial=0))), fill, np.float64)
    for row, values in enumerate(rows):
        table[row, : lengths[row]] = values
    return table


def stage_pairs(ids: npt.ArrayLike, stage: npt.ArrayLike, noi: int) -> Iterator[tuple[IntArray, IntArray]]:
    """Every training pair of a text, as `(X^{k-1}, label of each gap)`, the closing `(X, [NOI]...)` pair last.

    There is one gap more than tokens: gap 0 is left of the first token (right of `[CLS]`).

    >>> [(x.tolist(), y.tolist()) for x, y in stage_pairs([7, 8, 9], [1, 0, 1], noi=1)]
    [([8], [7, 9]), ([7, 8, 9], [1, 1, 1, 1])]
    """
    tokens, births = np.asarray(ids, np.int64), np.asarray(stage, np.int64)
    for k in range(1, int(births.max(initial=0)) + 2):
        yield insertions(tokens, births, k, noi)


def insertions(tokens: IntArray, births: npt.NDArray[Any], k: int, noi: int) -> tuple[IntArray, IntArray]:
    """The pair of stage `k`: the tokens alive before it, and for every gap what stage `k` puts there or `noi`."""
    old = births < k
    labels = np.full(int(old.sum()) + 1, noi, np.int64)
    new = births == k
    labels[np.cumsum(old)[new]] = tokens[new]  # a token born now falls into the gap after the old ones left of it
    return tokens[old], labels
