"""How a model is trained, as one object a kind of model; light to import, so that a wrong option is refused at once."""

import math
from dataclasses import dataclass
from typing import Any

from pointer.errors import UsageError
from pointer.fields import check_fields

SKELETONS = ("prepared", "importance", "keywords", "mixed")
SCHEDULES = ("paper", "eager", "balanced", "uniform")
BUDGET = ("epochs", "steps", "tokens", "minutes")
"""The settings that bound a run; they alone may change when it is continued."""

PRESETS: dict[str, dict[str, Any]] = {
    # The paper: Adam at a constant 3e-5 until the validation loss stops falling.
    "paper": {"learning_rate": 3e-5, "batch_tokens": 8192, "epochs": 40, "patience": 3},
    # What worked best for a small model on two CPU cores; docs/training.md has the measurements.
    "small": {
        "learning_rate": 5e-4,
        "warmup_steps": 200,
        "decay": "linear",
        "weight_decay": 0.01,
        "clip": 1.0,
        "dropout": 0.0,
        "batch_tokens": 1280,
        "closing_share": 0.25,
        "begun_share": 0.5,
        "positions": 256,
        "skeleton": "mixed",
        "schedule": "eager",
    },
}
RANGES: dict[str, tuple[float, float]] = {
    "learning_rate": (0, 1), "warmup_steps": (0, math.inf), "weight_decay": (0, 1), "clip": (0, math.inf),
    "dropout": (0, 0.9), "batch_tokens": (16, math.inf), "accumulate": (1, math.inf), "closing_share": (0.01, 1),
    "begun_share": (0, 1), "positions": (8, math.inf), "epochs": (0, math.inf),
    "steps": (1, math.inf), "tokens": (1, math.inf), "minutes": (0, math.inf), "evaluate_every": (1, math.inf),
    "validation_rows": (1, 8192), "patience": (1, math.inf), "save_every": (1, math.inf), "keep_every": (1, math.inf),
    "log_every": (1, math.inf), "seed": (0, math.inf), "rank": (1, 1024), "first_layer": (0, 1000),
}  # fmt: skip
CHOICES = {
    "decay": ("none", "linear"),
    "skeleton": SKELETONS,
    "schedule": SCHEDULES,
    "precision": ("no", "fp16", "bf16"),
}


@dataclass(frozen=True)
class RunSettings:
    """What every run has; the CLI, the model card and the logs show the same object."""

    learning_rate: float = 3e-5
    """The highest learning rate of Adam."""
    warmup_steps: int = 0
    """Steps (at most a tenth of the budget) in which the learning rate rises to that."""
    decay: str = "none"
    """`linear`: the learning rate falls to zero at the end of the budget; `none`: it stays."""
    weight_decay: float = 0.0
    """Decoupled weight decay (0 makes AdamW plain Adam)."""
    clip: float | None = None
    """The largest norm of the gradient."""
    batch_tokens: int = 2048
    """Positions of a batch, padding included."""
    accumulate: int = 1
    """Batches of each process that make one step."""
    epochs: float | None = None
    """Budget: passes over the data. The first budget that is used up ends the run."""
    steps: int | None = None
    """Budget: optimizer steps."""
    tokens: int | None = None
    """Budget: tokens of training inputs."""
    minutes: float | None = None
    """Budget: wall-clock time, validation included."""
    evaluate_every: int = 500
    """Steps between validations."""
    validation_rows: int = 500
    """Texts to validate on (at most 8192); held out from the data if no validation data is given."""
    patience: int | None = None
    """Validations without a lower loss before the run stops early."""
    save_every: int = 100
    """Steps between checkpoints, a multiple of `log_every`."""
    keep_every: int | None = None
    """Steps between checkpoints that stay, as `OUT/step-N`; left out, none does."""
    log_every: int = 10
    """Steps between lines of the log."""
    half: bool = False
    """Store checkpoints in float16; the last one stays float32, so that it can be continued exactly."""
    precision: str = "no"
    """Mixed precision on a GPU: no, fp16, bf16."""
    seed: int = 0
    """Of the data order, all that is drawn from the data, and dropout."""

    def __post_init__(self) -> None:
        check_fields(self, RANGES, CHOICES)
        low, high = getattr(self, "keywords", (1, 1))
        if not 1 <= low <= high:
            raise UsageError(f"keywords: expected two rising numbers, found {low, high}.", "For example 1 and 8.")
        for name in ("save_every", "evaluate_every", "keep_every"):
            if (getattr(self, name) or 0) % self.log_every:
                raise UsageError(
                    f"log_every: expected a divisor of {name} ({getattr(self, name)}), found {self.log_every}.",
                    "Checkpoints are taken where the log is complete.",
                )
        if all(getattr(self, name) is None for name in BUDGET):
            raise UsageError(f"Expected a budget ({', '.join(BUDGET)}), found none.", "For example: --minutes 30.")

    def used(self, step: int, tokens: int, epochs: float, seconds: float) -> float:
        """How much of the budget is used up; 1 is all."""
        spent = {"steps": step, "tokens": tokens, "epochs": epochs, "minutes": seconds / 60}
        limits = {name: getattr(self, name) for name in BUDGET}
        return max(spent[name] / limit if limit else 1.0 for name, limit in limits.items() if limit is not None)

    def rate(self, step: int, used: float, warmup: int) -> float:
        """The learning rate of a step (0 is the first) when `used` of the budget is used up."""
        rise = 1.0 if step >= warmup else min(1.0, max((step + 1) / (warmup + 1), used / 0.1))
        return self.learning_rate * rise * (max(0.0, 1 - used) if self.decay == "linear" else 1.0)


@dataclass(frozen=True)
class Stages:
    """How prepared rows become stage pairs."""

    skeleton: str = "prepared"
    """What X^0 is: as prepared, or drawn anew every epoch: importance, keywords, mixed (for each text one of these)."""
    schedule: str = "paper"
    """When a token is born: late (`paper`), or a gap's best (`eager`), central (`balanced`), any (`uniform`) first."""
    keywords: tuple[int, int] = (1, 8)
    """The fewest and the most words of a drawn `keywords` skeleton."""
    closing_share: float = 1.0
    """The share of closing pairs that is trained on; their weight makes up for the others."""
    begun_share: float = 0.0
    """The share of pairs that are trained with some gaps filled already, so that a stage can be filled in rounds."""
    seed: int = 0
    """Of the data order, the drawn skeletons and dropout."""


@dataclass(frozen=True)
class TrainingSettings(Stages, RunSettings):
    """Everything that decides how an insertion transformer is trained.

    >>> TrainingSettings.preset("small", minutes=30).learning_rate
    0.0005
    """

    dropout: float | None = None
    """Dropout of hidden states and attention; left out, that of the checkpoint."""
    positions: int | None = None
    """The most positions that are kept of the checkpoint's; left out, all."""
    gradient_checkpointing: bool = False
    """Save memory by computing activations twice."""
    stream: bool = False
    """Read each shard when its turn comes: for data that no machine should hold. Needs validation data."""

    @classmethod
    def preset(cls, name: str, **changes: Any) -> "TrainingSettings":
        """The settings of a preset, `paper` or `small`, with changes; a budget of one's own replaces the preset's."""
        if name not in PRESETS:
            raise UsageError(f'preset: expected {", ".join(PRESETS)}, found "{name}".', "Choose one of these.")
        chosen = dict(PRESETS[name])
        if any(budget in changes for budget in BUDGET):
            chosen = {key: value for key, value in chosen.items() if key not in BUDGET}
        return cls(**chosen | changes)


@dataclass(frozen=True)
class CausalSettings(RunSettings):
    """How an adapter for a causal language model is trained."""

    learning_rate: float = 2e-3
    """The highest learning rate of Adam."""
    warmup_steps: int = 20
    """Steps (at most a tenth of the budget) in which the learning rate rises to that."""
    decay: str = "linear"
    """`linear`: the learning rate falls to zero at the end of the budget; `none`: it stays."""
    clip: float | None = 1.0
    """The largest norm of the gradient."""
    batch_tokens: int = 320
    """Positions of a batch, padding included."""
    keywords: tuple[int, int] = (1, 8)
    """The fewest and the most words of a text that are its constraints."""
    evaluate_every: int = 200
    """Steps between validations."""
    validation_rows: int = 300
    """Texts to validate on (at most 8192); held out from the data if no validation data is given."""
    save_every: int = 50
    """Steps between checkpoints, a multiple of `log_every`."""
    rank: int = 16
    """Of the matrices that the adapter adds to each layer (LoRA)."""
    first_layer: int = 0
    """Layers before this one stay as they are, which makes training faster."""
    gradient_checkpointing: bool = False
    """Save memory by computing activations twice."""


@dataclass(frozen=True)
class BaselineSettings(RunSettings):
    """How a system that POINTER is compared with is trained.

    >>> BaselineSettings(minutes=40).learning_rate
    0.0005
    """

    learning_rate: float = 5e-4
    """The highest learning rate of Adam."""
    warmup_steps: int = 200
    """Steps (at most a tenth of the budget) in which the learning rate rises to that."""
    decay: str = "linear"
    """`linear`: the learning rate falls to zero at the end of the budget; `none`: it stays."""
    weight_decay: float = 0.01
    """Decoupled weight decay, not of biases and norms."""
    clip: float | None = 1.0
    """The largest norm of the gradient."""
    keywords: tuple[int, int] = (1, 7)
    """The fewest and the most words that are drawn from a text, by systems that learn to read keywords."""
    minutes: float | None = None
    """Budget: processor time of all threads (on a GPU wall-clock time), validation included."""
    evaluate_every: int = 200
    """Steps between validations."""
    patience: int | None = 5
    """Validations without a lower loss before the run stops early."""
