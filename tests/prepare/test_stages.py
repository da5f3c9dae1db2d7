"""The dynamic programme against brute force, and what every schedule promises."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointer.prepare.importance import Frequencies
from pointer.prepare.rows import RowMaker, RowSettings
from pointer.prepare.stages import balanced, eager, mask_pattern, schedule, stage_pairs, uniform
from pointer.vocabulary import Vocabulary

NOI = 1


def best_by_brute_force(importance: list[int], maskable: list[bool]) -> tuple[bool, ...]:
    """Try every pattern: largest gain, then most tokens, then leftmost."""
    highest = max(importance)

    def value(pattern: tuple[bool, ...]) -> tuple[int, int, tuple[bool, ...]]:
        gain = sum(highest - a for a, masked in zip(importance, pattern, strict=True) if masked)
        return gain, sum(pattern), pattern

    allowed = (
        pattern
        for pattern in itertools.product((False, True), repeat=len(importance))
        if not any(a and b for a, b in itertools.pairwise(pattern))
        and all(may or not masked for masked, may in zip(pattern, maskable, strict=True))
    )
    return max(allowed, key=value)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=14))
def test_the_programme_finds_what_brute_force_finds_ties_included(tokens: list[tuple[int, bool]]) -> None:
    importance, maskable = [a for a, _ in tokens], [m for _, m in tokens]
    found = mask_pattern(np.array([importance]), np.array([maskable]))[0]
    assert tuple(found.tolist()) == best_by_brute_force(importance, maskable)


words = st.lists(st.tuples(st.integers(1, 4), st.floats(0, 3), st.booleans()), min_size=1, max_size=20)
"""Words as (pieces, importance, never masked)."""


def as_tokens(text: list[tuple[int, float, bool]]) -> tuple[list[float], list[bool], list[bool]]:
    importance = [alpha for pieces, alpha, _ in text for _ in range(pieces)]
    continues = [i > 0 for pieces, _, _ in text for i in range(pieces)]
    keep = [kept for pieces, _, kept in text for _ in range(pieces)]
    return importance, continues, keep


@settings(deadline=None)
@given(st.lists(words, min_size=1, max_size=4), st.integers(0, 5))
def test_every_schedule_keeps_its_promises(texts: list[list[tuple[int, float, bool]]], size: int) -> None:
    importance, continues, keep = zip(*map(as_tokens, texts), strict=True)
    for stage, piece, kept in zip(schedule(importance, continues, keep, size), continues, keep, strict=True):
        ids = np.arange(100, 100 + len(stage))
        last = int(stage.max())
        assert set(range(1, last + 1)) <= set(stage.tolist()), "no stage is empty"
        assert (stage[np.array(kept)] == 0).all(), "what is kept survives to the skeleton"
        for k in range(1, last + 1):
            alive = stage[stage <= k]
            assert not ((alive[1:] == k) & (alive[:-1] == k)).any(), "no two neighbours are born at one stage"
        for t in np.flatnonzero(piece):
            assert stage[t - 1] < stage[t] or stage[t] == 0, "a word is born head first"
        assert replayed(ids, stage) == ids.tolist(), "replay rebuilds the text"


@settings(deadline=None)
@given(words)
def test_the_eager_schedule_puts_the_most_important_token_into_every_gap_that_lacks_one(
    text: list[tuple[int, float, bool]],
) -> None:
    importance, continues, keep = map(np.array, as_tokens(text))
    stage = eager(importance, continues, keep)
    check_gap_by_gap(stage, continues, keep)
    if not continues.any():
        longest = max(map(len, gaps_before(stage, 1)), default=0)
        assert stage.max() == longest.bit_length(), "in as few stages as the longest gap needs"
        for gap in gaps_before(stage, 1):
            room = 2 ** (int(stage.max()) - 1) - 1  # for what is left and right of the token, each
            in_time = [t for t in gap if max(t - gap[0], gap[-1] - t) <= room]
            assert importance[gap][stage[gap] == 1] == max(importance[t] for t in in_time)


@settings(deadline=None)
@given(words, st.integers(0, 99))
def test_the_orders_of_the_insertion_transformer_rebuild_the_text_and_fill_every_gap(
    text: list[tuple[int, float, bool]], seed: int
) -> None:
    _, continues, keep = map(np.array, as_tokens(text))
    for stage in (balanced(continues, keep), uniform(continues, keep, np.random.default_rng(seed))):
        check_gap_by_gap(stage, continues, keep)


def check_gap_by_gap(stage: np.ndarray, continues: np.ndarray, keep: np.ndarray) -> None:
    """What schedules promise that go forwards from a skeleton."""
    ids = np.arange(100, 100 + len(stage))
    assert ((stage == 0) == keep).all(), "the skeleton stays"
    assert replayed(ids, stage) == ids.tolist(), "replay rebuilds the text"
    for t in np.flatnonzero(continues):
        assert stage[t - 1] < stage[t] or stage[t] == 0, "a word is born head first"
    for k in range(1, int(stage.max()) + 1):
        for gap in gaps_before(stage, k):
            assert (stage[gap] == k).sum() == 1, "a gap that lacks anything gets one token, now"


@pytest.mark.parametrize("words_in_gap", range(1, 70))
def test_a_balanced_gap_takes_as_many_stages_as_a_balanced_tree_has_levels(words_in_gap: int) -> None:
    stage = balanced([0] * words_in_gap, np.zeros(words_in_gap, bool))
    assert stage.max() == math.ceil(math.log2(words_in_gap + 1))
    [centre] = np.flatnonzero(stage == 1)
    assert centre == (words_in_gap - 1) // 2


def test_the_uniform_order_begins_anywhere_with_the_same_chance() -> None:
    random = np.random.default_rng(0)
    firsts = [int(np.flatnonzero(uniform([0] * 5, np.zeros(5, bool), random) == 1)[0]) for _ in range(5000)]
    assert np.bincount(firsts) / 5000 == pytest.approx([0.2] * 5, abs=0.025)


def gaps_before(stage: np.ndarray, k: int) -> list[list[int]]:
    """The tokens that are still to be born before stage k, gap by gap."""
    missing = [(t, int((stage[:t] < k).sum())) for t in range(len(stage)) if stage[t] >= k]
    return [[t for t, _ in group] for _, group in itertools.groupby(missing, key=lambda one: one[1])]


def replayed(ids: np.ndarray, stage: np.ndarray) -> list[int]:
    """Insert what every pair says, starting from the skeleton."""
    text = ids[stage == 0].tolist()
    for before, labels in stage_pairs(ids, stage, NOI):
        assert before.tolist() == text
        gaps = [[label] if label != NOI else [] for label in labels.tolist()]
        text = gaps[0] + [x for token, new in zip(text, gaps[1:], strict=True) for x in (token, *new)]
    return text


def test_a_batch_schedules_each_text_as_it_would_alone() -> None:
    texts = [np.array([0.1, 2, 0.3, 1, 0.2, 2.5, 0]), np.array([1.0]), np.zeros(0), np.full(9, 0.5)]
    nothing = [np.zeros(len(t), bool) for t in texts]
    together = schedule(texts, nothing, nothing)
    alone = [schedule([t], [n], [n])[0] for t, n in zip(texts, nothing, strict=True)]
    assert [a.tolist() for a in together] == [a.tolist() for a in alone]


def test_equal_scores_give_interleaved_masking() -> None:
    [stage] = schedule([np.ones(9)], [np.zeros(9)], [np.zeros(9)])
    assert stage.tolist() == [2, 1, 2, 0, 2, 1, 2, 0, 2]


def test_a_keywords_skeleton_is_what_it_was_told_to_keep() -> None:
    keep = [False, True, False, False, True, False]
    [stage] = schedule([[9, 1, 9, 9, 1, 9]], [[False] * 6], [keep], skeleton_size=0)
    assert (stage == 0).tolist() == keep


def test_stages_of_real_text_grow_with_the_logarithm_of_its_length(sentences: list[str]) -> None:
    vocabulary = Vocabulary.open("english")
    rows = RowMaker(vocabulary, Frequencies(1, {}), RowSettings())(sentences)
    for row in rows:
        starts = np.flatnonzero(~vocabulary.continues[row.ids])
        longest_word = int(np.diff([*starts, len(row.ids)]).max())
        assert row.stage.max() <= math.ceil(math.log2(len(row.ids))) + 2 + longest_word
