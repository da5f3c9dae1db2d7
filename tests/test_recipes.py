"""The recipes that print tables, in small: everything is trained, writes, and stands in the table."""

import lzma
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SAMPLE

from pointer.checkpoint import embedded_folder

RECIPES = Path(__file__).parents[1] / "recipes"
SYSTEMS = ["cgmh", "nmstg", "autoregressive-greedy", "autoregressive-sample", "grid-beam", "keywords"]
OURS = ["pointer-greedy", "pointer-sample", "pointer-beam"]


def printed(recipe: str, folder: Path, **environment: str) -> str:
    """What a recipe prints for the reviews of a small corpus."""
    lines = SAMPLE.read_text("utf-8").splitlines()
    (folder / "data" / "yelp").mkdir(parents=True)
    for name, part in {"train": lines[:60], "valid": lines[60:74], "test": lines[74:]}.items():
        (folder / "data" / "yelp" / f"{name}.txt.xz").write_bytes(lzma.compress("\n".join([*part, ""]).encode()))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [str(RECIPES / recipe), "reviews"],
        cwd=folder,
        env=os.environ | {"POINTER_DATA": str(folder / "data"), "RUNS": "runs", "PATH": path} | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_one_command_prints_quality_and_speed_of_every_system(tmp_path: Path) -> None:
    text = printed("tables.sh", tmp_path, MINUTES="0.02", FEW="3", STEPS="10", CANDIDATES="3")
    assert all(f"| {name} |" in text for name in [*SYSTEMS, *OURS])
    assert "**reviews, all test texts**" in text and "**reviews, the first 3 test texts**" in text
    assert "seconds for 1,000 texts" in text and "(from 3)" in text
    assert "**service, perfect, delicious, service, awesome, good, place**" in text
    for picture in ("all", "few", "speed"):
        assert (tmp_path / "tables" / "reviews" / f"{picture}.png").stat().st_size > 0


@pytest.mark.slow
def test_one_command_prints_what_start_stages_and_size_are_worth(tmp_path: Path) -> None:
    text = printed("ablations.sh", tmp_path, TOKENS="2000", LISTS="4", MINILM=str(embedded_folder("wiki")))
    assert "**reviews, 2000 tokens each**" in text
    assert all(f"| {name} |" in text for name in ("wiki", "no-wiki", "late", "interleaved", "mini"))
