"""How `benchmarks/serve.py --soak` counts what a server answers."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

STAGE = b': still at it\n\nevent: stage\ndata: {"stage": 0}\n\n'
DONE = {"results": [[{"text": "A dog."}]]}
OVER = {"error": {"type": "TimeLimit", "message": "The text was not finished.", "hint": ""}}


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    found = importlib.util.spec_from_file_location("serve", Path(__file__).parents[2] / "benchmarks" / "serve.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def event(name: str, data: object) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


@pytest.mark.parametrize(
    ("status", "answer", "counted"),
    [
        (200, json.dumps(DONE).encode(), "right"),
        (200, STAGE + event("done", DONE), "right"),
        (200, event("done", {"results": [[{"text": "A cat."}]]}), "WRONG"),
        (200, STAGE + event("error", OVER), "TimeLimit"),
        (503, json.dumps(OVER).encode(), "TimeLimit"),
        (200, STAGE, "LOST"),
        (200, STAGE + event("done", DONE)[:-20], "LOST"),
        (200, b"", "LOST"),
    ],
)
def test_every_end_of_an_answer_is_counted_as_what_it_was(
    benchmark: ModuleType, status: int, answer: bytes, counted: str
) -> None:
    assert benchmark.outcome(status, answer, ["A dog."]) == counted
