"""The systems that the paper compares POINTER with, behind one door.

`SYSTEMS` names the module of each. A module is imported when its system is asked for, and has two functions:

    def train(data, out, settings, *, validation=None, about="", show=True, **sizes) -> Outcome
        Train on a folder of `pointer prepare` into the folder `out`. `settings` is a `FittingSettings`, `sizes` are
        the fields of the module's own dataclass; an unknown one is a UsageError, and so is a system without training.

    def load(folder, device=None) -> Generator
        Open what `train` wrote. The generator has a `name` for records, `SYSTEM:FOLDER`. Its `generate_many(lists,
        batch_size=64, **options)` takes the names of `Options` and refuses what it cannot do (`results.accepted`),
        reads every list as `constraints.parse` does, and gives each, in their order, its `Generation`s, best first.

`fitting` is the training loop they share, `results` what they share when they generate.
"""

from importlib import import_module
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


def open_system(name: str, folder: str | Path | None = None, device: str | None = None) -> "Generator":
    """A system that is ready to write; `folder` is what `train_system` wrote, and the floor `keywords` needs none.

    >>> open_system("keywords").generate_many([["great", "food"]])[0][0].text
    'great food'
    """
    module = _module(name)
    if folder is None and name not in UNTRAINED:
        raise UsageError(f"model: expected the folder of a trained {name}, found none.", "Name what training wrote.")
    found: Generator = module.load(folder, device)
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
    found: Outcome = module.train(data, out, settings, validation=validation, about=about, show=show, **sizes)
    return found


def _module(name: str) -> ModuleType:
    if name not in SYSTEMS:
        raise UsageError(f'system: expected {", ".join(SYSTEMS)}, found "{name}".', "Choose one of these.")
    return import_module(SYSTEMS[name])
