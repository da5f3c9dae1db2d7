"""The files of a run: its folder, its log, and the state that the same command goes on from."""

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pointer.errors import TrainingError
from pointer.storage import full_disk_explained, recover, remove_partial, write_whole

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

STATE = "training.pt"
METRICS = "metrics.jsonl"


def tidy(out: Path) -> None:
    """Make the folder of a run, without what a killed process left in it."""
    with full_disk_explained(out):
        out.mkdir(parents=True, exist_ok=True)
        for name in {path.name.split(".")[1] for path in out.glob(".*")}:
            recover(out / name)
        remove_partial(out)


def state_bytes(identity: dict[str, Any], **parts: Any) -> bytes:
    """The content of a state file."""
    buffer = io.BytesIO()
    torch.save({"identity": json.dumps(identity), **parts}, buffer)
    return buffer.getvalue()


def read_state(path: Path) -> dict[str, Any] | None:
    """What `state_bytes` made; None where there is none."""
    if not path.is_file():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        return state if {"identity", "progress", "optimizer"} <= state.keys() else None
    except Exception as error:  # zip, pickle and torch each have their own way to fail
        raise TrainingError(
            f"Expected the state of a training run in {path}, found something else ({type(error).__name__}).",
            "Delete that file to go on from the weights alone.",
        ) from error


def check_same_run(state: dict[str, Any], identity: dict[str, Any], last: Path) -> None:
    """Refuse to continue a run with other settings, data or anything else that its identity names."""
    was, now = json.loads(state["identity"]), json.loads(json.dumps(identity))
    differs = [name for name in now if was.get(name) != now[name]]
    if differs:
        shown = "" if differs[0] == "data" else f" (was {was.get(differs[0])}, is {now[differs[0]]})"
        raise TrainingError(
            f"Expected the command that began the run in {last.parent}, found another {differs[0]}{shown}.",
            f"Give the same settings (a budget may change), or start a new run: --init {last} and another --out.",
        )


class Log:
    """What was logged, as lines of `metrics.jsonl`, and for TensorBoard where that is installed."""

    def __init__(self, out: Path, step: int, is_writer: bool) -> None:
        """Go on after `step`; what was logged later is forgotten. One process of many is the writer."""
        self.path, self.is_writer = out / METRICS, is_writer
        self.lines = [line for line in _read(self.path) if line["step"] <= step]
        self.board = _tensorboard(out / "tensorboard", step) if is_writer else None
        if is_writer and self.path.exists():
            write_whole(self.path, "".join(json.dumps(line) + "\n" for line in self.lines).encode())

    @property
    def last_validation(self) -> dict[str, Any]:
        """What the newest validation found."""
        return next((line["validation"] for line in reversed(self.lines) if "validation" in line), {})

    def add(self, line: dict[str, Any]) -> None:
        """Write a line."""
        self.lines.append(line)
        if self.is_writer:
            with full_disk_explained(self.path), self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        if self.board is not None:
            kind = "validation" if "validation" in line else "training"
            for name, value in line.get("validation", line).items():
                if isinstance(value, int | float) and name != "step":
                    self.board.add_scalar(f"{kind}/{name}", value, line["step"])
            self.board.flush()


def _read(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    lines = []
    for line in path.read_text("utf-8").splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:  # a killed process may have written half of its last line
            break
    return lines


def _tensorboard(folder: Path, step: int) -> "SummaryWriter | None":
    """A writer that forgets what was written after `step`; None where TensorBoard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=step + 1)
