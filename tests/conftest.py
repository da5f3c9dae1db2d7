"""Shared by all tests: a small corpus written for them, and the real command line."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands import Commands, started

pytest_plugins = ["browser"]

# The tests already run on every core, side by side; threads of their own would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Whatever language model the machine's owner has fetched: tests bring their own, or go without.
CACHE = tempfile.TemporaryDirectory(prefix="pointer-cache-")
os.environ["POINTER_CACHE"] = CACHE.name

SAMPLE = Path(__file__).parents[1] / "examples" / "harbour.txt"


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    return SAMPLE.read_text("utf-8").splitlines()


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The real corpora, where there are any."""
    if "POINTER_DATA" not in os.environ:
        pytest.skip("POINTER_DATA does not name the corpora")
    return Path(os.environ["POINTER_DATA"])


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    with started(tmp_path_factory.mktemp("streams")) as found:
        yield found


@pytest.fixture
def pointer(tmp_path: Path, commands: Commands) -> Run:
    """Runs `pointer ARGUMENTS` in an empty folder."""

    def run(*arguments: str | Path, stdin: str | bytes = "", **environment: str) -> "subprocess.CompletedProcess[str]":
        given = stdin if isinstance(stdin, bytes) else stdin.encode()
        everything = os.environ | {"COLUMNS": "120"} | environment
        if not environment:
            return commands([*map(str, arguments)], given, tmp_path, everything)
        # Libraries read some variables when they are imported, so that needs a fresh interpreter.
        command = [sys.executable, "-m", "pointer", *map(str, arguments)]
        done = subprocess.run(command, input=given, capture_output=True, cwd=tmp_path, env=everything)
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    return run
