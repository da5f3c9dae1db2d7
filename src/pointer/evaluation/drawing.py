"""Pictures of results: checked before anything is measured, whole or not there."""

import io
from pathlib import Path
from typing import Any

from pointer.errors import StorageError, UsageError, missing_extra
from pointer.storage import write_whole

KINDS = (".png", ".svg", ".pdf")
ELSEWHERE = "Choose another place with --plot."


def check_picture(path: Path) -> None:
    """Refuse what cannot become a picture, before minutes are spent on what it would show."""
    if path.suffix.lower() not in KINDS:
        raise UsageError(f"plot: expected a .png, .svg or .pdf file, found {path}.", "Give it such a name.")
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise missing_extra("Drawing", "matplotlib", "eval") from error
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"Could not make the folder {path.parent}: {error.strerror}.", ELSEWHERE) from error
    if path.is_dir():
        raise UsageError(f"plot: expected a file, found the folder {path}.", "Choose another name.")


def new_figure(width: float, height: float) -> Any:
    """An empty figure of so many inches; no window is opened anywhere."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save_picture(figure: Any, path: Path) -> None:
    """Write a figure in the form that the name of the file asks for."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.lower()[1:], dpi=120)
    try:
        write_whole(path, buffer.getvalue())
    except OSError as error:
        raise StorageError(f"Could not write {path}: {error.strerror}.", ELSEWHERE) from error
