"""What the systems that POINTER is compared with bring to the training loop: whole texts, a model, an objective.

    data = TrainingData.open(folder, validation, settings)                        # what `pointer prepare` made
    trainee = Trainee("cgmh", sizes, make, objective, predictions, description)   # what a system says for itself
    outcome = SystemRun(trainee, data, out, settings)()                           # the same call again goes on

The loop, its folders and its exact continuation are those of our own runs (`pointer.training.loop`). A budget in
minutes is one of the processor, so that systems get equal budgets whatever else the machine does meanwhile.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from pointer.baselines.checkpoint import open_checkpoint, parameters, save_checkpoint
from pointer.card import Description
from pointer.prepare.shards import Rows, RowSource
from pointer.training.batches import RowBatches
from pointer.training.data import TrainingData
from pointer.training.loop import Run
from pointer.training.pairs import Pairs, all_pairs, cut, keyword_pieces
from pointer.training.settings import BaselineSettings, Stages
from pointer.vocabulary import Vocabulary


@dataclass(frozen=True)
class TextBatch:
    """Texts of about one length, and what an objective may draw from."""

    texts: Rows
    vocabulary: Vocabulary
    random: np.random.Generator
    """Seeded by the step: whatever is drawn from it is drawn again when a run continues."""
    used: float
    """How much of the budget is used up, from 0 to 1; for what is annealed."""
    device: torch.device

    def __len__(self) -> int:
        return len(self.texts)

    def sequences(self) -> list[npt.NDArray[np.int64]]:
        """The ids of every text, without `[CLS]` and `[SEP]`."""
        return np.split(self.texts.ids.astype(np.int64), self.texts.offsets[1:-1])

    def keywords(self, fewest: int, most: int) -> list[npt.NDArray[np.bool_]]:
        """For every text which of its tokens belong to its keywords, `fewest` to `most` words drawn by YAKE's rank."""
        counts = self.random.integers(fewest, most, len(self), endpoint=True).tolist()
        ranks = np.split(self.texts.rank, self.texts.offsets[1:-1])
        texts = zip(self.sequences(), ranks, counts, strict=True)
        return [keyword_pieces(r, self.vocabulary.continues[ids], n, self.random) for ids, r, n in texts]


def padded(sequences: Sequence[npt.NDArray[np.int64]], fill: int, device: torch.device) -> torch.Tensor:
    """Sequences as one tensor, with `fill` after the shorter ones.

    >>> padded([np.array([5, 6]), np.array([7])], 0, torch.device("cpu")).tolist()
    [[5, 6], [7, 0]]
    """
    lengths = np.array([len(sequence) for sequence in sequences])
    ids = np.full((len(sequences), int(lengths.max(initial=0))), fill, np.int64)  # B T
    ids[np.arange(ids.shape[1]) < lengths[:, None]] = np.concatenate(sequences)
    return torch.from_numpy(ids).to(device)


Predictions = Callable[[npt.NDArray[np.int64]], npt.NDArray[np.int64]]
"""How many predictions a system makes for texts of these lengths."""


class TextBatches(RowBatches):
    """The endless stream of steps over whole texts, each once an epoch."""

    def __init__(
        self,
        rows: RowSource,
        predictions: Predictions,
        settings: BaselineSettings,
        batches_per_step: int = 1,
    ) -> None:
        super().__init__(rows, settings.seed, batches_per_step)
        self.predictions, self.batch_tokens = predictions, settings.batch_tokens

    def block(self, which: npt.NDArray[np.int64], random: np.random.Generator) -> tuple[Rows, list[Pairs]]:
        """The rows of a block and its batches; the closing pair of a row is the row itself."""
        rows = self.rows.take(which)
        pairs = all_pairs(rows, Stages(), random)
        whole = pairs[pairs.closing]
        whole = replace(whole, labels=self.predictions(whole.positions - 2))
        return rows, cut(whole, self.batch_tokens, random)


Model = TypeVar("Model", bound=nn.Module)


@dataclass(frozen=True)
class Trainee(Generic[Model]):
    """A system that wants to be trained."""

    system: str
    sizes: dict[str, Any]
    """What it takes to make the model again; kept in config.json as `sizes`."""
    make: Callable[[], Model]
    """A new model; it is called after torch has been seeded."""
    objective: Callable[[Model, TextBatch], torch.Tensor]
    """The losses of all predictions of a batch, added up; a model in `eval` mode is being validated."""
    predictions: Predictions
    description: str
    """A paragraph for the card: what it is, and the size that the paper has."""
    config: dict[str, Any] = field(default_factory=dict)
    """More for config.json, for other programs that read it."""
    is_annealed: bool = False
    """As `Run.is_annealed`."""


class SystemRun(Run):
    """Trains a system on whole texts."""

    settings: BaselineSettings

    def __init__(
        self, trainee: Trainee[Any], data: TrainingData, out: Path, settings: BaselineSettings, **options: Any
    ) -> None:
        super().__init__(out, settings, **options)
        self.trainee, self.data, self.is_annealed = trainee, data, trainee.is_annealed
        if self.accelerator.device.type == "cpu":
            self.clock = time.process_time
        self.batches = TextBatches(data.texts, trainee.predictions, settings, self.batches_per_step)
        self.validation = TextBatches(data.held_out, trainee.predictions, settings).first_block()
        self.open()

    def identity(self) -> dict[str, Any]:
        """The system, its sizes and the data."""
        return {"system": self.trainee.system, "sizes": self.trainee.sizes} | self.data.identity

    def make(self, last: Path | None) -> tuple[nn.Module, int]:
        """A new model, with the weights of a checkpoint if there is one."""
        self.model, seen = self.trainee.make(), 0
        if last is not None:
            kept = open_checkpoint(self.trainee.system, last)
            kept.load_into(self.model)
            seen = kept.config["tokens_seen"]
        return self.model, seen

    def collate(self, rows: Rows, batch: Pairs) -> TextBatch:
        """Texts, with a generator that torch seeds, which the loop has seeded."""
        random = np.random.default_rng(int(torch.randint(2**62, ())))
        return TextBatch(rows.take(batch.row), self.data.vocabulary, random, self.used, self.accelerator.device)

    def loss(self, model: Any, tensors: TextBatch) -> torch.Tensor:
        """That of the system."""
        return self.trainee.objective(model, tensors)

    def description(self) -> Description:
        """A system, its data and its sizes."""
        system = self.trainee.system
        return Description(
            "tags:\n- pointer",
            f"{self.trainee.description} A system to compare POINTER with ({system}).",
            self.data.describe(),
            usage=f'from pointer.baselines import open_system\n\nopen_system("{system}", "{{name}}")',
            sizes={"parameters": f"{parameters(self.model):,}"} | self.trainee.sizes,
        )

    def write(self, folder: Path, dtype: torch.dtype, files: dict[str, bytes]) -> None:
        """A checkpoint that `open_checkpoint` opens."""
        config = self.trainee.config | {
            "system": self.trainee.system,
            "sizes": self.trainee.sizes,
            "tokens_seen": self.tokens_seen,
        }
        save_checkpoint(folder, self.model, config, self.data.vocabulary, dtype, self.data.tables | files)
