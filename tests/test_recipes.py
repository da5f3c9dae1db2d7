"""The recipe of the paper's tables, in small: every system is trained, writes, and stands in both tables."""

import lzma
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SAMPLE

RECIPES = Path(__file__).parents[1] / "recipes"
SYSTEMS = ["cgmh", "nmstg", "autoregressive-greedy", "autoregressive-sample", "grid-beam", "keywords"]
OURS = ["pointer-greedy", "pointer-sample", "pointer-beam"]


@pytest.mark.slow
def test_one_command_prints_quality_and_speed_of_every_system(tmp_path: Path) -> None:
    lines = SAMPLE.read_text("utf-8").splitlines()
    (tmp_path / "data" / "yelp").mkdir(parents=True)
    for name, part in {"train": lines[:60], "valid": lines[60:74], "test": lines[74:]}.items():
        (tmp_path / "data" / "yelp" / f"{name}.txt.xz").write_bytes(lzma.compress("\n".join([*part, ""]).encode()))
    environment = os.environ | {
        "POINTER_DATA": str(tmp_path / "data"), "MINUTES": "0.02", "FEW": "3", "STEPS": "10", "CANDIDATES": "3",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }  # fmt: skip
    done = subprocess.run(
        [str(RECIPES / "tables.sh"), "reviews"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert all(f"| {name} |" in done.stdout for name in [*SYSTEMS, *OURS])
    assert "**reviews, all test texts**" in done.stdout and "**reviews, the first 3 test texts**" in done.stdout
    assert "seconds for 1,000 texts" in done.stdout and "(from 3)" in done.stdout
    assert "**service, perfect, delicious, service, awesome, good, place**" in done.stdout
    for picture in ("all", "few", "speed"):
        assert (tmp_path / "tables" / "reviews" / f"{picture}.png").stat().st_size > 0
