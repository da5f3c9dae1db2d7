"""Training the insertion transformer: a step is the step that was meant, and a run survives whatever happens."""

import json
import math
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SAMPLE, Run
from prepared import prepared_folder
from stage_rows import texts

from pointer import training
from pointer.checkpoint import CARD, CURVE, TABLES
from pointer.errors import DataError, TrainingError
from pointer.model import InsertionTransformer
from pointer.prepare.corpus import Corpus
from pointer.prepare.shards import Preparation, PreparedData, prepare
from pointer.runs import train
from pointer.training.files import METRICS, STATE
from pointer.training.insertion import InsertionRun
from pointer.training.settings import TrainingSettings
from pointer.vocabulary import Vocabulary

ENGLISH = Vocabulary.open("english")
QUICK = TrainingSettings(
    learning_rate=1e-3, steps=12, batch_tokens=512, save_every=4, evaluate_every=8, log_every=1, validation_rows=4
)
EAGER = replace(QUICK, dropout=0.1, skeleton="mixed", begun_share=0.5, schedule="eager")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared_folder(tmp_path_factory.mktemp("prepared"), 50)


@pytest.fixture(scope="module")
def data(folder: Path) -> PreparedData:
    return PreparedData.open(folder)


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


def test_without_an_opener_nothing_is_written_to_read(folder: Path, tmp_path: Path) -> None:
    InsertionRun(folder, tmp_path / "run", replace(QUICK, steps=1), "tiny", show=False)()
    assert [line["samples"] for line in log(tmp_path / "run") if "validation" in line] == [[]]
    assert "## Samples" not in (tmp_path / "run" / "last" / CARD).read_text()


def test_training_knows_nothing_of_decoding() -> None:
    package = Path(training.__file__).parent
    assert not [path for path in package.glob("*.py") if "pointer.decoding" in path.read_text()]


PROGRAM = """
import sys, os
from dataclasses import replace
sys.path[:0] = {tests!r}
from test_insertion_training import QUICK, train
train({data!r}, {out!r}, replace(QUICK, {changes}), init="tiny", show=False)
"""


def program(data: Path, out: Path, changes: str) -> str:
    return PROGRAM.format(
        tests=[str(folder) for folder in Path(__file__).parents[:2]], data=str(data), out=str(out), changes=changes
    )


def test_a_killed_run_continues_as_if_nothing_had_happened(run: Path, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    code = program(folder, out, "dropout=0.1, skeleton='mixed', begun_share=0.5, schedule='eager'")
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


def test_fsdp_is_refused_in_one_sentence(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")  # as `accelerate launch --use_fsdp` does
    with pytest.raises(TrainingError, match="each hold the whole model, found FSDP"):
        train(folder, tmp_path / "run", QUICK, init="tiny", show=False)


DIES_ONCE = """
import os, signal
from pathlib import Path
from pointer.training.loop import Run
save, mark = Run._save, Path("died")
def save_and_die(self, name):
    save(self, name)
    if os.environ["RANK"] == "1" and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
Run._save = save_and_die
"""


def test_after_a_rank_is_killed_all_go_on_from_the_last_checkpoint(folder: Path, tmp_path: Path) -> None:
    changes = "steps=8, dropout=0.0"
    (tmp_path / "dies.py").write_text(DIES_ONCE + program(folder, tmp_path / "dies", changes))
    (tmp_path / "lives.py").write_text(program(folder, tmp_path / "lives", changes))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    for name in ("dies", "lives"):
        command = [*launch, "--max-restarts", "1", f"{name}.py"]
        # Else those who are started again find the addresses of those who died (docs/scale.md).
        own_store = os.environ | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        done = subprocess.run(command, cwd=tmp_path, env=own_store, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "died").exists()
    losses = [[line["loss"] for line in log(tmp_path / name) if "loss" in line] for name in ("dies", "lives")]
    assert losses[0] == losses[1] and len(losses[0]) == 8


def test_accumulated_batches_make_the_step_of_one_large_batch(folder: Path, tmp_path: Path) -> None:
    for name, size, count in (("large", 100_000, 1), ("small", 512, 20)):
        settings = replace(QUICK, steps=1, dropout=0.0, batch_tokens=size, accumulate=count)
        train(folder, tmp_path / name, settings, init="tiny", show=False)
    large, small = (log(tmp_path / name)[0]["loss"] for name in ("large", "small"))
    assert large == pytest.approx(small, abs=1e-5)


def test_streamed_training_goes_on_as_if_nothing_had_happened(folder: Path, tmp_path: Path) -> None:
    settings = replace(QUICK, steps=8, dropout=0.0, stream=True)
    with pytest.raises(TrainingError, match="stream: expected with validation data of its own"):
        train(folder, tmp_path / "alone", settings, init="tiny", show=False)
    train(folder, tmp_path / "whole", settings, init="tiny", validation=folder, show=False)
    train(folder, tmp_path / "parts", replace(settings, steps=4), init="tiny", validation=folder, show=False)
    train(folder, tmp_path / "parts", settings, init="tiny", validation=folder, show=False)
    losses = [[line["loss"] for line in log(tmp_path / name) if "loss" in line] for name in ("whole", "parts")]
    assert losses[0][:4] == losses[1][:4] and len(losses[0]) == len(losses[1]) == 8


def test_training_stops_when_the_validation_loss_stops_falling(folder: Path, tmp_path: Path) -> None:
    settings = replace(QUICK, learning_rate=0.0, steps=100, evaluate_every=2, save_every=2, patience=2)
    outcome = train(folder, tmp_path / "run", settings, init="tiny", show=False)
    assert outcome.reason == "the validation loss stopped falling" and outcome.step == 6
    assert train(folder, tmp_path / "run", settings, init="tiny", show=False).step == 6


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_last_good_checkpoint(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss, calls = InsertionRun.loss, iter(range(1000))
    monkeypatch.setattr(InsertionRun, "loss", lambda *given: loss(*given) * (math.nan if next(calls) == 5 else 1))
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


def test_a_full_disk_while_a_model_is_saved_is_one_sentence(pointer: Run, run: Path, tmp_path: Path) -> None:
    assert pointer("prepare", SAMPLE, "--out", "data").returncode == 0
    limit = 200_000  # less than the weights need
    command = ["train", "data", "--init", str(run), "--out", "mine", "--steps", "1", "--batch-tokens", "256"]
    done = subprocess.run(
        [sys.executable, "-m", "pointer", *command],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "pointer: Could not write mine/" in done.stderr.splitlines()[-1]
    assert not list((tmp_path / "mine").glob(".*.partial")) and not (tmp_path / "mine" / "last").exists()


def test_your_own_domain_from_the_command_line(pointer: Run, run: Path, tmp_path: Path) -> None:
    assert pointer("prepare", SAMPLE, "--out", "data").returncode == 0
    command = ["train", "data", "--init", run, "--out", "mine", "--minutes", "0.05", "--batch-tokens", "256"]
    done = pointer(*command, "--json")
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["reason"] == "the budget is used up" and outcome["validation"]["loss"] > 0
    assert "of positions are real tokens" in done.stderr
    assert re.search(r"step \d+ · loss [\d.]+ · [\d,]+ tokens/s · \d+% of the budget", done.stderr)  # no terminal here
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
    released = Path(__file__).parents[1] / "golden" / "released-tiny"
    done = pointer("convert", released, "ours")
    assert done.returncode == 0 and "2,971 vocabulary entries" in done.stdout
    failed = pointer("convert", tmp_path, "other")
    assert failed.returncode == 1 and "Expected a released POINTER checkpoint" in failed.stderr


def test_recipes_use_only_options_that_exist() -> None:
    import typer

    from pointer.cli import app

    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for recipe in (Path(__file__).parents[2] / "recipes").glob("paper_*.sh"):
        text = recipe.read_text().replace("\\\n", " ")
        for command in ("prepare", "train"):
            known = {option for parameter in commands[command].params for option in parameter.opts}
            for line in text.splitlines():
                used = line.split(f"pointer {command} ", 1)[1] if f"pointer {command} " in line else ""
                assert {word for word in used.split() if word.startswith("--")} <= known


def test_training_leaves_small_numbers_as_they_were() -> None:
    """Numbers below the normal range count as zero only while a model is trained."""
    from pointer.training.loop import denormals_as_zero

    tiny = torch.tensor([1e-310], dtype=torch.float64)
    with denormals_as_zero():
        flushed = bool((tiny * 1.5 == 0).item())
    assert bool((tiny * 1.5 > 0).item())
    assert flushed == torch.set_flush_denormal(True)  # whether this processor can do it at all
    torch.set_flush_denormal(False)
