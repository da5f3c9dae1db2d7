"""Listening: one process or several, and an orderly end.

On SIGTERM or SIGINT a server finishes what it has taken and refuses new work (`/health` says so) before it stops
listening; the same signal again ends it at once.
"""

import logging
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any

from pointer.base import has_base
from pointer.errors import PointerError, UsageError, missing_extra
from pointer.serving.app import create_app
from pointer.serving.limits import Settings
from pointer.serving.metrics import MANY_PROCESSES, forget
from pointer.serving.service import Served, Service
from pointer.web import Connection, address_of, listen

try:
    import uvicorn
except ImportError as missing:
    raise missing_extra("Serving", "uvicorn", "serve") from missing

COULD_NOT = 1
"""The exit code of a process that could not start; after any other end another try is worth it."""


@dataclass(frozen=True)
class Plan:
    """Which models are served, and how; goes to every process."""

    models: dict[str, str]
    """By served name: embedded name, folder or Hub id."""
    settings: Settings = field(default_factory=Settings)
    threads: int | None = None
    """CPU threads of one process."""


def served_names(models: list[str]) -> dict[str, str]:
    """The names under which models are served: a folder by its last part, anything else by its own name."""
    names: dict[str, str] = {}
    for model in models:
        name = Path(model).resolve().name if Path(model).is_dir() else model
        if name in names:
            raise UsageError(
                f'model: expected different names, found "{name}" twice.', "Name it once, or rename a folder."
            )
        names[name] = model
    return names


def embedded_models() -> list[str]:
    """The models that come with the package and can be opened: `writer` first if its base is there, then `everyday`."""
    found = sorted(folder.name for folder in (Path(__file__).parents[1] / "checkpoints").glob("*/"))
    usable = [name for name in found if name != "writer" or has_base()]
    return sorted(usable, key=lambda name: (name != "writer", name != "everyday"))


def serve(plan: Plan, host: str, port: int, workers: int, announce: Callable[[str], None]) -> None:
    """Serve until a signal comes; `announce` is told the address once it can be reached."""
    for model in plan.models.values():
        Served.of(model)  # a wrong name is found out here, and a Hub id is fetched once
    with listen(host, port) as listening:
        announce(address_of(host, listening))
        if workers == 1:
            run(plan, listening)
        else:
            _run_many(plan, listening, workers)


def run(plan: Plan, listening: socket.socket) -> None:
    """Serve in this process."""
    _log_to_stderr()
    app = create_app({name: Served.of(model, plan.threads) for name, model in plan.models.items()}, plan.settings)
    server = Server(app, app.state.service)
    server.run(sockets=[listening])
    if app.state.service.failure:
        raise app.state.service.failure


class Server(uvicorn.Server):
    """A uvicorn server that empties its queues before it stops listening."""

    def __init__(self, app: Any, service: Service) -> None:
        limits = service.limits
        config = uvicorn.Config(
            app,
            http=Connection.limited(limits.connections, limits.header_seconds),
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=int(limits.seconds) + 5,
        )
        super().__init__(config)
        self.service = service
        self._seen: set[int] = set()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal begins the end, the same one again is the end."""
        # Ctrl-C on several processes reaches each of them twice: as SIGINT, and as SIGTERM from their parent.
        if sig in self._seen:
            self.should_exit = self.force_exit = True
        self._seen.add(sig)
        self.service.stop()

    async def on_tick(self, counter: int) -> bool:
        """Time to stop listening?"""
        return await super().on_tick(counter) or (self.service.status == "stopping" and self.service.is_idle)


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    for name, level in (("pointer.serving", logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)


# ---------------------------------------------------------------------------------------------------------------------
# Several processes


def _run_many(plan: Plan, listening: socket.socket, workers: int) -> None:
    """Serve in several processes that share a socket. One that dies is replaced; one that cannot start ends all."""
    processes: list[BaseProcess] = []
    is_stopping = False

    def stop(*_: Any) -> None:
        nonlocal is_stopping
        is_stopping = True
        for process in processes:
            if process.pid and process.is_alive():
                os.kill(process.pid, signal.SIGTERM)

    def start() -> None:
        process = multiprocessing.get_context("spawn").Process(target=_work, args=(plan, listening))
        process.start()
        processes.append(process)
        if is_stopping:  # the signal came before there was anybody to pass it on to
            process.terminate()

    for sig in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sig, stop)
    with tempfile.TemporaryDirectory(prefix="pointer-metrics-") as counts:
        os.environ[MANY_PROCESSES] = counts
        for _ in range(workers):
            start()
        while processes:
            wait([process.sentinel for process in processes], timeout=1)
            for ended in [process for process in processes if not process.is_alive()]:
                processes.remove(ended)
                forget(ended.pid, counts)
                if is_stopping:
                    continue
                if ended.exitcode == COULD_NOT:
                    stop()
                    raise SystemExit(COULD_NOT)
                start()


def _work(plan: Plan, listening: socket.socket) -> None:
    """What each of several processes does."""
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    try:
        run(plan, listening)
    except PointerError as error:
        print(f"pointer: {error}", file=sys.stderr)
        sys.exit(COULD_NOT)


def _stop_with_parent() -> None:
    """A process whose parent was killed would keep the port for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
