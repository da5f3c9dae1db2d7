"""Fixtures that the test modules of serving load as a plugin, so that all of them share one `pointer serve`.

PYTEST_DONT_REWRITE: the search for doctests imports this file before pytest hears that it is a plugin, and would warn.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import Command
from test_generate import GOLDEN, checkpoint, tiny  # noqa: F401

from pointer.model import convert_released


@pytest.fixture(scope="session")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model in the form of the authors' release."""
    folder = tmp_path_factory.mktemp("models") / "converted"
    convert_released(GOLDEN, folder)
    return folder


@pytest.fixture(scope="session")
def server(checkpoint: Path, converted: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:  # noqa: F811
    """One `pointer serve` with two small models, for all tests that only ask."""
    found = Command("--model", checkpoint, "--model", converted, cwd=tmp_path_factory.mktemp("server"))
    try:
        found.wait_until_ready()
        yield found
    finally:
        found.stop()
