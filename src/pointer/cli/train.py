"""Commands round models: train, convert, info."""

import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pointer.checkpoint import SIZES, checkpoint_folder
from pointer.cli.options import with_options
from pointer.cli.shared import Json, Setting, System
from pointer.errors import UsageError
from pointer.prepare.manifest import read_manifest
from pointer.storage import location
from pointer.training.settings import CHOICES, RANGES, BaselineSettings, CausalSettings, TrainingSettings

if TYPE_CHECKING:
    from pointer.training.loop import Outcome


@dataclass(frozen=True)
class AnySettings(TrainingSettings, CausalSettings):
    """Everything that a run of any kind may be told."""


GROUPS = {
    "Budget": "minutes epochs steps tokens patience",
    "Data": "skeleton schedule keywords closing_share begun_share validation_rows",
    "Checkpoints": "evaluate_every save_every keep_every half",
}


@with_options("chosen", AnySettings, RANGES, CHOICES, GROUPS, given_only=True)
def train(
    data: Annotated[
        str, typer.Argument(help="A folder that `pointer prepare` made; with --backbone, texts: a file, or a folder.")
    ],
    out: Annotated[Path, typer.Option(help="The folder of the run, to make or to go on with.")],
    init: Annotated[
        str | None, typer.Option(help="Embedded model, folder or Hub id; from scratch: tiny, mini, base, large.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="Settings to begin with, small (the default) or paper; all others change these.")
    ] = None,
    validation: Annotated[str | None, typer.Option(help="Data to validate on; else some is held out.")] = None,
    about: Annotated[str, typer.Option(help="For the model card: what the data is, under which licence.")] = "",
    backbone: Annotated[
        str | None, typer.Option(help="Train an adapter for a causal language model: smollm2, folder or Hub id.")
    ] = None,
    style: Annotated[str | None, typer.Option(help="With --backbone: what the texts of a file are like.")] = None,
    as_json: Json = False,
    *,
    chosen: dict[str, Any],
    system: System = "pointer",
    setting: Setting = None,
) -> None:
    """Train a model on prepared data: pre-training and fine-tuning alike. With --backbone, on texts as they are.

    Killed at any moment, the same command goes on from the last checkpoint as if nothing had happened. Many GPUs:
    `accelerate launch -m pointer train ...`

    Examples:
        pointer train data --init wiki --minutes 30 --out mine
        pointer train data --init tiny --steps 1000 --out small
        pointer train mine.txt --backbone smollm2 --style reviews --minutes 60 --out mine
    """
    given = {name: value for name, value in locals().items() if name != "chosen" and value is not None} | chosen
    if backbone is not None:
        outcome = _train_adapter(given)
    else:
        outcome = _train(given) if system == "pointer" else _train_other(given)
    if int(os.environ.get("RANK", "0")):  # one process of many speaks for all
        return
    if as_json:
        print(json.dumps(asdict(outcome), indent=2))
        return
    print(
        f"{out}: {outcome.reason} after {outcome.step:,} steps and {outcome.tokens:,} tokens; validation loss "
        f"{outcome.validation['loss']:.4f}; {outcome.real_share:.1%} of the positions computed were real tokens"
    )


def _train(given: dict[str, Any]) -> "Outcome":
    if "setting" in given:
        raise UsageError("setting: expected with a --system of its own, found without.", "Leave it out.")
    if "init" not in given:
        raise UsageError("init: expected a model to start from, found none.", "For example: --init wiki.")
    for name in ("style", "rank", "first_layer"):
        if name in given:
            option = name.replace("_", "-")
            raise UsageError(f"{option}: expected with --backbone, found without.", "Leave it out.")
    settings = TrainingSettings.preset(given.get("preset", "small"), **_chosen(given, TrainingSettings))
    _check_data(given)
    # A run that goes on does not need what it once started from.
    if given["init"] not in SIZES and not given["out"].exists():
        checkpoint_folder(given["init"])
    from pointer.runs import train as run

    return run(given["data"], given["out"], settings, given["init"], given.get("validation"), given["about"])


def _train_adapter(given: dict[str, Any]) -> "Outcome":
    """Train an adapter for a causal language model."""
    from pointer.prepare.corpus import Corpus

    if not Path(given["data"]).is_dir():
        Corpus((str(given["data"]),))

    chosen = _chosen(given, CausalSettings)
    own = {"data", "out", "init", "about", "backbone", "style", "system", "as_json"}
    _refuse(given, {*chosen, *own}, "an adapter")
    from pointer.runs import train_causal

    return train_causal(
        given["data"], given["out"], CausalSettings(**chosen), given["backbone"], given.get("init"),
        given.get("style"), given["about"],
    )  # fmt: skip


def _check_data(given: dict[str, Any]) -> None:
    """Refuse folders without prepared data before PyTorch is imported, which takes seconds."""
    for name in ("data", "validation"):
        if name in given:
            read_manifest(location(given[name]))


def _refuse(given: dict[str, Any], known: set[str], what: str) -> None:
    """Refuse an option that means nothing here."""
    for name in given:
        if name not in known:
            option = name.replace("_", "-")
            raise UsageError(f"{option}: expected for POINTER alone, found with {what}.", "Leave it out.")


def _train_other(given: dict[str, Any]) -> "Outcome":
    """Train one of the systems that POINTER is compared with."""
    from pointer.baselines import home, read_settings, train_system

    home(given["system"])
    _check_data(given)

    chosen = _chosen(given, BaselineSettings)
    own = {"data", "out", "validation", "about", "system", "setting", "as_json"}
    _refuse(given, {*chosen, *own}, given["system"])
    sizes = read_settings(given.get("setting", []))
    return train_system(
        given["system"], given["data"], given["out"], BaselineSettings(**chosen), validation=given.get("validation"),
        about=given["about"], **sizes,
    )  # fmt: skip


def _chosen(given: dict[str, Any], kind: type) -> dict[str, Any]:
    return {field.name: given[field.name] for field in fields(kind) if field.name in given}


def convert(
    released: Annotated[Path, typer.Argument(help="The folder of a checkpoint that the paper's authors released.")],
    out: Annotated[Path, typer.Argument(help="The folder to write.")],
) -> None:
    """Turn a checkpoint of the authors' 2020 release into one of ours, without executing its pickle.

    Examples:
        pointer convert released/ ours/
    """
    from pointer.model import convert_released

    model = convert_released(released, out)
    print(f"{out}: {model.num_parameters():,} parameters, {model.config.vocab_size:,} vocabulary entries")


def info(as_json: Json = False) -> None:
    """Print versions, device, threads, embedded models, and which optional parts are present.

    Examples:
        pointer info
        pointer info --json
    """
    from rich.console import Console

    from pointer.information import gather

    found = gather()
    if as_json:
        print(json.dumps(found, indent=2))
        return
    console = Console(highlight=False, soft_wrap=True, markup=False)
    for title, value in found.items():
        if isinstance(value, dict):
            console.print(f"{title}:")
            for name, state in value.items():
                console.print(f"  {name:14} {state}")
        else:
            console.print(f"{title + ':':16} {', '.join(value) or 'none' if isinstance(value, list) else value}")
