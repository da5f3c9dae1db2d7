"""Models that onnxruntime runs on the CPU: no PyTorch is imported, and none has to be installed."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from pointer.errors import CheckpointError, UsageError, missing_extra
from pointer.runtime import Floats, Ints, Predict, usable_threads

WORK = 128
"""Positions of a forward pass for which another thread is worth its while."""
PARAMETERS = "parameters"
"""The number of weights, among what a model says about itself."""


class Session:
    """A graph that is ready to run. One pass runs on one thread, and several side by side; or a pass on `several`."""

    def __init__(self, path: Path, threads: int | None = None, several: bool = False) -> None:
        runtime = _onnxruntime()
        self.threads = threads or usable_threads()
        options = runtime.SessionOptions()
        options.inter_op_num_threads = 1
        options.intra_op_num_threads = self.threads if several else 1
        # Processors without VNNI would clip sums of products of int8.
        options.add_session_config_entry("session.x64quantprecision", "1")
        options.log_severity_level = 3
        try:
            self._session: Any = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the runtime has a type for every way to fail
            raise CheckpointError(
                f"Expected a model for onnxruntime in {path}, found something else ({type(error).__name__}).",
                "Copy or download it again, or make it again with: pointer export",
            ) from error

        self._process = os.getpid() if options.intra_op_num_threads > 1 else None
        """The only process whose passes can use the threads of the graph."""

    def run(self, *given: Any) -> Any:
        """One pass."""
        if self._process not in (None, os.getpid()):
            raise UsageError(
                "threads: expected a model that was opened in this process, or with threads=1, found one from before a "
                "fork.",
                "Open it after the fork, or with threads=1, or start processes with spawn.",
            )
        return self._session.run(*given)

    @property
    def parameters(self) -> int:
        """How many weights the model has."""
        about = self._session.get_modelmeta().custom_metadata_map
        return int(about.get(PARAMETERS, 0))


def predictor(session: Session) -> Predict:
    """An insertion transformer as a function of gaps; large batches are shared out among threads."""

    def predict(ids: Ints, attention: Ints | None, rows: Ints, positions: Ints) -> Floats:
        seen = np.ones_like(ids) if attention is None else attention
        parts = min(session.threads, len(ids), 1 + ids.size // WORK)
        if parts == 1:
            return ask(ids, seen, rows, positions)
        ends = [len(ids) * part // parts for part in range(parts + 1)]
        cuts = np.searchsorted(rows, ends)  # rows are in order
        shared = [
            (ids[a:b], seen[a:b], rows[start:end] - a, positions[start:end])
            for (a, b), (start, end) in zip(_pairs(ends), _pairs(cuts.tolist()), strict=True)
        ]
        return np.concatenate(list(_pool(session.threads).map(lambda part: ask(*part), shared)))

    def ask(ids: Ints, seen: Ints, rows: Ints, positions: Ints) -> Floats:
        given = {"ids": ids, "attention": seen, "rows": rows, "positions": positions}
        logits: Floats = session.run(None, given)[0]  # G V
        return logits

    return predict


def _pairs(ends: list[int]) -> list[tuple[int, int]]:
    return list(pairwise(ends))


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "pointer-onnx")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # its threads stay behind


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise missing_extra("Running an ONNX model", "onnxruntime", "writer") from error
    return onnxruntime
