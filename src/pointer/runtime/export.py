"""`pointer export`: a checkpoint whose model is an ONNX graph, which runs without PyTorch and, in int8, is small."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from pointer.checkpoint import ONNX, checkpoint_folder, insertion_config
from pointer.errors import CheckpointError, UsageError, missing_extra
from pointer.runtime import Floats
from pointer.runtime.graph import insertion_graph, weights_of
from pointer.runtime.known import check_graph
from pointer.runtime.onnx import PARAMETERS
from pointer.storage import replaced
from pointer.vocabulary import Vocabulary

NEEDED = ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias")


def export(source: str | Path, out: str | Path, int8: bool = False) -> Path:
    """Write the checkpoint `source` to the folder `out` with `model.onnx` in the place of its weights.

    In int8 it is a quarter of the size and two to four times as fast; a few decisions in a thousand come out otherwise.
    """
    folder, target = checkpoint_folder(source), Path(out)
    config = insertion_config(folder)
    Vocabulary.of_checkpoint(folder, config["pointer"]["vocabulary"])
    if target.resolve() == folder.resolve():
        raise UsageError(f"out: expected another folder than the checkpoint's own, found {out}.", "Choose another.")
    graph = _graph(folder, config, int8)
    with replaced(target) as beside:
        for path in folder.iterdir():
            if path.is_file() and path.suffix in (".json", ".gz", ".md", ".png", ".txt"):
                shutil.copyfile(path, beside / path.name)
        (beside / ONNX).write_bytes(graph)
    return target


def _graph(folder: Path, config: dict[str, Any], int8: bool) -> bytes:
    onnx_package()
    weights = checkpoint_weights(folder)
    if missing := [name for name in NEEDED if name not in weights]:
        raise CheckpointError(
            f"Expected the weights of an insertion transformer in {folder}, found none called {missing[0]}.",
            "Copy or download it again, or train it again.",
        )
    model = insertion_graph(weights, config, int8)
    entry = model.metadata_props.add()
    entry.key, entry.value = PARAMETERS, str(sum(values.size for values in weights.values()))
    found: bytes = model.SerializeToString()
    return found


def checkpoint_weights(folder: Path) -> dict[str, Floats]:
    """The weights of a checkpoint in float32, by the names of `BertForMaskedLM`."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    files = sorted(folder.glob("model*.safetensors"))
    if not files and (folder / ONNX).is_file():
        return onnx_weights(folder / ONNX)
    try:
        stored = {name: values for path in files for name, values in load_file(path).items()}
    except (SafetensorError, TypeError, KeyError) as error:  # cut off, or of a kind that NumPy does not have
        raise CheckpointError(
            f"Expected weights in float16 or float32 in {folder}, found something else ({type(error).__name__}).",
            "Copy or download it again, or train it again.",
        ) from error
    return {name: values.astype(np.float32) for name, values in stored.items()}


def onnx_weights(path: Path) -> dict[str, Floats]:
    """The weights of an exported model in float32; those of int8 as near as their scales tell."""
    onnx = onnx_package()
    check_graph(path, insertion_config(path.parent))
    try:
        found = weights_of(onnx.load(str(path), load_external_data=False))
    except Exception as error:  # protobuf and NumPy each have their own way to fail
        raise CheckpointError(
            f"Expected a model that pointer export wrote in {path}, found something else ({type(error).__name__}).",
            "Copy or download it again.",
        ) from error
    return found


def onnx_package() -> Any:
    """The package onnx, which reads and writes graphs."""
    try:
        import onnx
    except ImportError as error:
        raise missing_extra("Reading or writing ONNX files", "onnx", "writer") from error
    return onnx
