"""The command that makes a model small and fast: export."""

import json
from pathlib import Path
from typing import Annotated

import typer

from pointer.cli.shared import Json


def export(
    checkpoint: Annotated[str, typer.Argument(help="Embedded model, folder or Hub id.")],
    out: Annotated[Path, typer.Argument(help="The folder to write.")],
    int8: Annotated[bool, typer.Option("--int8", help="Whole numbers of 8 bits: a quarter of the size.")] = False,
    as_json: Json = False,
) -> None:
    """Turn a checkpoint into one for onnxruntime, which writes without PyTorch.

    Examples:
        pointer export mine small --int8
    """
    from pointer.checkpoint import ONNX
    from pointer.runtime.export import export as run

    size = (run(checkpoint, out, int8) / ONNX).stat().st_size
    about = {"folder": str(out), "int8": int8, "bytes": size}
    print(json.dumps(about, indent=2) if as_json else f"{out / ONNX}: {size / 1e6:.1f} MB")
