"""The checkpoint folder of a trained system: weights, a config with its sizes, the vocabulary and the casing table."""

import copy
import json
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_model, save_model
from torch import nn

from pointer import __version__
from pointer.checkpoint import casing_of, checkpoint_folder, embedded_folder
from pointer.errors import CheckpointError
from pointer.integrity import check_sizes
from pointer.prepare.shards import CASING
from pointer.storage import replaced
from pointer.vocabulary import Vocabulary

WEIGHTS = "model.safetensors"


def save_checkpoint(
    folder: Path,
    model: nn.Module,
    config: dict[str, Any],
    vocabulary: Vocabulary,
    dtype: torch.dtype,
    files: dict[str, bytes],
) -> None:
    """Write a checkpoint so that it appears whole or not at all; `files` are further ones by name."""
    stored = model if dtype == torch.float32 else copy.deepcopy(model).to(dtype)
    config = config | {
        "parameters": parameters(model),
        "vocabulary": vocabulary.fingerprint,
        "versions": {"pointer": __version__, "python": platform.python_version(), "torch": torch.__version__},
    }
    with replaced(folder) as beside:
        save_model(stored, str(beside / WEIGHTS), metadata={"format": "pt"})
        (beside / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", "utf-8")
        vocabulary.save(beside)
        for name, content in files.items():
            (beside / name).write_bytes(content)


def parameters(model: nn.Module) -> int:
    """How many numbers a model has learnt."""
    return sum(parameter.numel() for parameter in model.parameters())


@dataclass(frozen=True)
class Checkpoint:
    """What is in the folder of a trained system."""

    folder: Path
    config: dict[str, Any]
    sizes: Any
    """A dataclass of the system: what its model is made from."""
    vocabulary: Vocabulary
    casing: dict[str, dict[str, str]]

    def load_into(self, model: nn.Module) -> None:
        """Give a model that was made from `sizes` its weights."""
        try:
            load_model(model, str(self.folder / WEIGHTS))
        except Exception as error:  # safetensors, torch and the file system each have their own way to fail
            raise CheckpointError(
                f"Expected in {self.folder / WEIGHTS} the weights of the model that config.json describes, found "
                f"others or none ({type(error).__name__}).",
                "Copy the folder again, or train it again.",
            ) from error


def open_checkpoint(system: str, folder: str | Path, sizes: Callable[..., Any] = dict) -> Checkpoint:
    """Open the folder of a trained system: a checkpoint, or a whole run, which stands for its best one.

    `sizes` makes what `Checkpoint.sizes` is, from the numbers in the config.
    """
    if not Path(folder).exists() and embedded_folder(str(folder)) is None:
        raise CheckpointError(
            f"Expected a folder with a trained {system}, found no {folder}.",
            f"Train it: pointer train DATA --system {system} --out {folder}",
        )
    place = checkpoint_folder(folder)
    check_sizes(place)
    try:
        config = json.loads((place / "config.json").read_text("utf-8"))
        found = config.get("system", "pointer")
        if found == system:
            made = sizes(**config["sizes"])
            _ = config["tokens_seen"], config["vocabulary"]
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise CheckpointError(
            f"Expected the config of a trained {system} in {place / 'config.json'}, found something else.",
            "Copy the folder again, or train it again.",
        ) from error
    if found != system:
        raise CheckpointError(
            f"Expected a trained {system} in {place}, found the system {found}.", f"Open it with --system {found}."
        )
    vocabulary = Vocabulary.open(place)
    if vocabulary.fingerprint != config["vocabulary"]:
        raise CheckpointError(
            f"Expected the vocabulary of the weights in {place}, found another.",
            "The folder mixes two checkpoints; copy it again.",
        )
    table = place / CASING
    return Checkpoint(place, config, made, vocabulary, casing_of(table.read_bytes() if table.is_file() else None))
