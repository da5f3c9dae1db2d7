"""Commands round models: train, convert, info."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pointer.cli.shared import Json, Setting, System
from pointer.errors import UsageError

if TYPE_CHECKING:
    from pointer.training import Outcome


def train(
    data: Annotated[Path, typer.Argument(help="A folder that `pointer prepare` made.")],
    out: Annotated[Path, typer.Option(help="The folder of the run, to make or to go on with.")],
    init: Annotated[
        str | None, typer.Option(help="Embedded model, folder or Hub id; from scratch: tiny, mini, base, large.")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="small (the default) or paper; what follows changes it.")] = None,
    validation: Annotated[Path | None, typer.Option(help="Data to validate on; else some is held out.")] = None,
    about: Annotated[str, typer.Option(help="For the model card: what the data is, under which licence.")] = "",
    epochs: Annotated[float | None, typer.Option(help="Budget: passes over the data.")] = None,
    steps: Annotated[int | None, typer.Option(help="Budget: optimizer steps.")] = None,
    tokens: Annotated[int | None, typer.Option(help="Budget: tokens of training inputs.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Budget: time on the clock.")] = None,
    patience: Annotated[int | None, typer.Option(help="Stop after so many validations without progress.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="The highest learning rate.")] = None,
    warmup_steps: Annotated[int | None, typer.Option(help="Steps until it is reached.")] = None,
    decay: Annotated[str | None, typer.Option(help="How it falls afterwards: none, linear.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Decoupled weight decay.")] = None,
    clip: Annotated[float | None, typer.Option(help="The largest norm of the gradient.")] = None,
    dropout: Annotated[float | None, typer.Option(help="In the place of the checkpoint's.")] = None,
    batch_tokens: Annotated[int | None, typer.Option(help="Positions of a batch.")] = None,
    accumulate: Annotated[int | None, typer.Option(help="Batches of each process that make a step.")] = None,
    skeleton: Annotated[str | None, typer.Option(help="Stage 0: prepared; drawn: importance, keywords, mixed.")] = None,
    keywords: Annotated[tuple[int, int] | None, typer.Option(help="Fewest and most words of a skeleton.")] = None,
    closing_share: Annotated[float | None, typer.Option(help="Share of closing pairs to train on.")] = None,
    begun_share: Annotated[float | None, typer.Option(help="Share of pairs with some gaps filled already.")] = None,
    positions: Annotated[int | None, typer.Option(help="The longest input of the model.")] = None,
    evaluate_every: Annotated[int | None, typer.Option(help="Steps between validations.")] = None,
    validation_rows: Annotated[int | None, typer.Option(help="Texts to validate on.")] = None,
    save_every: Annotated[int | None, typer.Option(help="Steps between checkpoints.")] = None,
    keep_every: Annotated[int | None, typer.Option(help="Steps between checkpoints that stay.")] = None,
    log_every: Annotated[int | None, typer.Option(help="Steps between lines of metrics.jsonl.")] = None,
    half: Annotated[
        bool | None, typer.Option("--half", help="Store checkpoints, but for the last, in float16.")
    ] = None,
    precision: Annotated[str | None, typer.Option(help="Mixed precision on a GPU: no, fp16, bf16.")] = None,
    gradient_checkpointing: Annotated[
        bool | None, typer.Option("--gradient-checkpointing", help="Less memory, more time.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all random draws.")] = None,
    system: System = "pointer",
    setting: Setting = None,
    as_json: Json = False,
) -> None:
    """Train a model on prepared data: pre-training and fine-tuning alike.

    Killed at any moment, the same command goes on from the last checkpoint as if nothing had happened. Many GPUs:
    `accelerate launch -m pointer train ...`
    """
    given = {name: value for name, value in locals().items() if value is not None}
    from dataclasses import asdict

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
    from pointer.settings import TrainingSettings

    if "setting" in given:
        raise UsageError("setting: expected with a --system of its own, found without.", "Leave it out.")
    if "init" not in given:
        raise UsageError("init: expected a model to start from, found none.", "For example: --init wiki.")
    settings = TrainingSettings.preset(given.get("preset", "small"), **_chosen(given, TrainingSettings))
    from pointer.training import train as run

    return run(given["data"], given["out"], settings, given["init"], given.get("validation"), given["about"])


def _train_other(given: dict[str, Any]) -> "Outcome":
    """Train one of the systems that POINTER is compared with."""
    from pointer.baselines import read_settings, train_system
    from pointer.baselines.fitting import FittingSettings

    chosen = _chosen(given, FittingSettings)
    known = {*chosen, "data", "out", "validation", "about", "system", "setting", "as_json"}
    for name in given:
        if name not in known:
            option = name.replace("_", "-")
            raise UsageError(f"{option}: expected for POINTER alone, found with {given['system']}.", "Leave it out.")
    sizes = read_settings(given.get("setting", []))
    return train_system(
        given["system"], given["data"], given["out"], FittingSettings(**chosen), validation=given.get("validation"),
        about=given["about"], **sizes,
    )  # fmt: skip


def _chosen(given: dict[str, Any], kind: type) -> dict[str, Any]:
    from dataclasses import fields

    return {field.name: given[field.name] for field in fields(kind) if field.name in given}


def convert(
    released: Annotated[Path, typer.Argument(help="The folder of a checkpoint that the paper's authors released.")],
    out: Annotated[Path, typer.Argument(help="The folder to write.")],
) -> None:
    """Turn a checkpoint of the authors' 2020 release into one of ours, without executing its pickle."""
    from pointer.model import convert_released

    model = convert_released(released, out)
    print(f"{out}: {model.num_parameters():,} parameters, {model.config.vocab_size:,} vocabulary entries")


def info(as_json: Json = False) -> None:
    """Print versions, device, threads, embedded models, and which optional parts are present."""
    from rich.console import Console

    from pointer.information import gather

    found = gather()
    if as_json:
        print(json.dumps(found, indent=2))
        return
    console = Console(highlight=False, soft_wrap=True)
    for title, value in found.items():
        if isinstance(value, dict):
            console.print(f"{title}:")
            for name, state in value.items():
                console.print(f"  {name:14} {state}")
        else:
            console.print(f"{title + ':':16} {', '.join(value) or 'none' if isinstance(value, list) else value}")
