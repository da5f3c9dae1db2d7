"""Models that onnxruntime runs on the CPU: no PyTorch is imported, and none has to be installed."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pointer.errors import CheckpointError, missing_extra
from pointer.runtime import Floats, Ints, check_wanted, usable_threads

PARAMETERS = "parameters"
"""The number of weights, among what a model says about itself."""


class Session:
    """A graph that is ready to run. One pass runs on one thread, and several side by side."""

    def __init__(self, model: Path | bytes, threads: int | None = None) -> None:
        runtime = _onnxruntime()
        self.threads = threads or usable_threads()
        options = runtime.SessionOptions()
        options.inter_op_num_threads = 1
        options.intra_op_num_threads = 1
        if not _adds_exactly():
            options.add_session_config_entry("session.x64quantprecision", "1")
        options.log_severity_level = 3
        given, name = (model, "memory") if isinstance(model, bytes) else (str(model), str(model))
        try:
            self._session: Any = runtime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the runtime has a type for every way to fail
            raise CheckpointError(
                f"Expected a model for onnxruntime in {name}, found something else ({type(error).__name__}).",
                "Copy or download it again, or make it again with: pointer export",
            ) from error

    def run(self, *given: Any) -> Any:
        """One pass."""
        check_wanted()
        return self._session.run(*given)

    @property
    def parameters(self) -> int:
        """How many weights the model has."""
        about = self._session.get_modelmeta().custom_metadata_map
        return int(about.get(PARAMETERS, 0))


class Predictor:
    """An insertion transformer as a function of gaps (`Predict`)."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.side_by_side = session.threads

    def __call__(self, ids: Ints, attention: Ints | None, rows: Ints, positions: Ints) -> Floats:
        seen = np.ones_like(ids) if attention is None else attention
        given = {"ids": ids, "attention": seen, "rows": rows, "positions": positions}
        logits: Floats = self.session.run(None, given)[0]  # G V
        return logits


@cache
def _adds_exactly() -> bool:
    """Has this processor VNNI? Others clip sums of two products of 8 bits, unless told to take twice the time."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as file:
            return "_vnni" in file.read(8192)  # what the first core has
    except OSError:  # not Linux
        return False


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise missing_extra("Running an ONNX model", "onnxruntime", "writer") from error
    return onnxruntime
