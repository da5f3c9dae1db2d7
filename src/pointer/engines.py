"""Where work is done: in this process, in several, or on a Ray cluster.

Work comes in pieces. A worker opens once what it needs (a vocabulary, a model), holds it, and does one piece after the
other; the answers come back in the order of the pieces, a few ahead and no more, whoever made them. A worker that dies
is replaced on a cluster, and its piece is done again: so a piece only answers, or writes whole files.
"""

import importlib
import os
import re
import socket
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pointer import __version__
from pointer.errors import ClusterError, PointerError, UsageError, missing_extra

if TYPE_CHECKING:
    from concurrent.futures import Future

ENGINES = ("local", "ray")
AHEAD = 2
"""Pieces for each worker that may be under way: one is done, the other waits for it."""
TRIES = 5
"""How often a piece is given to another worker after its own died; one that kills every worker is given up."""

Result = TypeVar("Result")


class Workers(Protocol):
    """Whoever does the work, each with what it holds."""

    def map(self, work: Callable[..., Result], pieces: Iterable[tuple[Any, ...]]) -> Iterator[Result]:
        """`work(held, *piece)` for every piece, in order."""


@contextmanager
def workers(
    hold: Callable[[], Any], count: int | None = None, engine: str = "local", address: str | None = None
) -> Iterator[Workers]:
    """Workers that hold what `hold` opens, until the end of the context.

    `count` is how many; left out, as many as there are cores. `engine` is `local`, or `ray` for a cluster: the one at
    `address` (`auto`: the one that this machine is part of), or else one on this machine for the occasion.
    """
    if engine not in ENGINES:
        raise UsageError(f'engine: expected {" or ".join(ENGINES)}, found "{engine}".', "Choose one of them.")
    if count is not None and count < 1:
        raise UsageError(f"workers: expected at least 1, found {count}.", "Leave it out to use every core.")
    if engine == "local" and address is not None:
        raise UsageError("address: expected with --engine ray, found without.", "Name the engine, or leave it out.")
    if engine == "ray":
        with _cluster(count, address) as ray:
            yield _Cluster(ray, hold, count)
    elif (count or os.cpu_count() or 1) == 1:
        yield _Here(hold)
    else:
        with _Processes(hold, count or os.cpu_count() or 1) as processes:
            yield processes


class Worker:
    """Does pieces with what it holds."""

    def __init__(self, hold: Callable[[], Any]) -> None:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the workers are what is parallel
        self.hold = hold

    @cached_property
    def held(self) -> Any:
        """Opened when it is first needed, so that what goes wrong is said by a piece."""
        return self.hold()

    def do(self, work: Callable[..., Result], piece: tuple[Any, ...]) -> Result:
        """One piece."""
        return work(self.held, *piece)

    def version(self) -> str:
        """That of the package, where the worker runs."""
        return __version__


class _Here:
    """This process does everything."""

    def __init__(self, hold: Callable[[], Any]) -> None:
        self.held = hold()

    def map(self, work: Callable[..., Result], pieces: Iterable[tuple[Any, ...]]) -> Iterator[Result]:
        return (work(self.held, *piece) for piece in pieces)


class _Processes:
    """Processes of this machine. What runs them is imported here, as most commands need none."""

    def __init__(self, hold: Callable[[], Any], count: int) -> None:
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        self.most = AHEAD * count
        context = multiprocessing.get_context("spawn")
        self.executor = ProcessPoolExecutor(count, context, initializer=_begin, initargs=(hold,))

    def __enter__(self) -> "_Processes":
        return self

    def __exit__(self, *_: object) -> None:
        self.executor.shutdown(cancel_futures=True)

    def map(self, work: Callable[..., Result], pieces: Iterable[tuple[Any, ...]]) -> Iterator[Result]:
        from concurrent.futures.process import BrokenProcessPool

        pieces = iter(pieces)
        ahead: deque[Future[Result]] = deque()
        try:
            while True:
                ahead.extend(self.executor.submit(_do, work, piece) for piece in islice(pieces, self.most - len(ahead)))
                if not ahead:
                    return
                yield ahead.popleft().result()
        except BrokenProcessPool as error:
            raise PointerError(
                "Expected every worker to finish, found one killed (out of memory?). What was finished is kept.",
                "Give the same command again, with fewer --workers.",
            ) from error


_own: dict[str, Worker] = {}
"""The worker that a process of `_Processes` is."""


def _begin(hold: Callable[[], Any]) -> None:
    """Become a worker, which ends when its parent is killed rather than wait for work for ever."""
    import multiprocessing

    _own["worker"] = Worker(hold)
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _do(work: Callable[..., Result], piece: tuple[Any, ...]) -> Result:
    return _own["worker"].do(work, piece)


# ---------------------------------------------------------------------------------------------------------------------
# Ray


class _Cluster:
    """Actors on a Ray cluster."""

    def __init__(self, ray: Any, hold: Callable[[], Any], count: int | None) -> None:
        self.ray = ray
        cores = int(ray.cluster_resources().get("CPU", 1))
        if count is not None and count > cores:  # Ray would wait for more for ever
            raise UsageError(
                f"workers: expected at most {cores}, one a core, found {count}.", "Add nodes, or ask fewer."
            )
        actor = ray.remote(Worker).options(num_cpus=1, max_restarts=-1, max_task_retries=TRIES)
        self.actors = [actor.remote(hold) for _ in range(count or cores)]
        for found in set(ray.get([one.version.remote() for one in self.actors])) - {__version__}:
            raise ClusterError(
                f"Expected pointer-text {__version__} on every node, found {found}.", "Install one version everywhere."
            )

    def map(self, work: Callable[..., Result], pieces: Iterable[tuple[Any, ...]]) -> Iterator[Result]:
        pieces = iter(pieces)
        ahead: deque[Any] = deque()
        busy: dict[Any, Any] = {}
        load = Counter(dict.fromkeys(self.actors, 0))
        with _in_a_sentence(self.ray):
            while True:
                # What has come back early waits for its turn, but not without end: the answers are held in memory.
                while len(busy) < AHEAD * len(load) and len(ahead) < 2 * AHEAD * len(load):
                    piece = next(pieces, None)
                    if piece is None:
                        break
                    actor = min(load, key=load.__getitem__)
                    answer = actor.do.options(name=work.__name__.strip("_")).remote(work, piece)
                    ahead.append(answer)
                    busy[answer] = actor
                    load[actor] += 1
                if not ahead:
                    return
                done, _ = self.ray.wait(list(busy), num_returns=1) if busy else ([], [])
                for answer in done:
                    load[busy.pop(answer)] -= 1
                while ahead and ahead[0] not in busy:
                    yield self.ray.get(ahead.popleft())


@contextmanager
def _cluster(count: int | None, address: str | None) -> Iterator[Any]:
    """Ray, connected to a cluster."""
    # What Ray tells of its retries would otherwise stand among the texts, on standard output.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise missing_extra("--engine ray", "ray", "cluster") from error
    # Without an address Ray would take one from the environment: here that is a cluster of our own.
    where: dict[str, Any] = {"address": address} if address else {"address": "local", "num_cpus": count}
    owned = not ray.is_initialized()  # else whoever calls us has a cluster already
    if owned:
        with _in_a_sentence(ray, address or "this machine", OSError, RuntimeError, ValueError):
            _knock(address)
            ray.init(**where, log_to_driver=False, logging_level="error")
    try:
        with _in_a_sentence(ray):
            yield ray
    finally:
        if owned:
            ray.shutdown()


def _knock(address: str | None) -> None:
    """Is anybody there? Ray itself would go on trying for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=5).close()


@contextmanager
def _in_a_sentence(ray: Any, address: str = "", *also: type[Exception]) -> Iterator[None]:
    """What goes wrong in a piece is raised as it was there; what goes wrong with the cluster, as one sentence."""
    try:
        yield
    except (ray.exceptions.RayError, *also) as error:
        raise _sentence(ray.exceptions, error, address) from error


def _sentence(errors: Any, error: Exception, address: str) -> Exception:
    """The error to raise in the place of `error`, which Ray raised; `errors` are those that it has."""
    if isinstance(error, errors.RayTaskError):  # raised within a piece
        error = error.cause
        if not isinstance(error, errors.RayError | MemoryError):
            return error
    said = str(error)
    versions = re.findall(r"Ray: (\S+)\s+Python: (\S+)", said)
    if "Version mismatch" in said and len(versions) == 2:
        there, here = (f"Ray {number} and Python {python}" for number, python in versions)
        return ClusterError(
            f"Expected {there}, as the cluster at {address} has, found {here}.", "Install the same here."
        )
    if "No module named" in said:
        return ClusterError(
            "Expected the package pointer-text on every node, found one without it.",
            'Install it there: pip install "pointer-text[train,cluster]"',
        )
    if not isinstance(error, errors.RayError | MemoryError) or isinstance(error, errors.AuthenticationError):
        return ClusterError(
            f"Expected a Ray cluster at {address}, found none that lets us in ({_first_line(error)}).",
            "Start one with `ray start --head`, give its token if it has one (RAY_AUTH_MODE=token and RAY_AUTH_TOKEN), "
            "or leave --address out to use the cores of this machine.",
        )
    fewer = "Use fewer --workers on each node, or larger nodes."
    reasons = {
        (errors.OutOfMemoryError, MemoryError): ("a node out of memory", fewer),
        errors.ObjectStoreFullError: ("an object store that is full", "Give Ray more: --object-store-memory."),
        errors.OutOfDiskError: ("a node with a full disk", "Make room where Ray keeps its files."),
        # A worker that Ray replaces is not said to have been short of memory, though most are.
        errors.RayActorError: ("one that died again and again (out of memory?)", fewer + " The logs of Ray say why."),
    }
    found, hint = next((reasons[kind] for kind in reasons if isinstance(error, kind)), (_first_line(error), ""))
    again = "What was finished is kept; the same command goes on."
    return ClusterError(f"Expected every worker to finish, found {found}. {again}", hint)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")[:200] or type(error).__name__
