"""Training runs as users start them: a model is trained, and at every validation it writes a few texts to read.

Training itself knows nothing of decoding. Here it is told how a model in training is opened as one that writes.
"""

from pathlib import Path

from pointer.base import SMOLLM2
from pointer.checkpoint import checkpoint_folder, is_causal
from pointer.decoding.parallel import ParallelPointer
from pointer.decoding.writer import Writer
from pointer.errors import UsageError
from pointer.training.causal import CausalRun
from pointer.training.examples import read_texts
from pointer.training.insertion import InsertionRun
from pointer.training.loop import Outcome, denormals_as_zero
from pointer.training.settings import CausalSettings, TrainingSettings


def train(
    data: str | Path,
    out: str | Path,
    settings: TrainingSettings,
    init: str | Path,
    validation: str | Path | None = None,
    about: str = "",
    show: bool = True,
) -> Outcome:
    """Train a model on prepared data into the folder `out`; the same call again continues an interrupted run.

    `init` is a size, an embedded model, a folder or a Hub id. `about` is a paragraph for the model card: what the data
    is and under which licence. `show` draws progress on stderr.
    """
    with denormals_as_zero():
        return InsertionRun(
            data, Path(out), settings, init, validation, about=about, show=show,
            opener=lambda model: ParallelPointer.of(model, str(out)),
        )()  # fmt: skip


def train_causal(
    data: str | Path,
    out: str | Path,
    settings: CausalSettings,
    backbone: str | Path = SMOLLM2,
    init: str | Path | None = None,
    style: str | None = None,
    about: str = "",
    show: bool = True,
) -> Outcome:
    """Train an adapter on texts into the folder `out`; the same call again continues an interrupted run.

    `data` is a file of one style, or a folder with a file for each style (`read_texts`). `init` is an adapter to go on
    from. `about` is a paragraph for the model card: what the data is and under which licence.
    """
    if init is not None and not is_causal(checkpoint_folder(init)):
        raise UsageError(f"init: expected an adapter for a backbone, found {init}.", "Leave it out, or name one.")
    with denormals_as_zero():
        return CausalRun(
            read_texts(data, style), Path(out), settings, backbone, init, about=about, show=show,
            opener=lambda inserter: Writer.of_inserter(inserter, str(out)),
        )()  # fmt: skip
