"""The systems that the paper compares POINTER with, behind one door.

`SYSTEMS` names the module of each. A module is imported when its system is asked for, and has two functions:

    def train(data, out, settings, *, validation=None, about="", show=True, **sizes) -> Outcome
        Train on a folder of `pointer prepare` into the folder `out`. `settings` is a `FittingSettings`, `sizes` are
        the fields of the module's own dataclass; an unknown one is a UsageError, and so is a system without training.

    def load(folder, device=None, **settings) -> Generator
        Open what `train` wrote; settings are what only this system has. The generator has a `name` for records,
        `SYSTEM:FOLDER`. Its `generate_many(lists, batch_size=64, **options)` takes the names of `Options` and refuses
        what it cannot do (`results.accepted`), reads every list as `constraints.parse` does, and gives each, in their
        order, its `Generation`s, best first.

`fitting` is the training loop they share, `results` what they share when they generate.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pointer.errors import UsageError

if TYPE_CHECKING:
    from pointer.baselines.fitting import FittingSettings
    from pointer.decoding.generator import Generator
    from pointer.training import Outcome

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
    module = _module(name)
    _check(name, settings, writing_settings(name))
    if folder is None and name not in UNTRAINED:
        raise UsageError(
            f"model: expected the folder of a trained {name}, found none.", "Name what training wrote with --model."
        )
    found: Generator = module.load(folder, device, **settings)
    changed = {key: value for key, value in settings.items() if value != writing_settings(name)[key]}
    found.name += "".join(f" {key}={json.dumps(value)}" for key, value in changed.items())
    return found


def train_system(
    name: str,
    data: str | Path,
    out: str | Path,
    settings: "FittingSettings",
    *,
    validation: str | Path | None = None,
    about: str = "",
    show: bool = True,
    **sizes: Any,
) -> "Outcome":
    """Train a system on prepared data into the folder `out`; the same call again continues an interrupted run."""
    module = _module(name)
    _check(name, sizes, training_settings(name))
    found: Outcome = module.train(data, out, settings, validation=validation, about=about, show=show, **sizes)
    return found


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


def _module(name: str) -> ModuleType:
    if name not in SYSTEMS:
        raise UsageError(f'system: expected {", ".join(SYSTEMS)}, found "{name}".', "Choose one of these.")
    return import_module(SYSTEMS[name])
