"""What a fresh install does, on every Python that is claimed: it needs pytest, the base install and the extra `serve`.

`test_base_install.py` runs this file and the tests of forks and threads with the other Pythons of the machine.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from pointer import Pointer

WORDS = "friendly staff; coffee"


def has_the_words(text: str) -> bool:
    return re.search(r"friendly staff\b.*\bcoffee", text, re.IGNORECASE) is not None


def test_the_command_line_writes() -> None:
    command = [sys.executable, "-W", "error", "-m", "pointer", "generate", "--model", "reviews", WORDS]
    done = subprocess.run(command, capture_output=True, text=True)
    assert has_the_words(done.stdout) and not done.stderr, done.stderr


def test_stages_come_one_after_the_other_and_end_in_the_text() -> None:
    pointer = Pointer.from_pretrained("reviews")
    found = list(pointer.stream(WORDS))
    assert len(found) > 2 and found[0].text.lower() == "friendly staff coffee"
    assert found[-1] == pointer.generate(WORDS) and all(has_the_words(one.text) for one in found)


@contextlib.contextmanager
def server() -> Iterator[str]:
    """The address of a server that has started."""
    command = [sys.executable, "-m", "pointer", "serve", "--model", "reviews", "--port", "0"]
    everything = os.environ | {"COLUMNS": "200", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=everything) as run:
        try:
            assert run.stdout is not None
            said = []
            for line in run.stdout:
                said.append(line)
                if address := re.search(r"http://127\.0\.0\.1:\d+", line):
                    yield address[0]
                    return
            pytest.fail("".join(said))
        finally:
            run.terminate()


def wait_for(address: str) -> None:
    """Until all models are open: the server says 503 before."""
    end = time.monotonic() + 200
    while time.monotonic() < end:
        with contextlib.suppress(HTTPError), urlopen(f"{address}/health", timeout=100):
            return
        time.sleep(0.05)
    pytest.fail("the server has not started")


def post(address: str) -> str:
    body = json.dumps({"constraints": WORDS}).encode()
    with urlopen(Request(address, body, {"Content-Type": "application/json"}), timeout=100) as answer:
        return str(answer.read().decode())


def test_a_server_answers_and_streams() -> None:
    with server() as address:
        wait_for(address)
        whole = json.loads(post(f"{address}/v1/generate"))
        assert has_the_words(whole["results"][0][0]["text"])
        events = [event.split("\ndata: ") for event in post(f"{address}/v1/generate/stream").strip().split("\n\n")]
        assert {kind for kind, _ in events[:-1]} == {"event: stage"} and len(events) > 3
        assert events[-1][0] == "event: done" and json.loads(events[-1][1])["results"] == whole["results"]
