"""Commands round models: train, calibrate, convert, info."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pointer.cli.shared import Json, Seed, Setting, System, bar
from pointer.errors import UsageError

if TYPE_CHECKING:
    from pointer.training import Outcome


def train(
    data: Annotated[
        Path, typer.Argument(help="A folder that `pointer prepare` made; with --backbone, texts: a file, or a folder.")
    ],
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
    schedule: Annotated[str | None, typer.Option(help="When tokens are born: paper (late), eager (early).")] = None,
    keywords: Annotated[tuple[int, int] | None, typer.Option(help="Fewest and most words of a skeleton.")] = None,
    closing_share: Annotated[float | None, typer.Option(help="Share of closing pairs to train on.")] = None,
    begun_share: Annotated[float | None, typer.Option(help="Share of pairs with some gaps filled already.")] = None,
    taken_share: Annotated[float | None, typer.Option(help="Share of closing pairs with words taken out.")] = None,
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
    backbone: Annotated[
        str | None, typer.Option(help="Train an adapter for a causal language model: smollm2, folder or Hub id.")
    ] = None,
    style: Annotated[str | None, typer.Option(help="With --backbone: what the texts of a file are like.")] = None,
    rank: Annotated[int | None, typer.Option(help="With --backbone: of the adapter.")] = None,
    first_layer: Annotated[int | None, typer.Option(help="With --backbone: the first that gets an adapter.")] = None,
    system: System = "pointer",
    setting: Setting = None,
    as_json: Json = False,
) -> None:
    """Train a model on prepared data: pre-training and fine-tuning alike. With --backbone, on texts as they are.

    Killed at any moment, the same command goes on from the last checkpoint as if nothing had happened. Many GPUs:
    `accelerate launch -m pointer train ...`
    """
    given = {name: value for name, value in locals().items() if value is not None}
    from dataclasses import asdict

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
    from pointer.settings import TrainingSettings

    if "setting" in given:
        raise UsageError("setting: expected with a --system of its own, found without.", "Leave it out.")
    if "init" not in given:
        raise UsageError("init: expected a model to start from, found none.", "For example: --init wiki.")
    for name in ("style", "rank", "first_layer"):
        if name in given:
            option = name.replace("_", "-")
            raise UsageError(f"{option}: expected with --backbone, found without.", "Leave it out.")
    settings = TrainingSettings.preset(given.get("preset", "small"), **_chosen(given, TrainingSettings))
    from pointer.training import train as run

    return run(given["data"], given["out"], settings, given["init"], given.get("validation"), given["about"])


def _train_adapter(given: dict[str, Any]) -> "Outcome":
    """Train an adapter for a causal language model."""
    from pointer.causal_training import CausalSettings, train_causal
    from pointer.settings import STAGES

    chosen = _chosen(given, CausalSettings)
    own = {"data", "out", "init", "about", "backbone", "style", "system", "as_json"}
    _refuse(given, {*chosen, *own} - {*STAGES}, "an adapter")
    return train_causal(
        given["data"], given["out"], CausalSettings(**chosen), given["backbone"], given.get("init"),
        given.get("style"), given["about"],
    )  # fmt: skip


def _refuse(given: dict[str, Any], known: set[str], what: str) -> None:
    """Refuse an option that means nothing here."""
    for name in given:
        if name not in known:
            option = name.replace("_", "-")
            raise UsageError(f"{option}: expected for POINTER alone, found with {what}.", "Leave it out.")


def _train_other(given: dict[str, Any]) -> "Outcome":
    """Train one of the systems that POINTER is compared with."""
    from pointer.baselines import read_settings, train_system
    from pointer.baselines.fitting import FittingSettings

    chosen = _chosen(given, FittingSettings)
    own = {"data", "out", "validation", "about", "system", "setting", "as_json"}
    _refuse(given, {*chosen, *own}, given["system"])
    sizes = read_settings(given.get("setting", []))
    return train_system(
        given["system"], given["data"], given["out"], FittingSettings(**chosen), validation=given.get("validation"),
        about=given["about"], **sizes,
    )  # fmt: skip


def _chosen(given: dict[str, Any], kind: type) -> dict[str, Any]:
    from dataclasses import fields

    return {field.name: given[field.name] for field in fields(kind) if field.name in given}


def calibrate(
    model: Annotated[Path, typer.Argument(help="The folder of a checkpoint, or of a training run.")],
    texts: Annotated[str, typer.Argument(help="Texts to be like, one a line, also .gz .xz .zst; - is stdin.")],
    keywords: Annotated[int, typer.Option(help="The most keywords that a text is written around.")] = 4,
    lists: Annotated[int, typer.Option(help="Texts of a pass.")] = 1000,
    passes: Annotated[int, typer.Option(help="How often to write, count and correct.")] = 3,
    length: Annotated[float, typer.Option(help="The share of the length of these texts to aim at.")] = 1.0,
    seed: Seed = 0,
) -> None:
    """Hold a trained model to the words and the length of people's texts.

    It writes around keywords of the texts; words that it uses too often then cost more. Give texts of the training
    corpus, not those of a test. The result is kept after every pass, and the same command again goes on from it.
    """
    from pointer.decoding.calibration import calibrate as run
    from pointer.decoding.generator import Pointer
    from pointer.model import CALIBRATION, checkpoint_folder
    from pointer.prepare.corpus import Corpus, Text
    from pointer.storage import write_whole

    if not model.is_dir():
        raise UsageError(f"model: expected a folder, found none at {model}.", "Copy an embedded model to change it.")
    folder = checkpoint_folder(model)
    found = [line.text for line in Corpus((texts,)) if isinstance(line, Text)]
    pointer = Pointer.from_pretrained(folder)
    with bar() as progress:
        results = run(
            pointer, found, most=keywords, lists=lists, passes=passes, length=length, seed=seed, progress=progress
        )
        for usage, calibration in results:
            write_whole(folder / CALIBRATION, calibration.to_bytes())
            too_many = ", ".join(f'"{token}"' for token in usage.overused(6))
            print(f"{usage.length:.2f} of the length, {usage.distance:.1%} of the words wrong; too many: {too_many}")
    print(f"{folder / CALIBRATION}: [NOI] {calibration.noi:+.2f}, {len(calibration.words):,} words")


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
