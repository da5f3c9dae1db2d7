"""Servers for tests: the real command in a subprocess, or a scripted model behind a real socket in this process."""

import contextlib
import json
import os
import queue
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import numpy as np
from scripted import scripted

from pointer.decoding.generator import Pointer
from pointer.runtime import Floats, Ints
from pointer.serving.app import create_app
from pointer.serving.limits import Limits, Settings
from pointer.serving.server import Server
from pointer.serving.service import Served, Service
from pointer.vocabulary import Vocabulary
from pointer.web import listen

PATIENCE = 120.0
"""Seconds after which a condition that a test waits for will not come true any more."""


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


class Turnstile:
    """A scripted model whose forward passes a test lets through; it notes which texts each one has.

    Every stage fills all gaps with `word`, so it is up to `max_stages` how many stages there are.
    """

    def __init__(self, vocabulary: Vocabulary, word: str = "very") -> None:
        self.vocabulary = vocabulary
        self.passes: list[list[str]] = []
        """Of every forward pass the last word of each text."""
        self.is_open = True
        self._permits: queue.Queue[None] = queue.Queue()
        answer = np.zeros(len(vocabulary), np.float32)
        answer[vocabulary.id(word)] = 50
        self.pointer = scripted(vocabulary, lambda ids, position: answer)
        self._predict = self.pointer.predict
        self.pointer.predict = self.predict
        self.waiting = 0

    def predict(self, ids: Ints, attention: Ints | None, rows: Ints, positions: Ints) -> Floats:
        lengths = (ids != self.vocabulary.id("[PAD]")).sum(1).tolist()
        words = [self.vocabulary.tokens[row[n - 2]] for row, n in zip(ids.tolist(), lengths, strict=True)]
        if not self.is_open:
            self.waiting += 1
            self._permits.get(timeout=PATIENCE)
        self.passes.append(words)
        return self._predict(ids, attention, rows, positions)

    def close(self) -> None:
        """From now on every forward pass waits for a permit."""
        self.passes.clear()
        self.waiting = 0
        self.is_open = False

    def permit(self, passes: int = 1) -> None:
        for _ in range(passes):
            self._permits.put(None)

    def open(self) -> None:
        """Let everything through."""
        self.is_open = True
        self.permit(1000)


LOCKED = {"preset": "plain", "lock_end": True, "max_length": 256}
"""Options under which a turnstile's texts end with their last constraint, by which a test knows them."""


class Running:
    """A server in this process."""

    def __init__(self, server: Server, url: str, thread: threading.Thread) -> None:
        self.server, self.url, self.thread = server, url, thread
        self.service: Service = server.service
        self.client = httpx.Client(base_url=url, timeout=PATIENCE, limits=httpx.Limits(max_connections=200))

    def post(self, path: str = "/v1/generate", **body: object) -> httpx.Response:
        return self.client.post(path, json=body)

    def metric(self, name: str) -> float:
        return metric(self.client.get("/metrics").text, name)


@contextlib.contextmanager
def running(open_model: Callable[[], Pointer], wait_until_ready: bool = True, **settings: object) -> Iterator[Running]:
    """Serve a model named `scripted` on a free port of this machine."""
    limits = Limits(**{k: v for k, v in settings.items() if k not in ("keys", "origins", "hosts")})  # type: ignore[arg-type]
    others = {k: v for k, v in settings.items() if k in ("keys", "origins", "hosts")}
    app = create_app({"scripted": Served(open_model)}, Settings(limits, **others))  # type: ignore[arg-type]
    listening = listen("127.0.0.1", 0)
    server = Server(app, app.state.service)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    found = Running(server, f"http://127.0.0.1:{listening.getsockname()[1]}", thread)
    try:
        until(lambda: server.started)
        if wait_until_ready:
            until(lambda: found.service.status == "ok")
        yield found
    finally:
        found.client.close()
        server.should_exit = True
        thread.join(PATIENCE)


class Command:
    """`pointer serve` in a subprocess."""

    def __init__(self, *arguments: str | Path, cwd: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pointer", "serve", "--port", "0", *map(str, arguments)],
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        self.lines: list[str] = []
        assert self.process.stderr is not None
        threading.Thread(target=lambda: self.lines.extend(self.process.stderr), daemon=True).start()  # type: ignore[arg-type]
        until(lambda: bool(self.lines) or self.process.poll() is not None)
        found = re.search(r"http://127\.0\.0\.1:\d+", self.lines[0])
        assert found, self.lines
        self.url = found[0]
        self.client = httpx.Client(base_url=self.url, timeout=PATIENCE, limits=httpx.Limits(max_connections=200))

    def wait_until_ready(self) -> None:
        def is_ready() -> bool:
            try:
                return self.client.get("/health").status_code == 200
            except httpx.TransportError as error:
                raise AssertionError(f"the server ended: {self.process.wait(PATIENCE)}, {self.lines}") from error

        until(is_ready)

    def stop(self) -> None:
        self.client.close()
        self.process.kill()
        self.process.wait()


def request_head(path: str, *headers: str) -> bytes:
    """The first lines of a request, for tests that speak to a socket."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def connected(url: str) -> socket.socket:
    """A bare connection to a server."""
    return socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])), PATIENCE)


def metric(text: str, name: str) -> float:
    """The sum of all samples of a metric."""
    found = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
    return sum(map(float, found))


def events(text: str) -> list[tuple[str, dict[str, object]]]:
    """The server-sent events of a body."""
    found = []
    for block in filter(None, text.split("\n\n")):
        if not block.startswith(":"):
            name, data = block.split("\n")
            found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def is_error(response: httpx.Response, status: int, kind: str) -> bool:
    """Has the answer this status, and the one shape of all errors?"""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert set(response.json()) == {"error"} and set(error) == {"type", "message", "hint"}, error
    assert error["message"].endswith((".", ").")) and "Traceback" not in response.text
    assert error["type"] == kind, error
    return True
