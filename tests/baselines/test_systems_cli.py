"""Every system from the command line: trained, continued, generating, refused; as a user types it."""

import json
from pathlib import Path

import pytest
from conftest import Run
from prepared import prepared_folder

from pointer.baselines import SYSTEMS, read_settings, training_settings, writing_settings
from pointer.errors import UsageError

SMALL = {
    "cgmh": ["--setting", "hidden=16"],
    "nmstg": ["--setting", "hidden=16", "--setting", "width=16"],
    "autoregressive": ["--setting", "layers=1", "--setting", "width=16", "--setting", "heads=2"],
}
ASKED = "boat; rope\nnew york; harbour\n"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared_folder(tmp_path_factory.mktemp("prepared"), 40)


def constraints(file: Path) -> list[list[str]]:
    return [json.loads(line)["constraints"] for line in file.read_text().splitlines()]


@pytest.mark.parametrize("system", SMALL)
def test_a_system_is_trained_and_writes_a_file_that_evaluate_reads(
    pointer: Run, tmp_path: Path, data: Path, system: str
) -> None:
    done = pointer(
        "train", data, "--system", system, "--out", "run", "--steps", "2", "--validation-rows", "4", *SMALL[system]
    )
    assert done.returncode == 0, done.stderr
    assert "after 2 steps" in done.stdout and "validation loss" in done.stdout
    (tmp_path / "keys.txt").write_text(ASKED)
    chain = ["--setting", "iterations=6"] if system == "cgmh" else []
    done = pointer(
        "generate",
        "-f",
        "keys.txt",
        "-o",
        "out.jsonl",
        "--system",
        system,
        "--model",
        "run",
        "--max-length",
        "24",
        *chain,
    )
    assert done.returncode == 0, done.stderr
    assert constraints(tmp_path / "out.jsonl") == [["boat", "rope"], ["new york", "harbour"]]
    assert ("accepted: insert" in done.stderr) == (system == "cgmh")
    (tmp_path / "refs.txt").write_text("A boat on a rope.\nThe harbour of New York.\n")
    done = pointer("evaluate", "out.jsonl", "--references", "refs.txt", "--lm", "none", "--bootstrap", "0", "--json")
    assert done.returncode == 0, done.stderr
    [measured] = json.loads(done.stdout)["systems"]
    if system != "autoregressive":  # which may forget a word
        assert measured["metrics"]["Coverage"]["value"] == 100


def test_grid_beam_search_writes_with_the_autoregressive_model(pointer: Run, tmp_path: Path, data: Path) -> None:
    small = SMALL["autoregressive"]
    assert pointer("train", data, "--system", "autoregressive", "--out", "run", "--steps", "2", *small).returncode == 0
    for ordered in ("true", "false"):
        done = pointer(
            "generate", "rope", "new york", "--system", "grid-beam", "--model", "run", "--max-length", "16",
            "--setting", f"ordered={ordered}",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "rope" in done.stdout.lower() and "new york" in done.stdout.lower()
    done = pointer("generate", "rope", "--system", "cgmh", "--model", "run")
    assert done.returncode == 1 and "Expected a trained cgmh" in done.stderr and "autoregressive" in done.stderr


def test_results_of_other_settings_are_not_mixed_into_one_file(pointer: Run, tmp_path: Path, data: Path) -> None:
    assert pointer("train", data, "--system", "cgmh", "--out", "run", "--steps", "2", *SMALL["cgmh"]).returncode == 0
    (tmp_path / "keys.txt").write_text(ASKED)
    command = ["generate", "-f", "keys.txt", "-o", "out.jsonl", "--system", "cgmh", "--model", "run", "--setting"]
    assert pointer(*command, "iterations=3").returncode == 0
    assert pointer(*command, "iterations=3").returncode == 0
    done = pointer(*command, "iterations=4")
    assert done.returncode == 1 and "same model and options" in done.stderr


def test_a_system_that_forgets_says_so_without_a_line_for_every_text(pointer: Run, tmp_path: Path, data: Path) -> None:
    small = SMALL["autoregressive"]
    assert pointer("train", data, "--system", "autoregressive", "--out", "run", "--steps", "1", *small).returncode == 0
    (tmp_path / "keys.txt").write_text("xylophone; quartz; zebra\n" * 8)
    done = pointer("generate", "-f", "keys.txt", "-o", "out.jsonl", "--system", "autoregressive", "--model", "run")
    assert done.stderr.count(": lost ") == 5 and "3 more texts lost constraints" in done.stderr


def test_the_keywords_need_no_training(pointer: Run) -> None:
    done = pointer("generate", "boat", "new york", "--system", "keywords")
    assert done.returncode == 0 and done.stdout == "boat new york\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--steps 1", "init: expected a model to start from"),
        ("--system cgmh", "Expected a budget"),
        ("--system cgmh --steps 1 --init wiki", "init: expected for POINTER alone"),
        ("--system cgmh --steps 1 --closing-share 1", "closing-share: expected for POINTER alone"),
        ("--system cgmh --steps 1 --setting width=2", "expected hidden, layers"),
        ("--system keywords --steps 1", "one that is trained, found keywords"),
        ("--system magic --steps 1", "system: expected cgmh, nmstg"),
        ("--init tiny --steps 1 --setting a=1", "--system of its own"),
    ],
)
def test_a_wrong_call_of_train_is_one_sentence(pointer: Run, data: Path, arguments: str, said: str) -> None:
    done = pointer("train", data, "--out", "run", *arguments.split())
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--system cgmh", "the folder of a trained cgmh, found none"),
        ("--system magic", "system: expected cgmh, nmstg"),
        ("--setting iterations=3", "--system of its own"),
        ("--system keywords --decoding beam", "decoding: expected greedy"),
        ("--system keywords --dtype float16", "dtype: expected float32"),
    ],
)
def test_a_wrong_call_of_generate_is_one_sentence(pointer: Run, arguments: str, said: str) -> None:
    done = pointer("generate", "boat", *arguments.split())
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr


def test_settings_are_read_by_the_kind_of_their_default() -> None:
    assert read_settings(["iterations=100", "dropout=0.5", "ordered=false"]) == {
        "iterations": 100, "dropout": 0.5, "ordered": False,
    }  # fmt: skip
    for wrong in ("iterations", "iterations=", "iterations=many"):
        with pytest.raises(UsageError, match="expected NAME=VALUE"):
            read_settings([wrong])
    for system in SYSTEMS:
        assert all(value is not None for value in (writing_settings(system) | training_settings(system)).values())
