"""The systems in the training loop: they learn, say what they did, and survive whatever happens."""

import json
import math
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from prepared import prepared_folder
from safetensors.torch import save_model
from torch import nn

from pointer.baselines import SYSTEMS, checkpoint, open_system, train_system
from pointer.baselines.checkpoint import open_checkpoint
from pointer.baselines.training import SystemRun, TextBatch, TextBatches, Trainee, padded
from pointer.checkpoint import CURVE, TABLES
from pointer.errors import CheckpointError, DataError, TrainingError, UsageError
from pointer.model import InsertionTransformer
from pointer.training.data import TrainingData
from pointer.training.loop import Outcome
from pointer.training.settings import BaselineSettings
from pointer.vocabulary import Vocabulary

QUICK = BaselineSettings(
    learning_rate=0.01, warmup_steps=2, steps=12, batch_tokens=256, save_every=2, evaluate_every=4, log_every=2,
    validation_rows=5,
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared_folder(tmp_path_factory.mktemp("prepared"), 50)


@pytest.fixture(scope="module")
def data(folder: Path) -> TrainingData:
    return TrainingData.open(folder, None, QUICK)


class Frequencies(nn.Module):
    """The smallest model there is: how often each token stands anywhere; with dropout, so that draws matter."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.randn(size) * 0.1)

    def forward(self, labels: torch.Tensor) -> torch.Tensor:
        logits = nn.functional.dropout(self.logits, 0.2, self.training)
        return nn.functional.cross_entropy(logits.expand(len(labels), -1), labels, reduction="sum")


def objective(model: Frequencies, batch: TextBatch) -> torch.Tensor:
    """In training the loss of the drawn keywords counts twice, so that the draws of a batch matter too."""
    chosen = [ids[keys] for ids, keys in zip(batch.sequences(), batch.keywords(1, 7), strict=True)]
    labels = torch.from_numpy(np.concatenate([*batch.sequences(), *(chosen if model.training else [])]))
    found: torch.Tensor = model(labels)
    return found


def predictions(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return lengths


def trainee(data: TrainingData, objective: Any = objective) -> Trainee[Frequencies]:
    size = len(data.vocabulary)
    return Trainee(
        "frequencies", {"size": size}, lambda: Frequencies(size), objective, predictions, "How often each token comes."
    )


def fit(trainee: Trainee[Frequencies], data: TrainingData, out: Path, settings: BaselineSettings) -> Outcome:
    return SystemRun(trainee, data, out, settings, show=False)()


def run(folder: Path, out: Path, settings: BaselineSettings = QUICK, objective: Any = objective) -> Outcome:
    data = TrainingData.open(folder, None, settings)
    return fit(trainee(data, objective), data, out, settings)


def log(out: Path) -> list[dict[str, Any]]:
    """What was logged, without what depends on the clock."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in ("seconds", "tokens_per_second")} for line in lines]


@pytest.fixture(scope="module")
def whole(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run from start to end, not interrupted."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    run(folder, out)
    return out


# ---------------------------------------------------------------------------------------------------------------------
# Settings and data


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rate": -1}, "learning_rate: expected a number from 0 to 1, found -1"),
        ({"keywords": (4, 2)}, "keywords: expected two rising numbers"),
        ({"seed": -1}, "seed: expected a number of at least 0, found -1"),
        ({"evaluate_every": 5}, "log_every: expected a divisor"),
        ({"steps": None}, "Expected a budget"),
    ],
)
def test_settings_that_cannot_be_name_their_field(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        replace(QUICK, **changes)
    with pytest.raises(TypeError, match="skeleton"):
        BaselineSettings(steps=1, skeleton="mixed")  # type: ignore[call-arg]  # what means nothing here is not there


def test_every_text_comes_once_an_epoch_in_batches_within_the_budget_of_tokens(data: TrainingData) -> None:
    rows, steps = TextBatches(data.texts, predictions, QUICK).plan(0, 0)
    assert sorted(int(row) for [batch] in steps for row in batch.row) == list(range(len(data.texts)))
    lengths = np.diff(rows.offsets) + 2
    assert all((batch.positions == lengths[batch.row]).all() for [batch] in steps)
    assert sum(batch.gaps for [batch] in steps) == predictions(lengths - 2).sum()
    assert all(len(batch) * batch.positions.max() <= QUICK.batch_tokens or len(batch) == 1 for [batch] in steps)
    again, other = (TextBatches(data.texts, predictions, QUICK).plan(epoch, 0)[0].ids.tolist() for epoch in (0, 1))
    assert again == rows.ids.tolist() != other


def test_a_batch_draws_whole_keywords_by_rank_and_anew_for_another_seed(data: TrainingData) -> None:
    def drawn(seed: int) -> list[list[bool]]:
        random = np.random.default_rng(seed)
        batch = TextBatch(data.texts, data.vocabulary, random, 0.0, torch.device("cpu"))
        for ids, keys, rank in zip(
            batch.sequences(), chosen := batch.keywords(2, 4), np.split(data.texts.rank, data.texts.offsets[1:-1]),
            strict=True,
        ):  # fmt: skip
            heads = ~data.vocabulary.continues[ids]
            assert (keys & heads).sum() <= 4 and (rank[keys] > 0).all() and (rank[keys] <= 4 + 2).all()
            assert (keys[1:] == keys[:-1])[~heads[1:]].all(), "a keyword has all its pieces"
        return [keys.tolist() for keys in chosen]

    assert drawn(0) == drawn(0) != drawn(1)


def test_sequences_are_padded_after_their_end() -> None:
    found = padded([np.array([1]), np.array([2, 3, 4]), np.array([], np.int64)], 9, torch.device("cpu"))
    assert found.tolist() == [[1, 9, 9], [2, 3, 4], [9, 9, 9]]


# ---------------------------------------------------------------------------------------------------------------------
# Runs


def test_a_run_leaves_checkpoints_that_explain_themselves(whole: Path, data: TrainingData) -> None:
    expected = {
        "README.md",
        CURVE,
        *TABLES,
        "config.json",
        "manifest.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert {path.name for path in (whole / "best").iterdir()} == expected
    assert {path.name for path in (whole / "last").iterdir()} == expected | {"training.pt"}
    config = json.loads((whole / "last" / "config.json").read_text())
    assert config["system"] == "frequencies" and config["sizes"] == {"size": len(data.vocabulary)}
    assert config["tokens_seen"] == log(whole)[-1]["tokens"] > 0 and "torch" in config["versions"]
    card = (whole / "last" / "README.md").read_text()
    assert "How often each token comes." in card and "| learning_rate | 0.01 |" in card and "12 steps" in card


def test_it_learns_and_keeps_the_best(whole: Path, data: TrainingData) -> None:
    validations = [line["validation"]["loss"] for line in log(whole) if "validation" in line]
    assert validations == sorted(validations, reverse=True) and len(validations) == 3
    checkpoint = open_checkpoint("frequencies", whole)
    model = Frequencies(checkpoint.config["sizes"]["size"]).eval()
    checkpoint.load_into(model)
    the = data.vocabulary.id("the")
    assert model.logits[the] > model.logits.mean(), "the most frequent word is more likely than others"
    assert checkpoint.folder.name == "best" and checkpoint.casing.keys() == {"words", "pairs"}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dying_objective(model: Frequencies, batch: TextBatch, calls: Iterator[int] = iter(range(1000))) -> torch.Tensor:  # noqa: B008
    if model.training and next(calls) == 7:  # between two checkpoints
        die()
    return objective(model, batch)


def dying_save(model: nn.Module, path: str, calls: Iterator[int] = iter(range(1000)), **kwargs: Any) -> None:  # noqa: B008
    save_model(model, path, **kwargs)
    if ".last" in path and next(calls) == 1:  # in the middle of writing the second checkpoint
        Path(path).write_bytes(Path(path).read_bytes()[:100])
        die()


@pytest.mark.parametrize("when", ["in a step", "while saving"])
def test_a_run_that_is_killed_goes_on_to_the_same_weights(
    when: str, whole: Path, folder: Path, data: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "killed"
    child = os.fork()  # what a new process would do, without its half minute of imports
    if child == 0:
        try:
            torch.set_num_threads(1)
            monkeypatch.setattr(checkpoint, "save_model", dying_save if when == "while saving" else save_model)
            fit(trainee(data, objective if when == "while saving" else dying_objective), data, out, QUICK)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    reached = torch.load(out / "last" / "training.pt", weights_only=True)["progress"]["step"]
    assert 0 < reached < 12 and bool(list(out.glob(".last.*"))) == (when == "while saving")
    run(folder, out)
    assert log(out) == log(whole)
    for name in ("last", "best"):
        weights = [(one / name / "model.safetensors").read_bytes() for one in (out, whole)]
        assert weights[0] == weights[1]
    assert not list(out.glob(".*"))


def test_a_finished_run_is_not_run_again_but_can_be_given_more(whole: Path, folder: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(whole, tmp_path / "run"))
    assert run(folder, out).step == 12 and log(out) == log(whole)
    more = run(folder, out, replace(QUICK, steps=14))
    assert more.step == 14 and more.reason == "the budget is used up"
    assert log(out)[: len(log(whole))] == log(whole)


def test_weights_alone_continue_with_a_fresh_optimizer_and_add_up_tokens(
    whole: Path, folder: Path, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(whole, tmp_path / "run"))
    (out / "last" / "training.pt").unlink()
    second = run(folder, out, replace(QUICK, seed=1))
    assert (
        open_checkpoint("frequencies", out / "last").config["tokens_seen"] == log(whole)[-1]["tokens"] + second.tokens
    )


def test_another_setting_or_system_is_refused(whole: Path, folder: Path, data: TrainingData) -> None:
    with pytest.raises(TrainingError, match=r"found another learning_rate \(was 0.01, is 0.02\)"):
        run(folder, whole, replace(QUICK, learning_rate=0.02))
    with pytest.raises(TrainingError, match=r"found another system \(was frequencies, is other\)"):
        fit(replace(trainee(data), system="other"), data, whole, QUICK)


def test_training_stops_when_the_validation_loss_stops_falling(folder: Path, tmp_path: Path) -> None:
    settings = replace(QUICK, learning_rate=0.0, steps=100, evaluate_every=2, patience=2)
    outcome = run(folder, tmp_path / "run", settings)
    assert outcome.reason == "the validation loss stopped falling" and outcome.step == 6
    assert run(folder, tmp_path / "run", settings).step == 6


def test_what_is_annealed_is_trained_to_the_end_and_the_newest_weights_are_the_best(
    data: TrainingData, tmp_path: Path
) -> None:
    def harder(model: Frequencies, batch: TextBatch) -> torch.Tensor:
        return objective(model, batch) / (1000 * (1 - batch.used) + 1)  # the loss only rises

    settings = replace(QUICK, evaluate_every=2, patience=2)
    annealed = replace(trainee(data, harder), is_annealed=True)
    assert fit(annealed, data, tmp_path / "run", settings).step == settings.steps
    best, last = (open_checkpoint("frequencies", tmp_path / "run" / name).config for name in ("best", "last"))
    assert best == last
    assert fit(trainee(data, harder), data, tmp_path / "other", settings).step == 6


def test_the_objective_is_told_how_much_of_the_budget_is_used(folder: Path, tmp_path: Path) -> None:
    used = []

    def watching(model: Frequencies, batch: TextBatch) -> torch.Tensor:
        if model.training:
            used.append(batch.used)
        return objective(model, batch)

    run(folder, tmp_path / "run", replace(QUICK, steps=4), watching)
    assert used == [0.0, 0.25, 0.5, 0.75]


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_last_good_checkpoint(
    folder: Path, data: TrainingData, tmp_path: Path
) -> None:
    calls = iter(range(1000))

    def breaking(model: Frequencies, batch: TextBatch) -> torch.Tensor:
        return objective(model, batch) * (math.nan if model.training and next(calls) == 5 else 1)

    with pytest.raises(TrainingError, match=r"found nan at step 6; the last good checkpoint is in .*last"):
        run(folder, tmp_path / "run", objective=breaking)
    kept = Frequencies(len(data.vocabulary))
    open_checkpoint("frequencies", tmp_path / "run" / "last").load_into(kept)
    assert bool(kept.logits.isfinite().all())


# ---------------------------------------------------------------------------------------------------------------------
# Bad input


def test_bad_data_gets_a_sentence_before_anything_is_trained(folder: Path, tmp_path: Path) -> None:
    import pyarrow.parquet

    from pointer.storage import file_hash

    with pytest.raises(DataError, match=r"Expected prepared data with a manifest.json"):
        TrainingData.open(tmp_path / "nowhere", None, QUICK)
    unranked = Path(shutil.copytree(folder, tmp_path / "unranked"))
    shard = unranked / "shard-00000.parquet"
    pyarrow.parquet.write_table(pyarrow.parquet.read_table(shard).drop_columns("rank"), shard)
    manifest = json.loads((unranked / "manifest.json").read_text())
    manifest["shards"][0]["sha256"] = file_hash(shard)
    (unranked / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match=r"Expected shards with ids, stage, importance and rank .* without .*rank"):
        TrainingData.open(unranked, None, QUICK)
    data = TrainingData.open(folder, None, QUICK)
    nothing = replace(data.texts, rank=np.zeros_like(data.texts.rank))
    with pytest.raises(DataError, match="Expected texts with ranked keywords"):
        replace(data, texts=nothing).need_ranks()


def test_a_folder_that_is_not_the_system_gets_a_sentence(whole: Path, data: TrainingData, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"Expected a folder with a trained cgmh, found no .*nowhere"):
        open_checkpoint("cgmh", tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match=r"Expected a checkpoint with a config.json"):
        open_checkpoint("cgmh", tmp_path)
    with pytest.raises(CheckpointError, match=r"Expected a trained cgmh in .*, found the system frequencies"):
        open_checkpoint("cgmh", whole)
    InsertionTransformer.start("tiny", data.vocabulary).save_pretrained(tmp_path / "bert")
    with pytest.raises(CheckpointError, match="found the system pointer"):
        open_checkpoint("cgmh", tmp_path / "bert")
    broken = Path(shutil.copytree(whole / "best", tmp_path / "broken"))
    (broken / "manifest.json").unlink()
    (broken / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match=r"Expected in .*safetensors the weights of the model"):
        open_checkpoint("frequencies", broken).load_into(Frequencies(len(data.vocabulary)))
    Vocabulary.open("english").save(broken)
    with pytest.raises(CheckpointError, match="Expected the vocabulary of the weights"):
        open_checkpoint("frequencies", broken)
    (broken / "config.json").write_text('{"system": "frequencies"}')
    with pytest.raises(CheckpointError, match="Expected the config of a trained frequencies"):
        open_checkpoint("frequencies", broken)


def test_an_unknown_system_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f'system: expected {", ".join(SYSTEMS)}, found "magic"'):
        open_system("magic", tmp_path)
    with pytest.raises(UsageError, match="found keywords"):
        train_system("keywords", tmp_path, tmp_path, QUICK)


def test_the_floor_is_the_keywords_themselves() -> None:
    [[found], [other]] = open_system("keywords").generate_many(["new york; eBay", ["rice"]])
    assert found.text == "new york eBay" and [found.text[a:b] for a, b in found.spans] == ["new york", "eBay"]
    assert other.text == "rice" and found.missing == () and found.stopped == "end"
    with pytest.raises(UsageError, match=r"temperature: expected 1.0, all that keywords can do, found 2.0"):
        open_system("keywords").generate_many([["rice"]], temperature=2.0)
