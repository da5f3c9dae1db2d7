"""The recipes in small: what prints tables, and from extracted text to a pre-trained model by two processes."""

import json
import lzma
import os
import secrets
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SAMPLE

from pointer.checkpoint import embedded_folder

RECIPES = Path(__file__).parents[1] / "recipes"
SYSTEMS = ["cgmh", "nmstg", "autoregressive-greedy", "autoregressive-sample", "grid-beam", "keywords"]
OURS = ["pointer-greedy", "pointer-sample", "pointer-beam", "writer-greedy"]
BEAMS = ["ours-beam", "ours-beam-exact", "paper-beam"]


def run(recipe: str, *arguments: str, folder: Path, **environment: str) -> str:
    """What a recipe prints."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [str(RECIPES / recipe), *arguments],
        cwd=folder,
        env=os.environ | {"PATH": path} | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def printed(recipe: str, folder: Path, **environment: str) -> str:
    """What a recipe prints for the reviews of a small corpus."""
    lines = SAMPLE.read_text("utf-8").splitlines()
    (folder / "data" / "yelp").mkdir(parents=True)
    for name, part in {"train": lines[:60], "valid": lines[60:74], "test": lines[74:]}.items():
        (folder / "data" / "yelp" / f"{name}.txt.xz").write_bytes(lzma.compress("\n".join([*part, ""]).encode()))
    return run(recipe, "reviews", folder=folder, **corpora(folder), **environment)


def corpora(folder: Path) -> dict[str, str]:
    """Where a recipe finds its corpora and keeps its runs."""
    return {"POINTER_DATA": str(folder / "data"), "RUNS": "runs"}


def paged(folder: Path, tables: list[str], columns: str) -> Path:
    """A page that has room for some tables."""
    (folder / "docs").mkdir()
    page = folder / "docs" / "results.md"
    page.write_text("".join(f"<!-- table {name}: {columns} -->\n<!-- end of table -->\n" for name in tables))
    return page


@pytest.mark.slow
def test_one_command_prints_quality_and_speed_of_every_system(tmp_path: Path) -> None:
    page = paged(tmp_path, ["reviews-all", "reviews-few"], "BLEU-2, PPL")
    with page.open("a") as more:
        for name in ("reviews-speed: Seconds for 1000 texts, Milliseconds alone", "reviews-ratings"):
            more.write(f"<!-- table {name} -->\n<!-- end of table -->\n")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "reviews-ratings.md").write_text("Not rated yet.")
    (tmp_path / "docs" / "results-texts.md").write_text("<!-- table reviews-texts -->\n<!-- end of table -->\n")
    settings = {"MINUTES": "0.02", "FEW": "3", "STEPS": "10", "CANDIDATES": "3", "PROJECT": str(tmp_path)}
    printed("tables.sh", tmp_path, **settings)
    every, few = page.read_text().split("<!-- end of table -->")[:2]
    assert all(f"| {name} |" in few for name in [*SYSTEMS, *OURS, "writer-best-of-8"]) and "| cgmh |" not in every
    speed = json.loads((tmp_path / "results" / "reviews-speed.json").read_text())["systems"]
    assert {one["name"] for one in speed} == {*SYSTEMS, *OURS, "writer-best-of-8"} - {"keywords"}
    judged = json.loads((tmp_path / "results" / "reviews-few.json").read_text())["systems"][0]["metrics"]
    assert {"PPL", "PPL ratio (smollm2)"} <= judged.keys()
    assert all(one["metrics"]["Seconds for 1000 texts"]["value"] > 0 for one in speed)
    texts = (tmp_path / "docs" / "results-texts.md").read_text()
    assert "**service, perfect, delicious, service, awesome, good, place**" in texts and "\\*\\*" not in texts
    for picture in ("results-reviews-all", "results-reviews-few", "speed-reviews"):
        assert (tmp_path / "docs" / f"{picture}.png").stat().st_size > 0

    study = {"SAMPLES": "3", "READ": "2", "READERS": "1", "PROJECT": str(tmp_path)}
    run("study.sh", "new", "reviews", folder=tmp_path, **study)
    (tmp_path / "results" / "reviews-ratings.md").unlink()
    rate = [sys.executable, "-m", "pointer", "judge", "rate", "studies/reviews/ratings"]
    subprocess.run(rate, cwd=tmp_path, input="3\n" * 100, text=True, check=True, capture_output=True)
    run("study.sh", "report", "reviews", folder=tmp_path, **study)
    assert "| writer-best-of-8 | 0.0 % |" in page.read_text() and "| human | 0.0 % |" in page.read_text()


@pytest.mark.slow
def test_one_command_tells_what_start_schedule_and_search_are_worth(tmp_path: Path) -> None:
    columns = "BLEU-2, PPL, Seconds"
    page = paged(tmp_path, [f"reviews-{part}" for part in ("order", "beams")], columns)
    settings = {"TOKENS": "2000", "FEW": "3", "MINILM": str(embedded_folder("wiki")), "PROJECT": str(tmp_path)}
    printed("ablations.sh", tmp_path, **settings)
    orders, beams = page.read_text().split("<!-- end of table -->")[:2]
    assert all(f"| {name} |" in orders for name in ("ours", "paper", "balanced", "uniform"))
    assert all(f"| {name} |" in beams for name in ("ours-greedy", "paper-greedy", *BEAMS))
    page.write_text(f"<!-- table reviews-start: {columns} -->\n<!-- end of table -->\n")
    run("ablations.sh", "reviews", "start", folder=tmp_path, **corpora(tmp_path), **settings)
    assert all(f"| {name} |" in page.read_text() for name in ("ours", "no-wiki"))


@pytest.mark.slow
def test_from_extracted_text_to_a_pretrained_model_by_two_processes(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    lines = SAMPLE.read_text("utf-8").splitlines(keepends=True)
    (tmp_path / "texts.txt").write_text("".join(lines[:60] * 5), "utf-8")
    (tmp_path / "valid.txt").write_text("".join(lines[60:]), "utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        head = f"localhost:{free.getsockname()[1]}"
    settings = {
        "TEXTS": "texts.txt",
        "VALID": "valid.txt",
        "STORE": "store",
        "OUT": "base",
        "ADDRESS": "",
        "HEAD": head,
    }
    settings |= {"GPUS": "2", "SIZE": "tiny", "PRECISION": "no", "ABOUT": "A harbour."}
    settings |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    texts = run("wikipedia.sh", "--steps", "3", folder=tmp_path, **settings)
    assert "store/data: 300 texts" in texts and "the budget is used up after 3 steps" in texts
    before = (tmp_path / "base" / "last" / "model.safetensors").read_bytes()
    assert "A harbour." in (tmp_path / "base" / "best" / "README.md").read_text("utf-8")
    # All of it is done, so the same command does nothing; with more steps it goes on.
    run("wikipedia.sh", "--steps", "3", folder=tmp_path, **settings)
    assert (tmp_path / "base" / "last" / "model.safetensors").read_bytes() == before
    assert "used up after 5 steps" in run("wikipedia.sh", "--steps", "5", folder=tmp_path, **settings)
