"""Batches hold what they should, and nothing depends on where in the stream a run begins."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import SAMPLE
from hypothesis import given
from hypothesis import strategies as st
from prepared import prepared_folder
from stage_rows import texts

from pointer.errors import DataError, TrainingError
from pointer.prepare import shards
from pointer.prepare.corpus import Corpus
from pointer.prepare.shards import Preparation, PreparedData, Rows, prepare
from pointer.prepare.stages import schedule, stage_pairs
from pointer.training.batches import IGNORED, Place
from pointer.training.pairs import (
    MOST_BEGUN,
    StageBatches,
    all_pairs,
    collate,
    cut,
    redrawn,
)
from pointer.training.settings import SCHEDULES, Stages
from pointer.vocabulary import Vocabulary

ENGLISH = Vocabulary.open("english")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    return PreparedData.open(prepared_folder(tmp_path_factory.mktemp("prepared"), 50))


@st.composite
def random_rows(draw: st.DrawFn) -> Rows:
    """Rows with true schedules over arbitrary importance and words of several pieces."""
    lengths = draw(st.lists(st.integers(1, 12), min_size=1, max_size=5))
    random = np.random.default_rng(draw(st.integers(0, 10_000)))
    ids = [np.array([ENGLISH.id("the"), *random.integers(5, len(ENGLISH), n - 1)]) for n in lengths]
    importance = [random.integers(0, 4, n) / 2 for n in lengths]
    stage = schedule(importance, [ENGLISH.continues[row] for row in ids], [row == 1 for row in ids])
    rank = random.integers(0, 6, sum(lengths)).astype(np.uint8)
    flat = [np.concatenate(column) for column in (ids, stage, importance)]
    return Rows(flat[0].astype(np.int32), flat[1], flat[2].astype(np.float32), rank, np.cumsum([0, *lengths]))


def unpadded(ids: torch.Tensor, labels: torch.Tensor, attention: torch.Tensor | None) -> list[tuple[Any, Any]]:
    attention = torch.ones_like(ids) if attention is None else attention
    found = zip(ids, labels, attention.bool(), strict=True)
    return [(tuple(i[a].tolist()), tuple(y[a].tolist())) for i, y, a in found]


@given(random_rows(), st.integers(16, 200))
def test_batches_hold_every_stage_pair_exactly_once(rows: Rows, batch_tokens: int) -> None:
    start, end = ENGLISH.id("[CLS]"), ENGLISH.id("[SEP]")
    expected = Counter(
        ((start, *x.tolist(), end), (*y.tolist(), IGNORED))
        for ids, stage in texts(rows)
        for x, y in stage_pairs(ids, stage, ENGLISH.noi)
    )
    found: Counter[Any] = Counter()
    random = np.random.default_rng(0)
    for pairs in cut(all_pairs(rows, Stages(), random), batch_tokens, random):
        batch = collate(rows, pairs, ENGLISH)
        assert batch.ids.numel() <= batch_tokens or len(pairs) == 1
        assert (batch.labels != IGNORED).sum() == pairs.gaps
        found.update(unpadded(batch.ids, batch.labels, batch.attention))
    assert found == expected


@given(random_rows(), st.integers(0, 99))
def test_a_begun_stage_and_its_labels_make_the_whole_stage(rows: Rows, seed: int) -> None:
    pairs = all_pairs(rows, Stages(begun_share=1.0), np.random.default_rng(seed))
    assert (pairs.begun[~pairs.closing] > 0).all() and not pairs.begun[pairs.closing].any()
    batch = collate(rows, pairs, ENGLISH)
    assert (batch.labels != IGNORED).sum(1).tolist() == pairs.labels.tolist()
    for i, (x, labels) in enumerate(unpadded(batch.ids, batch.labels, batch.attention)):
        ids, stage = texts(rows)[pairs.row[i]]
        before, after = ([t for t, born in zip(ids, stage, strict=True) if born <= pairs.stage[i] - k] for k in (1, 0))
        filled = [y for token, label in zip(x, labels, strict=True) for y in (token, label)]
        assert [y for y in filled if y not in (IGNORED, ENGLISH.noi)][1:-1] == after
        assert len(x) == pairs.positions[i] and len(before) <= len(x) - 2 <= len(after)
        # what has a label is a gap of the stage before: nothing was put in there
        asked = [(x[j], x[j + 1]) for j, label in enumerate(labels) if label != IGNORED]
        framed = [ENGLISH.id("[CLS]"), *before, ENGLISH.id("[SEP]")]
        assert not Counter(asked) - Counter(pairwise(framed))


def test_of_begun_stages_every_share_of_the_gaps_is_decided(data: PreparedData) -> None:
    rows = data.load()
    many = rows.take(np.arange(40 * len(rows)) % len(rows))
    stages = Stages(), Stages(begun_share=0.5)
    whole, some = (pairs[~pairs.closing] for s in stages for pairs in [all_pairs(many, s, np.random.default_rng(0))])
    assert np.mean(some.begun > 0) == pytest.approx(0.5, abs=0.05)
    assert some.gaps / whole.gaps == pytest.approx(1 - 0.5 * MOST_BEGUN / 2, abs=0.06)


@given(random_rows(), st.sampled_from(["importance", "keywords", "mixed"]), st.sampled_from(SCHEDULES))
def test_redrawn_stages_rebuild_the_text_and_never_cut_a_word(rows: Rows, skeleton: str, schedule: str) -> None:
    stages = Stages(skeleton, keywords=(1, 3), schedule=schedule)
    new = redrawn(rows, ENGLISH, stages, np.random.default_rng(0))
    for (ids, stage), (_, before) in zip(texts(new), texts(rows), strict=True):
        assert len(stage) == len(before)
        pairs = list(stage_pairs(ids, stage, ENGLISH.noi))
        assert sum(int((labels != ENGLISH.noi).sum()) for _, labels in pairs) == sum(k > 0 for k in stage)
        pieces = [i for i in range(1, len(ids)) if ENGLISH.continues[ids[i]]]
        assert all(stage[i] >= stage[i - 1] for i in pieces), "a word is born head first"


def test_a_keywords_skeleton_is_the_drawn_words_and_what_cannot_be_spelt(data: PreparedData) -> None:
    rows = data.load()
    ids = rows.ids.copy()
    ids[rows.offsets[0]] = data.vocabulary.id("[UNK]")
    rows = replace(rows, ids=ids)
    new = redrawn(rows, data.vocabulary, Stages("keywords", keywords=(3, 3)), np.random.default_rng(0))
    for i in range(len(rows)):
        part = slice(rows.offsets[i], rows.offsets[i + 1])
        alive = new.stage[part] == 0
        unknown = ids[part] == data.vocabulary.id("[UNK]")
        words = alive & ~data.vocabulary.continues[ids[part]] & ~unknown
        assert words.sum() <= 3 and alive[unknown].all()
        assert (rows.rank[part][words] > 0).all() and (rows.rank[part][words] <= 5).all()


@given(random_rows(), st.integers(0, 99))
def test_a_drawn_skeleton_is_what_the_dynamic_programme_would_leave(rows: Rows, seed: int) -> None:
    stages = Stages("mixed", keywords=(1, 3))
    solved, *known = (
        redrawn(rows, ENGLISH, replace(stages, schedule=schedule), np.random.default_rng(seed))
        for schedule in SCHEDULES
    )
    assert all(((solved.stage == 0) == (one.stage == 0)).all() for one in known)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_prepared_skeleton_is_the_one_that_would_be_found_again(data: PreparedData, schedule: str) -> None:
    rows = data.load()
    stages = Stages("mixed", schedule=schedule)
    found, known = (
        redrawn(rows, data.vocabulary, stages, np.random.default_rng(0), by_importance)
        for by_importance in (False, True)
    )
    assert found.stage.tolist() == known.stage.tolist()


def test_padding_is_below_a_tenth_on_natural_text(tmp_path: Path) -> None:
    prepare(Preparation(Corpus((str(SAMPLE),))), tmp_path / "data")
    prepared = PreparedData.open(tmp_path / "data")
    rows = prepared.load()
    many = rows.take(np.arange(20 * len(rows)) % len(rows))
    _, steps = StageBatches(many, prepared.vocabulary, Stages("mixed"), 1024).plan(0, 0)
    batches = [batch for step in steps for batch in step]
    real = sum(int(batch.positions.sum()) for batch in batches)
    assert real / sum(len(batch) * int(batch.positions.max()) for batch in batches) > 0.9


def test_sampled_closing_pairs_weigh_as_much_as_all(data: PreparedData) -> None:
    rows = data.load()
    many = rows.take(np.arange(40 * len(rows)) % len(rows))
    whole, part = (all_pairs(many, Stages(closing_share=share), np.random.default_rng(0)) for share in (1, 0.25))
    assert part.closing.sum() == pytest.approx(0.25 * whole.closing.sum(), rel=0.1)
    assert part.gaps == pytest.approx(whole.gaps, rel=0.03)
    assert (~part.closing).sum() == (~whole.closing).sum()


def test_the_stream_goes_on_from_any_place(data: PreparedData) -> None:
    def first(place: Place, count: int) -> list[tuple[Any, Place]]:
        stream = StageBatches(data.load(), data.vocabulary, Stages("mixed", seed=3), 256)(place)
        return [(step.batches[0].row.tolist(), step.after) for step, _ in zip(stream, range(count), strict=False)]

    whole = first(Place(), 60)
    assert whole[-1][1].epoch > 0, "the test must cross an epoch"
    assert first(whole[20][1], 39) == whole[21:]


def test_processes_share_a_step_and_nothing_is_lost(data: PreparedData) -> None:
    rows = data.load()

    def pairs(batches_per_step: int) -> Counter[tuple[int, int]]:
        _, steps = StageBatches(rows, data.vocabulary, Stages(), 256, batches_per_step).plan(0, 0)
        assert all(len(step) == batches_per_step for step in steps)
        return Counter((int(r), int(k)) for step in steps for b in step for r, k in zip(b.row, b.stage, strict=True))

    assert pairs(1) == pairs(2) == pairs(7)
    with pytest.raises(TrainingError, match="Expected enough texts for 100 batches a step"):
        StageBatches(rows.take(np.array([0])), data.vocabulary, Stages(), 64, 100).plan(0, 0)


@pytest.fixture(scope="module")
def many_shards(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    home = tmp_path_factory.mktemp("shards")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "CHUNK_LINES", 4)
        prepare(Preparation(Corpus((str(SAMPLE),))), home / "data")
    return PreparedData.open(home / "data")


def test_streamed_rows_are_the_rows(many_shards: PreparedData) -> None:
    loaded, streamed = many_shards.load(), many_shards.stream()
    which = np.random.default_rng(0).integers(0, len(loaded), 60)
    for name in ("ids", "stage", "importance", "rank", "offsets"):
        assert np.array_equal(getattr(streamed.take(which), name), getattr(loaded.take(which), name))


def test_an_epoch_of_streamed_rows_has_each_once_from_a_few_shards_at_a_time(
    many_shards: PreparedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "MIXED_SHARDS", 3)
    streamed = many_shards.stream()
    size, count = len(streamed), 10
    parts = [streamed.numbers(7, 1, start, min(size, start + count)) for start in range(0, size, count)]
    assert sorted(np.concatenate(parts).tolist()) == [*range(size)]
    assert np.array_equal(np.concatenate(parts), streamed.numbers(7, 1, 0, size))  # wherever a run begins
    assert not np.array_equal(streamed.numbers(7, 1, 0, size), streamed.numbers(7, 2, 0, size))
    held = streamed.starts
    groups = [{*np.searchsorted(held, part, side="right").tolist()} for part in parts]
    assert max(map(len, groups)) <= 6 and streamed.shard.cache_info().maxsize == 6  # so they are all in memory


def test_a_streamed_shard_that_was_changed_is_refused(many_shards: PreparedData) -> None:
    streamed = many_shards.stream()
    path = many_shards.folder / streamed.shards[0]["file"]
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"?")
    try:
        with pytest.raises(DataError, match="to have the hash in the manifest, found another"):
            streamed.take(np.array([0]))
    finally:
        path.write_bytes(content)
