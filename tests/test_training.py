"""Training: batches hold what they should, a step is the step that was meant, and a run survives whatever happens."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import SAMPLE, Run
from hypothesis import given
from hypothesis import strategies as st
from transformers import BertForMaskedLM

from pointer.batches import (
    IGNORED,
    MOST_BEGUN,
    MOST_TAKEN,
    Batches,
    Pairs,
    Place,
    Stages,
    all_pairs,
    collate,
    cut,
    redrawn,
    take,
)
from pointer.errors import DataError, TrainingError, UsageError
from pointer.model import CARD, CURVE, TABLES, InsertionTransformer
from pointer.objective import GapLoss, gap_logits, stage_counts, stage_metrics
from pointer.prepare.corpus import Corpus
from pointer.prepare.shards import Preparation, PreparedData, Rows, prepare
from pointer.prepare.stages import schedule, stage_pairs
from pointer.settings import SCHEDULES, TrainingSettings
from pointer.training import METRICS, STATE, train
from pointer.vocabulary import Vocabulary, shrink, word_counts

ENGLISH = Vocabulary.open("english")
QUICK = TrainingSettings(
    learning_rate=1e-3, steps=12, batch_tokens=512, save_every=4, evaluate_every=8, log_every=1, validation_rows=4
)
EAGER = replace(QUICK, dropout=0.1, skeleton="mixed", begun_share=0.5, taken_share=0.5, schedule="eager")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fifty sentences, prepared with a vocabulary of their own."""
    home = tmp_path_factory.mktemp("prepared")
    lines = SAMPLE.read_text("utf-8").splitlines()[:50]
    (home / "fifty.txt").write_text("\n".join(lines) + "\n")
    small, _ = shrink(ENGLISH, word_counts(lines, ENGLISH), 600)
    small.save(home / "vocabulary")
    prepare(Preparation(Corpus((str(home / "fifty.txt"),)), vocabulary=str(home / "vocabulary")), home / "data")
    return home / "data"


@pytest.fixture(scope="module")
def data(folder: Path) -> PreparedData:
    return PreparedData.open(folder)


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


def texts(rows: Rows) -> list[tuple[list[int], list[int]]]:
    ends = zip(rows.offsets[:-1], rows.offsets[1:], strict=True)
    return [(rows.ids[a:b].tolist(), rows.stage[a:b].tolist()) for a, b in ends]


def unpadded(ids: torch.Tensor, labels: torch.Tensor, attention: torch.Tensor | None) -> list[tuple[Any, Any]]:
    attention = torch.ones_like(ids) if attention is None else attention
    found = zip(ids, labels, attention.bool(), strict=True)
    return [(tuple(i[a].tolist()), tuple(y[a].tolist())) for i, y, a in found]


# ---------------------------------------------------------------------------------------------------------------------
# Batches


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
    many = take(rows, np.arange(40 * len(rows)) % len(rows))
    stages = Stages(), Stages(begun_share=0.5)
    whole, some = (pairs[~pairs.closing] for s in stages for pairs in [all_pairs(many, s, np.random.default_rng(0))])
    assert np.mean(some.begun > 0) == pytest.approx(0.5, abs=0.05)
    assert some.gaps / whole.gaps == pytest.approx(1 - 0.5 * MOST_BEGUN / 2, abs=0.06)


@given(random_rows(), st.integers(0, 99))
def test_what_is_taken_out_of_a_finished_text_is_what_its_gaps_lack(rows: Rows, seed: int) -> None:
    stages = Stages(begun_share=0.5, taken_share=1.0, seed=seed)
    rows, steps = Batches(rows, ENGLISH, stages, 10**6).plan(0, 0)
    [[pairs]] = steps
    assert (pairs.taken[pairs.closing] > 0).all() and not pairs.taken[~pairs.closing].any()
    batch = collate(rows, pairs, ENGLISH)
    assert (batch.labels != IGNORED).sum(1).tolist() == pairs.labels.tolist()
    for i, (x, labels) in enumerate(unpadded(batch.ids, batch.labels, batch.attention)):
        assert len(x) == pairs.positions[i]
        if pairs.closing[i]:
            ids, stage = texts(rows)[pairs.row[i]]
            filled = [y for token, label in zip(x, labels, strict=True) for y in (token, label)]
            assert [y for y in filled if y not in (IGNORED, ENGLISH.noi)][1:-1] == list(ids)
            lost = Counter(ids) - Counter(x)
            assert not lost - Counter(t for t, born in zip(ids, stage, strict=True) if born > 0), "skeletons stay"
            assert not any(ENGLISH.continues[t] for label, t in zip(labels, x[1:], strict=False) if label in lost), (
                "a word loses its last piece first"
            )


def test_of_finished_texts_every_share_of_the_words_is_taken_out(data: PreparedData) -> None:
    rows = data.load()
    many = take(rows, np.arange(40 * len(rows)) % len(rows))
    plans = [Batches(many, data.vocabulary, Stages(taken_share=share), 10**7).plan(0, 0)[1] for share in (0.0, 0.5)]
    whole, some = (pairs[pairs.closing] for [[pairs]] in plans)
    assert np.mean(some.taken > 0) == pytest.approx(0.5, abs=0.05)
    assert 0.03 < 1 - some.gaps / whole.gaps < 0.5 * MOST_TAKEN / 2


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


def test_padding_is_below_a_tenth_on_natural_text(tmp_path: Path) -> None:
    prepare(Preparation(Corpus((str(SAMPLE),))), tmp_path / "data")
    prepared = PreparedData.open(tmp_path / "data")
    rows = prepared.load()
    many = take(rows, np.arange(20 * len(rows)) % len(rows))
    _, steps = Batches(many, prepared.vocabulary, Stages("mixed"), 1024).plan(0, 0)
    batches = [batch for step in steps for batch in step]
    real = sum(int(batch.positions.sum()) for batch in batches)
    assert real / sum(len(batch) * int(batch.positions.max()) for batch in batches) > 0.9


def test_sampled_closing_pairs_weigh_as_much_as_all(data: PreparedData) -> None:
    rows = data.load()
    many = take(rows, np.arange(40 * len(rows)) % len(rows))
    whole, part = (all_pairs(many, Stages(closing_share=share), np.random.default_rng(0)) for share in (1, 0.25))
    assert part.closing.sum() == pytest.approx(0.25 * whole.closing.sum(), rel=0.1)
    assert part.gaps == pytest.approx(whole.gaps, rel=0.03)
    assert (~part.closing).sum() == (~whole.closing).sum()


def test_the_stream_goes_on_from_any_place(data: PreparedData) -> None:
    def first(place: Place, count: int) -> list[tuple[Any, Place]]:
        stream = Batches(data.load(), data.vocabulary, Stages("mixed", seed=3), 256)(place)
        return [(step.batches[0].row.tolist(), step.after) for step, _ in zip(stream, range(count), strict=False)]

    whole = first(Place(), 60)
    assert whole[-1][1].epoch > 0, "the test must cross an epoch"
    assert first(whole[20][1], 39) == whole[21:]


def test_processes_share_a_step_and_nothing_is_lost(data: PreparedData) -> None:
    rows = data.load()

    def pairs(batches_per_step: int) -> Counter[tuple[int, int]]:
        _, steps = Batches(rows, data.vocabulary, Stages(), 256, batches_per_step).plan(0, 0)
        assert all(len(step) == batches_per_step for step in steps)
        return Counter((int(r), int(k)) for step in steps for b in step for r, k in zip(b.row, b.stage, strict=True))

    assert pairs(1) == pairs(2) == pairs(7)
    with pytest.raises(TrainingError, match="Expected enough texts for 100 batches a step"):
        Batches(take(rows, np.array([0])), data.vocabulary, Stages(), 64, 100).plan(0, 0)


# ---------------------------------------------------------------------------------------------------------------------
# The objective


def test_the_loss_is_the_cross_entropy_of_transformers_logits_at_the_gaps(data: PreparedData, tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = InsertionTransformer.start("tiny", data.vocabulary).eval()
    model.save_pretrained(tmp_path / "model")
    plain = BertForMaskedLM.from_pretrained(tmp_path / "model").eval()
    rows = take(data.load(), np.arange(3))
    pairs = all_pairs(rows, Stages(), np.random.default_rng(0))
    pairs = replace(pairs, weight=np.where(pairs.closing, 4, 1).astype(np.float32))
    expected = 0.0
    noi, start, end = data.vocabulary.noi, data.vocabulary.id("[CLS]"), data.vocabulary.id("[SEP]")
    for ids, stage in texts(rows):
        for x, y in stage_pairs(ids, stage, noi):
            with torch.no_grad():
                logits = plain(torch.tensor([[start, *x.tolist(), end]])).logits[0].double()
            log_probabilities = logits - torch.logsumexp(logits, -1, keepdim=True)
            closing = len(x) == len(ids)
            expected -= sum((4 if closing else 1) * float(log_probabilities[i, label]) for i, label in enumerate(y))
    with torch.no_grad():
        found = float(GapLoss(model)(collate(rows, pairs, data.vocabulary)))
    assert found == pytest.approx(expected, rel=1e-5)


def test_padding_does_not_change_what_a_gap_is_worth(data: PreparedData) -> None:
    model = InsertionTransformer.start("tiny", data.vocabulary).eval()
    rows = data.load()
    pairs: Pairs = all_pairs(rows, Stages(), np.random.default_rng(0))[:12]
    with torch.no_grad():
        together = gap_logits(model, collate(rows, pairs, data.vocabulary))[0]
        alone = [gap_logits(model, collate(rows, pairs[i : i + 1], data.vocabulary))[0] for i in range(len(pairs))]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-5, rtol=1e-5)


# ---------------------------------------------------------------------------------------------------------------------
# Settings, budget, schedule


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rate": -1}, "learning_rate: expected a number from 0 to 1, found -1"),
        ({"skeleton": "bones"}, 'skeleton: expected prepared, importance, keywords, mixed, found "bones"'),
        ({"closing_share": 0}, "closing_share: expected a number from 0.01 to 1, found 0"),
        ({"keywords": (4, 2)}, "keywords: expected two rising numbers"),
        ({"save_every": 15, "log_every": 10}, "log_every: expected a divisor of save_every"),
        ({"keep_every": 15, "log_every": 10}, "log_every: expected a divisor of keep_every"),
        ({"steps": None}, "Expected a budget"),
    ],
)
def test_settings_that_cannot_be_name_their_field(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("(", r"\(")):
        TrainingSettings(**{"steps": 1} | changes)


def test_the_first_budget_used_up_counts_and_the_rate_follows_it() -> None:
    settings = TrainingSettings(learning_rate=1.0, decay="linear", warmup_steps=4, steps=100, minutes=10)
    assert settings.used(step=50, tokens=0, epochs=0, seconds=60) == 0.5
    assert settings.used(step=50, tokens=0, epochs=0, seconds=540) == 0.9
    assert settings.rate(0, 0.0, 4) == pytest.approx(0.2)
    assert settings.rate(50, 0.5, 4) == pytest.approx(0.5)
    assert settings.rate(99, 1.0, 4) == 0
    assert settings.rate(1, 0.1, 1000) == pytest.approx(0.9), "warm-up takes at most a tenth of the budget"


def test_the_paper_preset_is_plain_adam_at_a_constant_rate() -> None:
    paper = TrainingSettings.preset("paper")
    assert {paper.rate(step, used, paper.warmup_steps) for step, used in ((0, 0.0), (10**5, 0.9))} == {3e-5}
    assert paper.weight_decay == 0 and paper.clip is None and paper.patience is not None
    assert TrainingSettings.preset("paper", steps=5).epochs is None, "a budget of one's own replaces the preset's"


# ---------------------------------------------------------------------------------------------------------------------
# Runs


def log(out: Path) -> list[dict[str, Any]]:
    """What was logged, without what depends on the clock."""
    lines = [json.loads(line) for line in (out / METRICS).read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in ("seconds", "tokens_per_second")} for line in lines]


@pytest.fixture(scope="module")
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run from start to end, not interrupted."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    train(folder, out, EAGER, init="tiny", show=False)
    return out


def test_a_run_leaves_checkpoints_that_explain_themselves(run: Path, data: PreparedData) -> None:
    for name in ("best", "last"):
        assert {CARD, CURVE, *TABLES, "config.json", "tokenizer.json"} <= {p.name for p in (run / name).iterdir()}
    assert (run / "best" / "model.safetensors").stat().st_mode & 0o444 == 0o444
    assert (run / "last" / STATE).exists() and not (run / "best" / STATE).exists()
    assert list((run / "tensorboard").iterdir())
    model = InsertionTransformer.from_pretrained(run)
    assert model.config.pointer["vocabulary"] == data.vocabulary.fingerprint
    assert model.config.pointer["rounds"] == 2  # it was trained on begun stages
    assert model.config.pointer["revisions"] == 1  # and on finished ones with words taken out
    assert model.config.pointer["schedule"] == "eager"
    card = (run / "last" / CARD).read_text()
    assert "12 steps" in card and "| learning_rate | 0.001 |" in card and "| closing |" in card


def test_validation_measures_insertions_and_no_insertions_per_stage(run: Path) -> None:
    found = [line["validation"] for line in log(run) if "validation" in line][-1]
    assert set(found["stages"]) >= {"1", "2"}
    assert found["closing"]["accuracy"] is None, "a closing pair inserts nothing"
    assert 0 <= found["noi_recall"] <= 1 and found["perplexity"] > 1


def test_validation_writes_a_few_texts_to_read(run: Path) -> None:
    samples = [line["samples"] for line in log(run) if "validation" in line][-1]
    assert samples and all(word in s["text"].lower() for s in samples for word in s["constraints"])
    assert samples[0]["text"] in (run / "last" / CARD).read_text()


def test_validation_counts_are_right(data: PreparedData) -> None:
    model = InsertionTransformer.start("tiny", data.vocabulary).eval()
    with torch.no_grad():  # a model that always says [NOI]
        model.cls.predictions.bias[data.vocabulary.noi] = 100.0
    rows = data.load()
    pairs = all_pairs(rows, Stages(), np.random.default_rng(0))
    stages = int(rows.stage.max()) + 1
    batches = [collate(rows, batch, data.vocabulary) for batch in cut(pairs, 512, np.random.default_rng(0))]
    found = stage_metrics(stage_counts(model, batches, data.vocabulary.noi, stages))
    inserted = int((rows.stage > 0).sum())
    assert found["accuracy"] == 0 and found["noi_recall"] == 1
    assert found["noi_precision"] == pytest.approx(1 - inserted / pairs.gaps, abs=1e-6)
    assert found["stages"]["1"]["noi_precision"] < 1 == found["closing"]["noi_precision"]


PROGRAM = """
import sys, os
from dataclasses import replace
sys.path.insert(0, {tests!r})
from test_training import QUICK, train
train({data!r}, {out!r}, replace(QUICK, {changes}), init="tiny", show=False)
"""


def program(data: Path, out: Path, changes: str) -> str:
    return PROGRAM.format(tests=str(Path(__file__).parent), data=str(data), out=str(out), changes=changes)


def test_a_killed_run_continues_as_if_nothing_had_happened(run: Path, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    code = program(folder, out, "dropout=0.1, skeleton='mixed', begun_share=0.5, taken_share=0.5, schedule='eager'")
    environment = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    running = subprocess.Popen([sys.executable, "-c", code], env=environment)
    while not (out / METRICS).exists() or len((out / METRICS).read_text().splitlines()) < 7:
        assert running.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    running.wait()
    for name in ("best", "step-8"):
        (out / f".{name}.1.partial").mkdir()  # as if it had been killed while saving
    train(folder, out, EAGER, init="tiny", show=False)
    assert log(out) == log(run)
    assert not list(out.glob(".*"))


def test_checkpoints_on_the_way_stay_if_they_are_asked_for(folder: Path, tmp_path: Path) -> None:
    train(folder, tmp_path / "run", replace(QUICK, keep_every=5, half=True), init="tiny", show=False)
    kept = [tmp_path / "run" / f"step-{step}" for step in (5, 10)]
    assert sorted((tmp_path / "run").glob("step-*")) == sorted(kept)
    lines = {line["step"]: line["tokens"] for line in log(tmp_path / "run")}
    seen = [InsertionTransformer.from_pretrained(path).config.pointer["tokens_seen"] for path in kept]
    assert seen == [lines[5], lines[10]]
    assert all(not (path / STATE).exists() for path in kept)
    sizes = [(path / "model.safetensors").stat().st_size for path in (kept[0], tmp_path / "run" / "last")]
    assert sizes[0] < 0.6 * sizes[1], "they are stored in half precision, what is continued is not"


def test_a_finished_run_is_not_run_again_but_can_be_given_more(folder: Path, tmp_path: Path) -> None:
    first = train(folder, tmp_path / "run", QUICK, init="tiny", show=False)
    again = train(folder, tmp_path / "run", QUICK, init="tiny", show=False)
    assert again.step == first.step == 12 and again.validation == first.validation
    more = train(folder, tmp_path / "run", replace(QUICK, steps=16), init="tiny", show=False)
    assert more.step == 16 and more.tokens > first.tokens


def test_weights_alone_continue_with_a_fresh_optimizer_and_add_up_tokens(folder: Path, tmp_path: Path) -> None:
    first = train(folder, tmp_path / "run", QUICK, init="tiny", show=False)
    (tmp_path / "run" / "last" / STATE).unlink()
    second = train(folder, tmp_path / "run", replace(QUICK, seed=1), init="tiny", show=False)
    seen = InsertionTransformer.from_pretrained(tmp_path / "run" / "last").config.pointer["tokens_seen"]
    assert seen == first.tokens + second.tokens
    rates = [line["learning_rate"] for line in log(tmp_path / "run") if "learning_rate" in line]
    assert rates[-12] < 1e-3, "a short warm-up, though the settings have none"


def test_another_setting_or_number_of_processes_is_refused(run: Path, folder: Path) -> None:
    with pytest.raises(TrainingError, match=r"found another learning_rate \(was 0.001, is 0.002\)"):
        train(folder, run, replace(EAGER, learning_rate=0.002), init="tiny", show=False)
    state = torch.load(run / "last" / STATE, weights_only=True)
    original = (run / "last" / STATE).read_bytes()
    identity = json.loads(state["identity"]) | {"number of processes": 2}
    torch.save(state | {"identity": json.dumps(identity)}, run / "last" / STATE)
    try:
        with pytest.raises(TrainingError, match=r"found another number of processes \(was 2, is 1\)"):
            train(folder, run, EAGER, init="tiny", show=False)
    finally:
        (run / "last" / STATE).write_bytes(original)


def test_two_processes_make_the_step_that_one_makes_on_the_joint_batch(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(program(folder, tmp_path / "two", "steps=2, dropout=0.0"))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run([*launch, "two.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    train(folder, tmp_path / "one", replace(QUICK, steps=2, dropout=0.0, accumulate=2), init="tiny", show=False)
    one, two = (torch.load(tmp_path / name / "last" / STATE, weights_only=True) for name in ("one", "two"))
    for mine, theirs in zip(one["optimizer"]["state"].values(), two["optimizer"]["state"].values(), strict=True):
        torch.testing.assert_close(mine["exp_avg"], theirs["exp_avg"], atol=1e-5, rtol=0)
    assert [line["loss"] for line in log(tmp_path / "one") if "loss" in line] == pytest.approx(
        [line["loss"] for line in log(tmp_path / "two") if "loss" in line], abs=1e-5
    )
    models = [InsertionTransformer.from_pretrained(tmp_path / name / "last").state_dict() for name in ("one", "two")]
    for name, weight in models[0].items():
        torch.testing.assert_close(weight, models[1][name], atol=1e-5, rtol=0)


def test_accumulated_batches_make_the_step_of_one_large_batch(folder: Path, tmp_path: Path) -> None:
    for name, size, count in (("large", 100_000, 1), ("small", 512, 20)):
        settings = replace(QUICK, steps=1, dropout=0.0, batch_tokens=size, accumulate=count)
        train(folder, tmp_path / name, settings, init="tiny", show=False)
    large, small = (log(tmp_path / name)[0]["loss"] for name in ("large", "small"))
    assert large == pytest.approx(small, abs=1e-5)


def test_training_stops_when_the_validation_loss_stops_falling(folder: Path, tmp_path: Path) -> None:
    settings = replace(QUICK, learning_rate=0.0, steps=100, evaluate_every=2, save_every=2, patience=2)
    outcome = train(folder, tmp_path / "run", settings, init="tiny", show=False)
    assert outcome.reason == "the validation loss stopped falling" and outcome.step == 6
    assert train(folder, tmp_path / "run", settings, init="tiny", show=False).step == 6


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_last_good_checkpoint(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward, calls = GapLoss.forward, iter(range(1000))
    monkeypatch.setattr(
        GapLoss, "forward", lambda self, batch: forward(self, batch) * (math.nan if next(calls) == 5 else 1)
    )
    with pytest.raises(TrainingError, match=r"found nan at step 6; the last good checkpoint is in .*last"):
        train(folder, tmp_path / "run", QUICK, init="tiny", show=False)
    kept = InsertionTransformer.from_pretrained(tmp_path / "run" / "last")
    assert all(bool(weight.isfinite().all()) for weight in kept.state_dict().values())
    assert torch.load(tmp_path / "run" / "last" / STATE, weights_only=True)["progress"]["step"] == 4


def test_a_new_output_layer_expects_tokens_as_often_as_they_are_labels(run: Path, data: PreparedData) -> None:
    assert log(run)[0]["loss"] < 0.75 * math.log(len(data.vocabulary)), "far better than guessing, before any training"


def test_fine_tuning_starts_from_the_best_of_an_earlier_run(run: Path, folder: Path, tmp_path: Path) -> None:
    train(folder, tmp_path / "tuned", replace(QUICK, steps=1, learning_rate=0.0), init=str(run), show=False)
    before, after = (InsertionTransformer.from_pretrained(path) for path in (run, tmp_path / "tuned"))
    torch.testing.assert_close(before.state_dict(), after.state_dict())
    assert after.config.pointer["tokens_seen"] > before.config.pointer["tokens_seen"] > 0


def test_bad_data_gets_a_sentence_before_anything_is_trained(folder: Path, tmp_path: Path) -> None:
    def broken(name: str) -> Path:
        return Path(shutil.copytree(folder, tmp_path / name))

    def attempt(data: Path, **changes: Any) -> None:
        train(data, tmp_path / "out", replace(QUICK, **changes), init="tiny", show=False)

    with pytest.raises(DataError, match=r"Expected prepared data with a manifest.json"):
        attempt(tmp_path)
    with (broken("bytes") / "shard-00000.parquet").open("ab") as shard:
        shard.write(b"x")
    with pytest.raises(DataError, match="to have the hash in the manifest, found another"):
        attempt(tmp_path / "bytes")
    ENGLISH.save(broken("vocabulary"))
    with pytest.raises(DataError, match="Expected the vocabulary of the manifest"):
        attempt(tmp_path / "vocabulary")
    with pytest.raises(TrainingError, match="Expected texts of at most 8 tokens"):
        attempt(folder, positions=8)
    (tmp_path / "few.txt").write_text("A boat.\nA gate.\n")
    prepare(Preparation(Corpus((str(tmp_path / "few.txt"),))), tmp_path / "few")
    with pytest.raises(TrainingError, match="Expected at least 10 texts"):
        attempt(tmp_path / "few")
    with pytest.raises(TrainingError, match="Expected validation data of the same vocabulary"):
        train(folder, tmp_path / "out", QUICK, init="tiny", validation=tmp_path / "few", show=False)


# ---------------------------------------------------------------------------------------------------------------------
# It learns


def inserted(model: InsertionTransformer, tokens: list[int], most_stages: int = 12) -> list[int]:
    """Greedy insertion into every gap, stage by stage, until nothing is inserted any more."""
    vocabulary = model.vocabulary
    assert vocabulary is not None
    for _ in range(most_stages):
        ids = torch.tensor([[vocabulary.id("[CLS]"), *tokens, vocabulary.id("[SEP]")]])
        with torch.no_grad():
            answers = model(ids).logits[0, :-1].argmax(-1).tolist()
        if all(answer == vocabulary.noi for answer in answers) or len(tokens) > 100:
            break
        filled = zip([ids[0, 0].item(), *tokens], answers, strict=True)
        tokens = [t for pair in filled for t in pair if t not in (vocabulary.noi, ids[0, 0].item())]
    return tokens


def test_a_tiny_model_learns_fifty_sentences_and_rebuilds_them_from_their_skeletons(
    folder: Path, data: PreparedData, tmp_path: Path
) -> None:
    settings = TrainingSettings(
        learning_rate=2e-3, warmup_steps=50, decay="linear", clip=1.0, dropout=0.0, batch_tokens=512, epochs=170,
        evaluate_every=10_000, save_every=10_000, log_every=50,
    )  # fmt: skip
    train(folder, tmp_path / "run", settings, init="tiny", validation=folder, show=False)
    model = InsertionTransformer.from_pretrained(tmp_path / "run").eval()
    rebuilt = [inserted(model, [t for t, k in zip(*text, strict=True) if k == 0]) for text in texts(data.load())]
    assert sum(found == text[0] for found, text in zip(rebuilt, texts(data.load()), strict=True)) >= 48


# ---------------------------------------------------------------------------------------------------------------------
# The command line


def test_your_own_domain_from_the_command_line(pointer: Run, run: Path, tmp_path: Path) -> None:
    assert pointer("prepare", SAMPLE, "--out", "data").returncode == 0
    command = ["train", "data", "--init", run, "--out", "mine", "--minutes", "0.05", "--batch-tokens", "256"]
    done = pointer(*command, "--json")
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["reason"] == "the budget is used up" and outcome["validation"]["loss"] > 0
    assert "of positions are real tokens" in done.stderr
    assert InsertionTransformer.from_pretrained(tmp_path / "mine").config.vocab_size == len(ENGLISH)
    written = pointer("generate", "--model", "mine", "harbour; rain").stdout.lower()
    assert "harbour" in written and "rain" in written
    refused = pointer(*command, "--learning-rate", "0.9")
    assert refused.returncode == 1 and "found another learning_rate" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_wrong_call_of_train_is_exit_code_two(pointer: Run) -> None:
    done = pointer("train", "data", "--init", "tiny", "--out", "x", "--preset", "huge")
    assert done.returncode == 2 and 'preset: expected paper, small, found "huge"' in done.stderr
    done = pointer("train", "data", "--init", "tiny", "--out", "x")
    assert done.returncode == 2 and "Expected a budget" in done.stderr


def test_converting_from_the_command_line(pointer: Run, tmp_path: Path) -> None:
    released = Path(__file__).parent / "golden" / "released-tiny"
    done = pointer("convert", released, "ours")
    assert done.returncode == 0 and "2,971 vocabulary entries" in done.stdout
    failed = pointer("convert", tmp_path, "other")
    assert failed.returncode == 1 and "Expected a released POINTER checkpoint" in failed.stderr


def test_recipes_use_only_options_that_exist() -> None:
    import typer

    from pointer.cli import app

    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for recipe in (Path(__file__).parent.parent / "recipes").glob("paper_*.sh"):
        text = recipe.read_text().replace("\\\n", " ")
        for command in ("prepare", "train"):
            known = {option for parameter in commands[command].params for option in parameter.opts}
            for line in text.splitlines():
                used = line.split(f"pointer {command} ", 1)[1] if f"pointer {command} " in line else ""
                assert {word for word in used.split() if word.startswith("--")} <= known


def test_training_leaves_small_numbers_as_they_were() -> None:
    """Numbers below the normal range count as zero only while a model is trained."""
    from pointer.training import denormals_as_zero

    tiny = torch.tensor([1e-310], dtype=torch.float64)
    with denormals_as_zero():
        flushed = bool((tiny * 1.5 == 0).item())
    assert bool((tiny * 1.5 > 0).item())
    assert flushed == torch.set_flush_denormal(True)  # whether this processor can do it at all
    torch.set_flush_denormal(False)
