"""What runs a model: tokens in, logits out, as NumPy arrays. Nothing else knows whether it is PyTorch or another.

A parallel model is a function of gaps (`Predict`), a causal one a function of prefixes (`NextToken`).
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from threading import Event, local
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from pointer.errors import UsageError

Floats: TypeAlias = npt.NDArray[np.float32]
Ints: TypeAlias = npt.NDArray[np.int64]

Predict: TypeAlias = Callable[[Ints, Ints | None, Ints, Ints], Floats]
"""`(ids B T, attention B T or None, rows G, positions G) -> logits G V` of the gaps right of those positions."""
Prefix: TypeAlias = tuple[int, ...]
NextToken: TypeAlias = Callable[[Sequence[Prefix]], Floats]
"""For every prefix the log-probability of every token to come next: `B` prefixes -> `B V`."""

LARGEST_LOGIT = 1e4
"""No trained model comes near it; it keeps an infinite logit from turning the others into NaN."""


_is_forked = False
"""Is this a child of a process that could run models?"""


def _note_fork() -> None:
    global _is_forked
    _is_forked = True


if hasattr(os, "register_at_fork"):  # there is none on Windows
    os.register_at_fork(after_in_child=_note_fork)


def check_threads(threads: int) -> None:
    """Refuse a number of threads that cannot be. A fork does not take threads along: who waits for them, hangs."""
    if threads < 1:
        raise UsageError(f"threads: expected at least 1, found {threads}.", "Leave it out for all cores.")
    if threads > 1 and _is_forked:
        raise UsageError(
            f"threads: expected 1 in a process that was forked, found {threads}.",
            "Start it with spawn (multiprocessing.get_context) for more.",
        )


def usable_threads() -> int:
    """All cores; one in a process that was forked."""
    return 1 if _is_forked else os.cpu_count() or 1


Task = TypeVar("Task")
Answer = TypeVar("Answer")


def spare_threads(predict: Any) -> int:
    """How many passes can run at once: as many as the model says, but one in a thread that is one of several itself."""
    several: int = getattr(predict, "side_by_side", 1)
    return 1 if hasattr(_ahead, "is_over") else several


def side_by_side(work: Callable[[Task], Answer], tasks: Iterable[Task], predict: Any) -> Iterator[Answer]:
    """What `work`, which asks a model, makes of every task, in order.

    Where there are threads to spare, some tasks are done ahead. One that is gives up at its next pass when nobody waits
    for it any more.
    """
    threads = spare_threads(predict)
    if threads == 1:
        yield from map(work, tasks)
        return
    is_over = Event()

    def ahead(task: Task) -> Answer:
        _ahead.is_over = is_over
        return work(task)

    begun: deque[Future[Answer]] = deque()
    try:
        for task in tasks:
            begun.append(_pool(threads).submit(ahead, task))
            if len(begun) > threads:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        is_over.set()


class Unwanted(Exception):
    """Nobody waits any more for what a thread does ahead."""


def check_wanted() -> None:
    """Called before a pass; ends a task in a thread that nobody waits for."""
    if hasattr(_ahead, "is_over") and _ahead.is_over.is_set():
        raise Unwanted


_ahead = local()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "pointer")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # its threads stay behind


def log_softmax(scores: Floats) -> Floats:
    """The logarithm of the probabilities along the last axis.

    >>> np.exp(log_softmax(np.array([[0.0, 0.0, -np.inf]], np.float32))).tolist()
    [[0.5, 0.5, 0.0]]
    """
    found: Floats = scores - scores.max(-1, keepdims=True)
    found -= np.log(np.exp(found).sum(-1, keepdims=True))
    return found


def logsumexp(scores: Floats) -> Floats:
    """The logarithm of the sum of the exponentials along the last axis; -inf of nothing, or of -inf alone.

    >>> float(logsumexp(np.full(2, -np.inf, np.float32)))
    -inf
    """
    largest = np.maximum(scores.max(-1, initial=-np.inf), np.finfo(np.float32).min)
    with np.errstate(divide="ignore"):
        found: Floats = largest + np.log(np.exp(scores - largest[..., None]).sum(-1))
    return found


def best(scores: Floats, count: int) -> Ints:
    """The places of the largest scores along the last axis, largest first, the lower before the higher of a tie."""
    count = min(count, scores.shape[-1])
    some = np.sort(np.argpartition(scores, -count, axis=-1)[..., -count:], axis=-1)
    order = np.argsort(-np.take_along_axis(scores, some, -1), axis=-1, kind="stable")
    return np.take_along_axis(some, order, -1)
