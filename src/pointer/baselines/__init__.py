"""The systems that the paper compares POINTER with, behind one door.

`SYSTEMS` names the module of each. A module is imported when its system is asked for, and has two functions:

    def trainee(texts, settings, sizes) -> Trainee
        What the training loop needs to train it on texts (`TrainingData`). `settings` are `BaselineSettings`, `sizes`
        is the module's own dataclass `Sizes`. A module without this function has nothing of its own to train.

    def load(folder, device=None, **settings) -> Generator
        Open what training wrote; settings are what only this system has. The generator has a `name` for records,
        `SYSTEM:FOLDER`. Its `generate_many(lists, batch_size=64, **options)` takes the names of `Options` and refuses
        what it cannot do (`results.accepted`), reads every list as `constraints.parse` does, and gives each, in their
        order, its `Generation`s, best first.

`training` is what they share when they are trained, `checkpoint` their folders, `results` what they share when they
generate.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pointer.checkpoint import embedded_folder
from pointer.errors import CheckpointError, UsageError

if TYPE_CHECKING:
    from pointer.decoding.generator import Generator
    from pointer.training.loop import Outcome
    from pointer.training.settings import BaselineSettings

SYSTEMS = {
    "cgmh": "pointer.baselines.cgmh",
    "nmstg": "pointer.baselines.nmstg",
    "autoregressive": "pointer.baselines.autoregressive",
    "grid-beam": "pointer.baselines.grid_beam",
    "keywords": "pointer.baselines.keywords",
}
"""The module of every system."""
UNTRAINED = ("keywords",)
"""Systems that have nothing to open."""


def open_system(name: str, folder: str | Path | None = None, device: str | None = None, **settings: Any) -> "Generator":
    """A system that is ready to write; `folder` is what `train_system` wrote, and the floor `keywords` needs none.

    `settings` are the system's own (`writing_settings`), such as the `iterations` of CGMH.

    >>> open_system("keywords").generate_many([["great", "food"]])[0][0].text
    'great food'
    """
    check_system(name, folder)
    _check(name, settings, writing_settings(name))
    found: Generator = _module(name).load(folder, device, **settings)
    changed = {key: value for key, value in settings.items() if value != writing_settings(name)[key]}
    found.name += "".join(f" {key}={json.dumps(value)}" for key, value in changed.items())
    return found


def check_system(name: str, folder: str | Path | None) -> None:
    """Refuse a system that there is not, or one that needs a folder without it, before any module is imported."""
    home(name)
    if name in UNTRAINED:
        return
    if folder is None:
        raise UsageError(
            f"model: expected the folder of a trained {name}, found none.", "Name what training wrote with --model."
        )
    if embedded_folder(str(folder)) is None and not Path(folder).exists():
        raise CheckpointError(
            f"Expected a folder with a trained {name}, found no {folder}.",
            f"Train it: pointer train DATA --system {name} --out {folder}",
        )


def train_system(
    name: str,
    data: str | Path,
    out: str | Path,
    settings: "BaselineSettings",
    *,
    validation: str | Path | None = None,
    about: str = "",
    show: bool = True,
    **sizes: Any,
) -> "Outcome":
    """Train a system on prepared data into the folder `out`; the same call again continues an interrupted run.

    `about` is a paragraph for the card: what the data is and under which licence. `sizes` are the system's own
    (`training_settings`).
    """
    module = _module(name)
    if not hasattr(module, "trainee"):
        raise UsageError(
            f"system: expected one that is trained, found {name}.",
            "The keywords need no training; grid-beam writes with the model of autoregressive.",
        )
    _check(name, sizes, training_settings(name))
    chosen = module.Sizes(**sizes)
    from pointer.baselines.training import SystemRun
    from pointer.training.data import TrainingData
    from pointer.training.loop import denormals_as_zero

    texts = TrainingData.open(data, validation, settings)
    with denormals_as_zero():
        return SystemRun(module.trainee(texts, settings, chosen), texts, Path(out), settings, about=about, show=show)()


def writing_settings(name: str) -> dict[str, Any]:
    """What can be set when a system is opened and only it has, with the defaults.

    >>> writing_settings("cgmh")
    {'iterations': 500, 'candidates': 50}
    """
    parameters = signature(_module(name).load).parameters
    return {key: one.default for key, one in parameters.items() if key not in ("folder", "device")}


def training_settings(name: str) -> dict[str, Any]:
    """What can be set when a system is trained and only it has, its sizes, with the defaults.

    >>> training_settings("cgmh")
    {'hidden': 300, 'layers': 1}
    """
    sizes = getattr(_module(name), "Sizes", None)
    return {field.name: field.default for field in fields(sizes)} if sizes is not None else {}


def read_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Settings as they are typed, as values.

    >>> read_settings(["iterations=100", "ordered=false"])
    {'iterations': 100, 'ordered': False}
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        try:
            found[name] = json.loads(value)
        except ValueError:
            equals = ""
        if not equals:
            raise UsageError(f'setting: expected NAME=VALUE, found "{pair}".', "For example: --setting hidden=300.")
    return found


def _check(system: str, given: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Refuse a setting that a system does not have, or that is of another kind than its default."""
    for name, value in given.items():
        if name not in known:
            raise UsageError(
                f'setting: expected {", ".join(known) or "none"}, all that {system} has here, found "{name}".',
                "Check the spelling." if known else "Leave it out.",
            )
        kind = type(known[name])
        if type(value) is not kind and (kind, type(value)) != (float, int):
            raise UsageError(
                f"setting: expected {name} to be like {json.dumps(known[name])}, found {json.dumps(value)}.",
                f"Change {name}.",
            )


def home(name: str) -> str:
    """The module of a system; an unknown one is one sentence."""
    if name not in SYSTEMS:
        raise UsageError(f'system: expected {", ".join(SYSTEMS)}, found "{name}".', "Choose one of these.")
    return SYSTEMS[name]


def _module(name: str) -> ModuleType:
    return import_module(home(name))
