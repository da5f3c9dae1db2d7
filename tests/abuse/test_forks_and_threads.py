"""One model in forked processes and in several threads at once: it works, or says what to do (docs/serving.md)."""

import importlib.util
import multiprocessing
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest

from pointer import Pointer

MODEL = "reviews"
WRITER = "writer"
BACKENDS = ["onnx", *(["torch", WRITER] if importlib.util.find_spec("torch") else [])]
"""Of `MODEL`, and a small writer in onnxruntime, which PyTorch makes."""
LISTS = [["rice", "back"], ["new york", "tax cuts"], ["love"], ["mole", "river", "church"]] * 4
every_backend = pytest.mark.parametrize("backend", BACKENDS)

START = """
import os, sys, warnings
from pointer import Pointer, PointerError
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)  # since Python 3.12
def opened(**options): return Pointer.from_pretrained(sys.argv[1], backend=sys.argv[2], **options)
def texts(pointer): return [found[0].text for found in pointer.generate_many(["rice; back", "love; mole"] * 8)]
def forked(work):
    child = os.fork()
    if not child:
        code = 1
        try: code = work()
        finally: os._exit(code)
    return child
def codes(*children): return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
"""

# As gunicorn does with preload_app: the model is opened and warm before the workers are forked.
OPENED_BEFORE = """
pointer = opened(threads=2)
expected = texts(pointer)
def work(): return 0 if texts(pointer) == expected and texts(opened()) == expected else 3
print(codes(forked(work), forked(work)), texts(pointer) == expected)
"""

# As gunicorn does without: every worker opens its own.
OPENED_AFTER = """
def work(): return 0 if len(texts(opened())) == 16 else 3
print(codes(forked(work), forked(work)))
"""

# A worker that forks again, as one that gunicorn starts in the place of one that ended.
FORKED_TWICE = """
pointer = opened(threads=2)
expected = texts(pointer)
def work(): return 0 if texts(pointer) == expected and codes(forked(inner)) == [0] else 3
def inner(): return 0 if texts(pointer) == expected else 3
print(codes(forked(work)))
"""

MORE_THREADS = """
opened(threads=2).generate("rice")
def work():
    try: opened(threads=2)
    except PointerError as error: print(error, flush=True)
    return 0
codes(forked(work))
"""


@cache
def model_of(backend: str) -> list[str]:
    """What to open, and where it runs."""
    if backend != WRITER:
        return [MODEL, backend]
    from tiny_causal import llama_folder, writer_folder

    folder = Path(tempfile.mkdtemp())
    return [str(writer_folder(llama_folder(folder / "base"), folder / "writer")), "onnx"]


def run(program: str, backend: str) -> str:
    everything = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    command = [sys.executable, "-W", "error", "-c", START + program, *model_of(backend)]
    done = subprocess.run(command, capture_output=True, text=True, env=everything)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout.strip()


@every_backend
def test_a_warm_model_with_several_threads_works_in_workers_that_are_forked(backend: str) -> None:
    assert run(OPENED_BEFORE, backend) == "[0, 0] True"


@every_backend
def test_workers_open_models_of_their_own(backend: str) -> None:
    assert run(OPENED_AFTER, backend) == "[0, 0]"


@every_backend
def test_workers_may_fork_again(backend: str) -> None:
    assert run(FORKED_TWICE, backend) == "[0]"


@every_backend
def test_more_threads_after_a_fork_are_one_sentence(backend: str) -> None:
    assert "threads: expected 1 in a process that was forked, found 2. Start it with spawn" in run(
        MORE_THREADS, backend
    )


@cache
def model(backend: str) -> Pointer:
    opened, where = model_of(backend)
    return Pointer.from_pretrained(opened, backend=where)


def written(backend: str) -> list[str]:
    return [found[0].text for found in model(backend).generate_many(LISTS)]


@every_backend
@pytest.mark.parametrize("way", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_multiprocessing_gives_the_same_texts(backend: str, way: str) -> None:
    expected = written(backend)  # which makes it warm, and a forked child has it
    with multiprocessing.get_context(way).Pool(2) as pool:
        assert pool.map_async(written, [backend] * 2).get(200) == [expected] * 2


@every_backend
def test_four_threads_on_one_object_do_not_disturb_each_other(backend: str) -> None:
    pointer = model(backend)
    kinds: list[dict[str, object]] = [{}, {"decoding": "sample", "seed": 3}, {"decoding": "beam"}, {"preset": "plain"}]
    kinds = [kind | {"max_length": 60} for kind in kinds]
    expected = [pointer.generate_many(LISTS, **kind) for kind in kinds]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda number: pointer.generate_many(LISTS, **kinds[number % 4]), range(8)))
    assert found == [expected[number % 4] for number in range(8)]
