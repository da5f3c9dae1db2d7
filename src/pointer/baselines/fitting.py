"""Training for the systems that POINTER is compared with: one plain loop for any small torch model.

    data = FittingData.open(folder, validation, settings)             # what `pointer prepare` made
    trainee = Trainee("cgmh", sizes, make, objective, description)    # what a system has to say for itself
    outcome = fit(trainee, data, out, settings)                       # the same call again goes on
    checkpoint = open_checkpoint("cgmh", out)                         # config, vocabulary, casing
    checkpoint.load_into(model)

A run has the folders of our own runs: `last/` (with `training.pt`, which the same command goes on from), `best/` (the
lowest validation loss, but see `Trainee.annealed`) and `metrics.jsonl`. As there, a step is a function of the weights,
the seed and its place in the stream of batches: a run that is killed at any moment continues to the same weights, bit
for bit. Only a budget in minutes makes the learning rate, and so the weights, follow the clock: that of the processor,
so that systems get equal budgets whatever else the machine does meanwhile.
"""

import gzip
import io
import json
import math
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_model, save_model
from torch import nn

from pointer import __version__
from pointer.batches import BLOCK_ROWS, Batches, Pairs, Place, Stages, all_pairs, cut, keyword_pieces, take
from pointer.card import table
from pointer.errors import CheckpointError, DataError, UsageError
from pointer.model import CARD, TABLES, checkpoint_folder, replaced
from pointer.prepare.shards import CASING, PreparedData, Rows
from pointer.settings import BUDGET, TrainingSettings
from pointer.storage import full_disk_explained
from pointer.training import (
    FRESH_WARMUP,
    METRICS,
    STATE,
    Outcome,
    Progressed,
    check_finite,
    cut_log,
    denormals_as_zero,
    parameter_groups,
    progress_bar,
    read_log,
    read_state,
    same_run,
    split_held_out,
    tidy,
)
from pointer.vocabulary import Vocabulary, embedded_folder

if TYPE_CHECKING:
    from rich.progress import Progress

WEIGHTS = "model.safetensors"

# ---------------------------------------------------------------------------------------------------------------------
# Settings


@dataclass(frozen=True)
class FittingSettings:
    """How a system is trained; names, budgets and the learning rate are those of `TrainingSettings`.

    >>> FittingSettings(minutes=40).learning_rate
    0.0005
    """

    learning_rate: float = 5e-4
    """The highest learning rate of AdamW; it falls to zero at the end of the budget."""
    warmup_steps: int = 200
    """Steps (at most a tenth of the budget) in which the learning rate rises to that."""
    weight_decay: float = 0.01
    """Decoupled weight decay, not of biases and norms."""
    clip: float | None = 1.0
    """The largest norm of the gradient."""
    batch_tokens: int = 2048
    """Tokens of the texts of a step, `[CLS]`, `[SEP]` and padding included."""
    keywords: tuple[int, int] = (1, 7)
    """The fewest and the most keywords that are drawn from a text, by systems that learn to read them."""
    epochs: float | None = None
    """Budget: passes over the data. The first budget that is used up ends the run."""
    steps: int | None = None
    """Budget: optimizer steps."""
    tokens: int | None = None
    """Budget: tokens of texts, counted alike for every system."""
    minutes: float | None = None
    """Budget: processor time of all threads (on a GPU wall-clock time), validation included."""
    evaluate_every: int = 200
    """Steps between validations."""
    validation_rows: int = 500
    """Texts to validate on (at most 8192); held out from the data if no validation data is given."""
    patience: int | None = 5
    """Validations without a lower loss before the run stops early."""
    save_minutes: float = 3.0
    """Time between checkpoints; they are taken where a line is logged."""
    log_every: int = 10
    """Steps between lines of the log."""
    seed: int = 0
    """Of the weights, the data order, the drawn keywords and dropout."""

    def __post_init__(self) -> None:
        if not 0 <= self.save_minutes < math.inf:
            raise UsageError(
                f"save_minutes: expected a number of at least 0, found {self.save_minutes}.", "Change save_minutes."
            )
        if self.seed < 0:
            raise UsageError(f"seed: expected a number of at least 0, found {self.seed}.", "Change seed.")
        _ = self.common

    @cached_property
    def common(self) -> TrainingSettings:
        """The same settings as our own runs have them; making it checks every field."""
        shared = {name: value for name, value in asdict(self).items() if name != "save_minutes"}
        return TrainingSettings(decay="linear", save_every=self.log_every, **shared)


Fields = TypeVar("Fields")


def from_names(kind: type[Fields], given: Mapping[str, Any]) -> Fields:
    """A dataclass from keyword arguments; an unknown name is one sentence.

    >>> from_names(FittingSettings, {"minutes": 1, "sed": 0})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    pointer.errors.UsageError: Expected FittingSettings out of ..., found "sed". Check the spelling.
    """
    known = [one.name for one in fields(kind)]  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            raise UsageError(
                f'Expected {kind.__name__} out of {", ".join(known)}, found "{name}".', "Check the spelling."
            )
    return kind(**given)


# ---------------------------------------------------------------------------------------------------------------------
# Data


@dataclass(frozen=True)
class FittingData:
    """The texts to train on and to validate on, and what belongs to them."""

    texts: Rows
    held_out: Rows
    vocabulary: Vocabulary
    manifest: dict[str, Any]
    tables: dict[str, bytes]
    """The casing table and the document frequencies, as files."""

    @classmethod
    def open(cls, folder: str | Path, validation: str | Path | None, settings: FittingSettings) -> "FittingData":
        """Read a folder of `pointer prepare`; without validation data of its own, some texts are held out."""
        prepared = PreparedData.open(folder)
        try:
            texts, held_out = split_held_out(prepared, validation, settings.common)
        except KeyError as error:  # what the reader says about a column that is not there
            raise DataError(
                f"Expected shards with ids, stage, importance and rank in {folder}, found some without {error}.",
                "Prepare the data again with this version.",
            ) from error
        tables = {name: (prepared.folder / name).read_bytes() for name in TABLES if (prepared.folder / name).is_file()}
        return cls(texts, held_out, prepared.vocabulary, prepared.manifest, tables)

    @property
    def longest(self) -> int:
        """The tokens of the longest text, `[CLS]` and `[SEP]` not counted."""
        return int(max(np.diff(rows.offsets).max(initial=0) for rows in (self.texts, self.held_out)))

    def need_ranks(self) -> None:
        """Refuse data in which no word is ranked as a keyword."""
        if not self.texts.rank.any():
            raise DataError(
                "Expected texts with ranked keywords, found no rank in any of them.",
                "Prepare the data again; keywords need texts in a language whose stop words are known (--language).",
            )


@dataclass(frozen=True)
class TextBatch:
    """Texts of about one length, and what an objective may draw from."""

    texts: Rows
    vocabulary: Vocabulary
    random: np.random.Generator
    """Seeded by the place of the batch: whatever is drawn from it is drawn again when a run continues."""
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


class _Texts(Batches):
    """The endless stream of steps over whole texts, each once an epoch."""

    def __init__(self, rows: Rows, vocabulary: Vocabulary, settings: FittingSettings) -> None:
        super().__init__(rows, vocabulary, Stages(seed=settings.seed), settings.batch_tokens)

    def plan(self, epoch: int, block: int) -> tuple[Rows, list[list[Pairs]]]:
        """The rows of a block and its steps; the closing pair of a row is the row itself."""
        order = np.random.default_rng([self.stages.seed, epoch]).permutation(len(self.rows))
        random = np.random.default_rng([self.stages.seed, epoch, block])
        rows = take(self.rows, order[block * BLOCK_ROWS : (block + 1) * BLOCK_ROWS])
        pairs = all_pairs(rows, self.stages, random)
        batches = cut(pairs[pairs.closing], self.batch_tokens, random)
        return rows, [[batches[i]] for i in random.permutation(len(batches))]


# ---------------------------------------------------------------------------------------------------------------------
# The loop


class Loss(NamedTuple):
    """What an objective says of a batch."""

    total: torch.Tensor
    """The loss of all its predictions, added up."""
    predictions: int
    """How many there are."""


Model = TypeVar("Model", bound=nn.Module)
Objective = Callable[[Model, TextBatch], Loss]
"""The loss of a batch; a model in `eval` mode is being validated, so its loss should be one that can be compared."""


@dataclass(frozen=True)
class Trainee(Generic[Model]):
    """A system that wants to be trained."""

    system: str
    sizes: dict[str, Any]
    """What it takes to make the model again; kept in config.json as `sizes`."""
    make: Callable[[], Model]
    """A new model; it is called after torch has been seeded."""
    objective: Objective[Model]
    description: str
    """A paragraph for the card: what it is, and the size that the paper has."""
    config: dict[str, Any] = field(default_factory=dict)
    """More for config.json, for other programs that read it."""
    annealed: bool = False
    """Does it learn something else at the end of the budget than at the start? Then `best/` has the newest weights, and
    no run is stopped early: the lowest loss says only which task was the easiest."""


def fit(
    trainee: Trainee[Model],
    data: FittingData,
    out: str | Path,
    settings: FittingSettings,
    about: str = "",
    show: bool = True,
) -> Outcome:
    """Train a system into the folder `out`; the same call again continues an interrupted run.

    `about` is a paragraph for the card: what the data is and under which licence. `show` draws progress on stderr.
    """
    with denormals_as_zero():
        return _Fit(trainee, data, Path(out), settings, about, show)()


class _Fit(Generic[Model]):
    """One run: data, model and optimizer together."""

    def __init__(
        self, trainee: Trainee[Model], data: FittingData, out: Path, settings: FittingSettings, about: str, show: bool
    ) -> None:
        self.trainee, self.data, self.out, self.settings, self.about = trainee, data, out, settings, about
        self.show = show
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.clock = time.process_time if self.device.type == "cpu" else time.monotonic
        self.batches = _Texts(data.texts, data.vocabulary, settings)
        self.validation = _Texts(data.held_out, data.vocabulary, settings).plan(0, 0)
        tidy(out)
        self._open()
        cut_log(out / METRICS, self.at.step)
        self.pending: list[tuple[torch.Tensor, int]] = []
        """The loss and the predictions of every step since the last line of the log."""
        found = [line["validation"] for line in read_log(out / METRICS) if "validation" in line]
        self.last_validation: dict[str, Any] = found[-1] if found else {}

    def _open(self) -> None:
        """Model, optimizer and progress: new, continued exactly, or continued from weights alone."""
        last = self.out / "last"
        state = read_state(last / STATE)
        if state is not None:
            same_run(state, self._identity(), last)
        torch.manual_seed(self.settings.seed)
        self.model = self.trainee.make()
        self.at = Progressed(warmup=self.settings.warmup_steps)
        if (last / "config.json").is_file():
            kept = open_checkpoint(self.trainee.system, last)
            kept.load_into(self.model)
            self.at.tokens_before = kept.config["tokens_seen"]
            self.at.warmup = max(self.settings.warmup_steps, FRESH_WARMUP)
        self.model.to(self.device)
        groups = parameter_groups(self.model, self.settings.weight_decay)
        self.optimizer = torch.optim.AdamW(groups, self.settings.learning_rate, fused=True)
        if state is not None:
            self.optimizer.load_state_dict(state["optimizer"])
            self.at = Progressed(**state["progress"] | {"place": Place(*state["progress"]["place"])})

    def _identity(self) -> dict[str, Any]:
        """What must not change between a run and its continuation."""
        free = {*BUDGET, "save_minutes"}
        chosen = {name: value for name, value in asdict(self.settings).items() if name not in free}
        whole = chosen | {
            "system": self.trainee.system,
            "sizes": self.trainee.sizes,
            "data": self.data.manifest["shards"],
            "vocabulary": self.data.vocabulary.fingerprint,
        }
        as_stored: dict[str, Any] = json.loads(json.dumps(whole))
        return as_stored

    def __call__(self) -> Outcome:
        began = self.clock() - self.at.seconds
        log_from, log_tokens, saved = self.clock(), self.at.tokens, time.monotonic()
        reason = self._why_stop()
        with progress_bar(self.show, f"{self.trainee.system}, step {self.at.step}", self._used()) as bar:
            if reason is not None and not self.last_validation:
                self._evaluate(bar)
            self.model.train()
            for step in self.batches(self.at.place) if reason is None else ():
                self._train_step(step.rows, step.batches[0])
                self.at.place, self.at.epochs = step.after, step.epochs
                self.at.seconds = self.clock() - began
                reason = self._why_stop()
                if reason is None and self.at.step % self.settings.log_every:
                    continue
                self._log((self.at.tokens - log_tokens) / max(1e-9, self.clock() - log_from), bar)
                if reason is not None or self.at.step % self.settings.evaluate_every == 0:
                    self._evaluate(bar)
                    reason = reason or self._why_stop()
                if reason is not None or time.monotonic() - saved >= 60 * self.settings.save_minutes:
                    self.at.seconds = self.clock() - began
                    self._save("last")
                    saved = time.monotonic()
                log_from, log_tokens = self.clock(), self.at.tokens
                if reason is not None:
                    break
        share = self.at.tokens / max(1, self.at.computed)
        return Outcome(reason or "", self.at.step, self.at.tokens, self.last_validation, share)

    def _used(self) -> float:
        return self.settings.common.used(self.at.step, self.at.tokens, self.at.epochs, self.at.seconds)

    def _why_stop(self) -> str | None:
        if self._used() >= 1:
            return "the budget is used up"
        if self.settings.patience is not None and self.at.stale >= self.settings.patience:
            return "the validation loss stopped falling"
        return None

    def _loss(self, rows: Rows, pairs: Pairs, *key: int) -> Loss:
        """The loss of a batch, with all that is drawn for it keyed by the seed and `key`."""
        torch.manual_seed(int(np.random.SeedSequence([self.settings.seed, *key]).generate_state(1)[0]))
        random = np.random.default_rng([self.settings.seed, *key])
        batch = TextBatch(take(rows, pairs.row), self.data.vocabulary, random, min(1.0, self._used()), self.device)
        return self.trainee.objective(self.model, batch)

    def _train_step(self, rows: Rows, pairs: Pairs) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.common.rate(self.at.step, self._used(), self.at.warmup)
        total, count = self._loss(rows, pairs, 1, self.at.step)
        loss = total / max(1, count)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip or math.inf)
        self.optimizer.step()
        self.optimizer.zero_grad()
        # A gradient that is no number has spoilt the weights, whatever the loss was.
        self.pending.append((loss.detach() + norm.detach() * 0, count))
        self.at.step += 1
        self.at.tokens += int(pairs.positions.sum())
        self.at.computed += len(pairs) * int(pairs.positions.max())

    def _log(self, speed: float, bar: "Progress | None") -> None:
        losses = torch.stack([loss for loss, _ in self.pending]).tolist()
        counts = [max(1, count) for _, count in self.pending]
        first = self.at.step - len(losses) + 1
        self.pending.clear()
        check_finite(losses, first, self.out, "Lower the learning rate, or clip the gradient at a smaller norm.")
        loss = float(np.average(losses, weights=counts))
        line = {
            "step": self.at.step,
            "tokens": self.at.tokens,
            "epochs": round(self.at.epochs, 6),
            "loss": loss,
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            "tokens_per_second": round(speed, 1),
            "real_share": round(self.at.tokens / self.at.computed, 4),
            "seconds": round(self.at.seconds, 1),
        }
        self._write_metrics(line)
        if bar is not None:
            text = f"step {self.at.step} · loss {loss:.3f} · {speed:,.0f} tokens/s"
            bar.update(bar.task_ids[0], completed=min(1.0, self._used()), description=text)

    @torch.no_grad()
    def _evaluate(self, bar: "Progress | None") -> None:
        rows, steps = self.validation
        self.model.train(False)
        parts = [self._loss(rows, batch, 2, number) for number, [batch] in enumerate(steps)]
        self.model.train()
        loss = float(sum(float(part.total) for part in parts)) / max(1, sum(part.predictions for part in parts))
        self.last_validation = {"loss": loss, "perplexity": math.exp(min(loss, 700.0))}
        self._write_metrics({"step": self.at.step, "tokens": self.at.tokens, "validation": self.last_validation})
        better = self.trainee.annealed or loss < self.at.best
        self.at.best, self.at.stale = min(self.at.best, loss), 0 if better else self.at.stale + 1
        if bar is not None:
            perplexity = self.last_validation["perplexity"]
            bar.console.print(f"step {self.at.step:,}: validation loss {loss:.4f}, perplexity {perplexity:.1f}")
        if better:
            self._save("best")

    def _write_metrics(self, line: dict[str, Any]) -> None:
        with full_disk_explained(self.out / METRICS), (self.out / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _save(self, name: str) -> None:
        """Write a checkpoint folder; `last` with all that it takes to go on."""
        history = read_log(self.out / METRICS)
        files = self.data.tables | {CARD: self._card(history).encode()}
        if name == "last":
            files |= {STATE: self._state()}
        config = self.trainee.config | {
            "system": self.trainee.system,
            "sizes": self.trainee.sizes,
            "parameters": _parameters(self.model),
            "tokens_seen": self.at.tokens_before + self.at.tokens,
            "vocabulary": self.data.vocabulary.fingerprint,
            "versions": {"pointer": __version__, "python": platform.python_version(), "torch": torch.__version__},
        }
        with replaced(self.out / name) as beside:
            save_model(self.model, str(beside / WEIGHTS), metadata={"format": "pt"})
            (beside / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", "utf-8")
            self.data.vocabulary.save(beside)
            for file, content in files.items():
                (beside / file).write_bytes(content)
            for path in beside.iterdir():
                path.chmod(0o644)

    def _state(self) -> bytes:
        state = {
            "identity": json.dumps(self._identity()),
            "progress": asdict(self.at) | {"place": list(self.at.place)},
            "optimizer": self.optimizer.state_dict(),
        }
        buffer = io.BytesIO()
        torch.save(state, buffer)
        return buffer.getvalue()

    def _card(self, history: list[dict[str, Any]]) -> str:
        counts, at = self.data.manifest["counts"], self.at
        rows = {"parameters": f"{_parameters(self.model):,}", **self.trainee.sizes, **asdict(self.settings)}
        results = [
            [f"{line['step']:,}", f"{line['validation']['loss']:.4f}", f"{line['validation']['perplexity']:.1f}"]
            for line in history
            if "validation" in line
        ]
        parts = [
            f"---\ntags:\n- pointer\n---\n# {self.out.name}: {self.trainee.system}\n\n{self.trainee.description} "
            f"A system to compare POINTER {__version__} with.\n\n"
            f"```python\nfrom pointer.baselines import open_system\n\n"
            f'open_system("{self.trainee.system}", "{self.out.name}").generate_many([["first", "words"]])\n```',
            f"## Data and licence\n\n{self.about or 'The data is not described; ask who trained this.'}"
            f"\n\n{counts['rows']:,} texts, {counts['tokens']:,} tokens; vocabulary "
            f"{self.data.vocabulary.fingerprint} of {len(self.data.vocabulary):,} entries.",
            f"## Training\n\n{at.step:,} steps, {at.epochs:.2f} epochs, {at.tokens:,} tokens of texts in "
            f"{at.seconds / 60:.0f} minutes.\n\n"
            + table(["setting", "value"], [[key, str(value)] for key, value in rows.items() if value is not None]),
            "## Results\n\nOn held-out texts.\n\n" + table(["step", "loss", "perplexity"], results),
        ]
        return "\n\n".join(parts) + "\n"


def _parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


# ---------------------------------------------------------------------------------------------------------------------
# Opening what was trained


@dataclass(frozen=True)
class Checkpoint:
    """What is in the folder of a trained system."""

    folder: Path
    config: dict[str, Any]
    vocabulary: Vocabulary
    casing: dict[str, dict[str, str]]

    def load_into(self, model: nn.Module) -> None:
        """Give a model that was made from `config["sizes"]` its weights."""
        try:
            load_model(model, str(self.folder / WEIGHTS))
        except Exception as error:  # safetensors, torch and the file system each have their own way to fail
            raise CheckpointError(
                f"Expected in {self.folder / WEIGHTS} the weights of the model that config.json describes, found "
                f"others or none ({type(error).__name__}).",
                "Copy the folder again, or train it again.",
            ) from error


def open_checkpoint(system: str, folder: str | Path) -> Checkpoint:
    """Open the folder of a trained system: a checkpoint, or a whole run, which stands for its best one."""
    if not Path(folder).exists() and embedded_folder(str(folder)) is None:
        raise CheckpointError(
            f"Expected a folder with a trained {system}, found no {folder}.",
            f"Train it: pointer train DATA --system {system} --out {folder}",
        )
    place = checkpoint_folder(folder)
    try:
        config = json.loads((place / "config.json").read_text("utf-8"))
        found = config.get("system", "pointer")
        if found == system:
            _ = config["sizes"], config["tokens_seen"], config["vocabulary"]
    except (ValueError, KeyError, AttributeError) as error:
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
    casing = json.loads(gzip.decompress(table.read_bytes())) if table.is_file() else {}
    return Checkpoint(place, config, vocabulary, casing)
