"""One model in forked processes and in several threads at once: it works, or says what to do."""

import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from test_generate import checkpoint, tiny  # noqa: F401

from pointer import Pointer

LISTS = [["rice", "back"], ["new york", "tax cuts"], ["love"], ["mole", "river", "church"]]

PRE_FORK = """
# As gunicorn does with preload_app: the model is opened and warm before the workers are forked.
import os, sys
from pointer import Pointer
pointer = Pointer.from_pretrained(sys.argv[1], threads=2)
expected = [found[0].text for found in pointer.generate_many(["rice; back", "love; mole"] * 8)]
workers = []
for _ in range(2):
    child = os.fork()
    if not child:
        found = [found[0].text for found in pointer.generate_many(["rice; back", "love; mole"] * 8)]
        again = Pointer.from_pretrained(sys.argv[1])  # opened after the fork
        os._exit(0 if found == expected and again.generate("rice").text else 3)
    workers.append(child)
print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in workers])
"""

MORE_THREADS = """
import os, sys
from pointer import Pointer
from pointer.errors import UsageError
Pointer.from_pretrained(sys.argv[1], threads=2).generate("rice")
child = os.fork()
if not child:
    try:
        Pointer.from_pretrained(sys.argv[1], threads=2)
    except UsageError as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


def run(program: str, folder: Path) -> str:
    everything = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)], capture_output=True, text=True, timeout=200, env=everything
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_warm_model_with_several_threads_works_in_workers_that_are_forked(checkpoint: Path) -> None:  # noqa: F811
    assert run(PRE_FORK, checkpoint) == "[0, 0]"


def test_more_threads_after_a_fork_are_one_sentence(checkpoint: Path) -> None:  # noqa: F811
    assert "threads: expected 1 in a process that was forked, found 2. Start it with spawn" in run(
        MORE_THREADS, checkpoint
    )


def written(folder: Path) -> list[str]:
    return [found[0].text for found in Pointer.from_pretrained(folder).generate_many(LISTS)]


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_multiprocessing_gives_the_same_texts(checkpoint: Path, tiny: Pointer, way: str) -> None:  # noqa: F811
    expected = [found[0].text for found in tiny.generate_many(LISTS)]
    with multiprocessing.get_context(way).Pool(2) as pool:
        assert pool.map_async(written, [checkpoint] * 2).get(200) == [expected] * 2


def test_four_threads_on_one_object_do_not_disturb_each_other(tiny: Pointer) -> None:  # noqa: F811
    kinds: list[dict[str, object]] = [{}, {"decoding": "sample", "seed": 3}, {"decoding": "beam"}, {"preset": "plain"}]
    expected = [tiny.generate_many(LISTS, **kind) for kind in kinds]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda number: tiny.generate_many(LISTS, **kinds[number % 4]), range(16)))
    assert found == [expected[number % 4] for number in range(16)]
