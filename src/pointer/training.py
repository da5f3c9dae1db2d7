"""Training the insertion transformer: one Accelerate loop for pre-training and fine-tuning, on one process or many.

    OUT/last/          the newest checkpoint, with `training.pt`: all that the same command needs to go on exactly
    OUT/best/          the checkpoint with the lowest validation loss
    OUT/step-N/        what is kept on the way, if anything is
    OUT/metrics.jsonl  a line per logged step and per validation
    OUT/curve.png      both, drawn
    OUT/tensorboard/   the same for TensorBoard, where that is installed

A step is a function of the weights, the seed and the step's place in the stream of batches: random numbers are drawn
from a generator that is seeded anew at every step, the learning rate is computed from how much of the budget is used.
So only weights, optimizer and a few numbers have to be kept, and a run that is killed continues as if it had not been.
"""

import io
import json
import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from pointer.batches import (
    BLOCK_ROWS,
    Batches,
    Place,
    Stages,
    Step,
    all_pairs,
    collate,
    take,
)
from pointer.card import curve_picture, model_card
from pointer.errors import TrainingError, missing_extra
from pointer.model import CARD, CURVE, TABLES, InsertionTransformer, recover
from pointer.objective import GapLoss, stage_counts, stage_metrics
from pointer.prepare.shards import PreparedData, Rows
from pointer.settings import BUDGET, TrainingSettings
from pointer.storage import full_disk_explained, remove_partial, write_whole
from pointer.vocabulary import Vocabulary

if TYPE_CHECKING:
    from accelerate import Accelerator
    from rich.progress import Progress
    from torch.utils.tensorboard import SummaryWriter

STATE = "training.pt"
METRICS = "metrics.jsonl"
SAMPLES = 4
"""Texts that every validation writes, for people to read."""
ROUNDS = 2
"""Rounds in which a model that is trained on begun stages fills a stage, unless it is told another number."""
REVISIONS = 1
"""How often a model that is trained on texts with words taken out thinks a text over, unless it is told otherwise."""
FRESH_WARMUP = 100
"""Warm-up steps of an optimizer that starts on weights whose own optimizer is lost."""


@dataclass
class Progressed:
    """How far a run is: what changes from step to step beside weights and optimizer."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    epochs: float = 0.0
    place: Place = field(default_factory=Place)
    best: float = math.inf
    stale: int = 0
    warmup: int = 0
    tokens_before: int = 0
    computed: int = 0


@dataclass(frozen=True)
class Outcome:
    """How a run ended: why, how far it got, the last validation, and the share of positions that were real tokens."""

    reason: str
    step: int
    tokens: int
    validation: dict[str, Any]
    real_share: float


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
        return InsertionRun(data, Path(out), settings, init, validation, about, show)()


@contextmanager
def denormals_as_zero() -> Iterator[None]:
    """Numbers so small that they slow a processor down count as zero meanwhile; what comes afterwards may need them."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


class Run(ABC):
    """One training run: data, model and optimizer together, and what is done with them.

    A kind of model says what it is trained on and how it is saved; the loop is the same for all.
    """

    batches: Batches
    """The endless stream of steps, `batches_per_step` batches each."""
    model: Any
    """What is trained; `train()` and `eval()` switch it."""

    def __init__(self, out: Path, settings: TrainingSettings, about: str, show: bool) -> None:
        self.accelerator = _accelerator(settings)
        self.out, self.settings, self.about = out, settings, about
        self.show = show and self.accelerator.is_main_process
        self.pending: list[tuple[torch.Tensor, float]] = []
        """The loss and the gaps of every step since the last line of the log."""

    # -- what a kind of model has to say

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What must not change between a run and its continuation, beside the settings."""

    @abstractmethod
    def make(self, last: Path | None) -> nn.Module:
        """Open the model, from the checkpoint `last` if the run goes on; the loss of a batch as a module."""

    @abstractmethod
    def collate(self, step: Step, part: Any) -> Any:
        """A batch as tensors."""

    @abstractmethod
    def validate(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """How good the model is on held-out texts (`loss` and more), and some samples."""

    @abstractmethod
    def describe(self, found: dict[str, Any]) -> str:
        """A line about a validation."""

    @abstractmethod
    def write(self, folder: Path, is_last: bool, extras: dict[str, bytes]) -> None:
        """Save the model with its card."""

    @abstractmethod
    def tokens_seen(self) -> int:
        """How many tokens the model was trained on before this run."""

    # -- starting and continuing

    @property
    def batches_per_step(self) -> int:
        """Of all processes."""
        return int(self.accelerator.num_processes) * self.settings.accumulate

    def open(self) -> None:
        """Model, optimizer and progress: new, continued exactly, or continued from weights alone."""
        if self.accelerator.is_main_process:
            tidy(self.out)
        self.accelerator.wait_for_everyone()
        last = self.out / "last"
        state = read_state(last / STATE)
        if state is not None:
            same_run(state, self._identity(), last)
        continued = (last / "config.json").is_file()
        torch.manual_seed(self.settings.seed)
        objective = self.make(last if continued else None)
        groups = parameter_groups(objective, self.settings.weight_decay)
        optimizer = torch.optim.AdamW(groups, self.settings.learning_rate, fused=True)
        self.module, self.optimizer = self.accelerator.prepare(objective, optimizer)
        self.at = Progressed(warmup=self.settings.warmup_steps, tokens_before=self.tokens_seen())
        if state is not None:
            self.optimizer.load_state_dict(state["optimizer"])
            if self.accelerator.scaler is not None:
                self.accelerator.scaler.load_state_dict(state["scaler"])
            self.at = Progressed(**state["progress"] | {"place": Place(*state["progress"]["place"])})
        elif continued:
            self.at.warmup = max(self.settings.warmup_steps, FRESH_WARMUP)
        self.board = None
        if self.accelerator.is_main_process:
            cut_log(self.out / METRICS, self.at.step)
            self.board = _tensorboard(self.out / "tensorboard", self.at.step)
        self.last_validation: dict[str, Any] = self._last_validation()

    def _identity(self) -> dict[str, Any]:
        settings = {name: value for name, value in asdict(self.settings).items() if name not in BUDGET}
        whole = settings | self.identity() | {"number of processes": self.accelerator.num_processes}
        stored: dict[str, Any] = json.loads(json.dumps(whole))
        return stored

    # -- the loop

    def __call__(self) -> Outcome:
        began = time.monotonic() - self.at.seconds
        log_from, log_tokens = time.monotonic(), self.at.tokens
        reason = self._why_stop()
        steps = self.batches(self.at.place) if reason is None else iter(())
        used = self.settings.used(self.at.step, self.at.tokens, self.at.epochs, self.at.seconds)
        with progress_bar(self.show, f"step {self.at.step}", used) as bar:
            if reason is not None and not self.last_validation:
                self._evaluate(bar)
            for step in steps:
                self._train_step(step)
                self.at.seconds = self._agreed(time.monotonic() - began)
                reason = self._why_stop()
                if reason is None and self.at.step % self.settings.log_every:
                    continue
                speed = (self.at.tokens - log_tokens) / max(1e-9, time.monotonic() - log_from)
                self._log(speed, bar)
                if reason is not None or self.at.step % self.settings.evaluate_every == 0:
                    self._evaluate(bar)
                    reason = reason or self._why_stop()
                if self.settings.keep_every and self.at.step % self.settings.keep_every == 0:
                    self._save(f"step-{self.at.step}")
                if reason is not None or self.at.step % self.settings.save_every == 0:
                    self.at.seconds = self._agreed(time.monotonic() - began)
                    self._save("last")
                log_from, log_tokens = time.monotonic(), self.at.tokens
                if reason is not None:
                    break
        share = self.at.tokens / max(1, self.at.computed)
        return Outcome(reason or "", self.at.step, self.at.tokens, self.last_validation, share)

    def _train_step(self, step: Step) -> None:
        """One optimizer step: the loss is divided by the gaps of all batches of all processes."""
        rank, size = self.accelerator.process_index, self.settings.accumulate
        # Keyed by the step, so that a continued run draws the same dropout without any state being kept.
        torch.manual_seed(self.settings.seed * 1_000_003 + self.at.step * 1009 + rank)
        used = self.settings.used(self.at.step, self.at.tokens, self.at.epochs, self.at.seconds)
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.rate(self.at.step, used, self.at.warmup)
        gaps = sum(batch.gaps for batch in step.batches)
        mine = step.batches[rank * size : (rank + 1) * size]
        loss = torch.zeros((), device=self.accelerator.device)
        for i, part_of_step in enumerate(mine):
            batch = self.collate(step, part_of_step).to(self.accelerator.device)
            with self.accelerator.no_sync(self.module) if i + 1 < len(mine) else nullcontext():
                part = self.module(batch) / gaps
                # DDP averages the gradients of the processes; we want their sum.
                self.accelerator.backward(part * self.accelerator.num_processes)
            loss += part.detach()
        norm = self.accelerator.clip_grad_norm_(self.module.parameters(), self.settings.clip or math.inf)
        self.optimizer.step()
        self.optimizer.zero_grad()
        # fp16 skips steps with infinite gradients by itself; anywhere else such a step has spoilt the weights.
        spoilt = norm.detach() * 0 if self.accelerator.scaler is None else 0
        self.pending.append((loss + spoilt, gaps))
        self.at.step += 1
        self.at.tokens += sum(int(batch.positions.sum()) for batch in step.batches)
        self.at.computed += sum(len(batch) * int(batch.positions.max()) for batch in step.batches)
        self.at.place, self.at.epochs = step.after, step.epochs

    def _why_stop(self) -> str | None:
        if self.settings.used(self.at.step, self.at.tokens, self.at.epochs, self.at.seconds) >= 1:
            return "the budget is used up"
        if self.settings.patience is not None and self.at.stale >= self.settings.patience:
            return "the validation loss stopped falling"
        return None

    def _agreed(self, seconds: float) -> float:
        """The main process's clock, so that all processes stop at the same step."""
        if self.accelerator.num_processes == 1 or self.settings.minutes is None:
            return seconds
        from accelerate.utils import broadcast

        clock = broadcast(torch.tensor([seconds], device=self.accelerator.device))
        return float(clock.item())

    # -- logs, validation, checkpoints

    def _log(self, speed: float, bar: "Progress | None") -> None:
        losses = self.accelerator.reduce(torch.stack([loss for loss, _ in self.pending]), "sum").tolist()
        gaps = [gaps for _, gaps in self.pending]
        first = self.at.step - len(losses) + 1
        self.pending.clear()
        hint = "Lower the learning rate, clip the gradient (--clip 1) or leave mixed precision."
        check_finite(losses, first, self.out, hint)
        used = self.settings.used(self.at.step, self.at.tokens, self.at.epochs, self.at.seconds)
        line = {
            "step": self.at.step,
            "tokens": self.at.tokens,
            "epochs": round(self.at.epochs, 6),
            "loss": float(np.average(losses, weights=gaps)),
            "learning_rate": self.optimizer.param_groups[0]["lr"],
            "tokens_per_second": round(speed, 1),
            "real_share": round(self.at.tokens / self.at.computed, 4),
            "seconds": round(self.at.seconds, 1),
        }
        self._write_metrics(line)
        if bar is not None:
            text = f"step {self.at.step} · loss {line['loss']:.3f} · {speed:,.0f} tokens/s"
            bar.update(bar.task_ids[0], completed=min(1.0, used), description=text)

    def _evaluate(self, bar: "Progress | None") -> None:
        self.model.train(False)
        with self.accelerator.autocast():
            self.last_validation, samples = self.validate()
        self.model.train()
        found = {"validation": self.last_validation, "samples": samples}
        self._write_metrics({"step": self.at.step, "tokens": self.at.tokens} | found)
        better = self.last_validation["loss"] < self.at.best
        self.at.best = min(self.at.best, self.last_validation["loss"])
        self.at.stale = 0 if better else self.at.stale + 1
        if bar is not None:
            real = f"{self.at.tokens / max(1, self.at.computed):.1%} of positions are real tokens"
            bar.console.print(f"step {self.at.step:,}: {self.describe(self.last_validation)}; {real}")
            for sample in samples:
                bar.console.print(f"  {'; '.join(sample['constraints'])} -> {sample['text']}", markup=False)
        if better:
            self._save("best")

    def _save(self, name: str) -> None:
        """Write a checkpoint folder; `last` with all that it takes to go on."""
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            extras = {STATE: self._state()} if name == "last" else {}
            self.write(self.out / name, name == "last", extras)
        self.accelerator.wait_for_everyone()

    def drawn(self) -> tuple[list[dict[str, Any]], bytes | None]:
        """The log of the run, and its curve, which the folder of the run gets too."""
        history = read_log(self.out / METRICS)
        curve = curve_picture(history)
        if curve:
            write_whole(self.out / CURVE, curve)
        return history, curve

    def _state(self) -> bytes:
        scaler = self.accelerator.scaler
        state = {
            "identity": json.dumps(self._identity()),
            "progress": asdict(self.at) | {"place": list(self.at.place)},
            "optimizer": self.optimizer.state_dict(),
            "scaler": None if scaler is None else scaler.state_dict(),
        }
        buffer = io.BytesIO()
        torch.save(state, buffer)
        return buffer.getvalue()

    def _last_validation(self) -> dict[str, Any]:
        found = [line["validation"] for line in read_log(self.out / METRICS) if "validation" in line]
        return found[-1] if found else {}

    def _write_metrics(self, line: dict[str, Any]) -> None:
        if self.accelerator.is_main_process:
            with full_disk_explained(self.out / METRICS), (self.out / METRICS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        if self.board is not None:
            kind = "validation" if "validation" in line else "training"
            for name, value in line.get("validation", line).items():
                if isinstance(value, int | float) and name != "step":
                    self.board.add_scalar(f"{kind}/{name}", value, self.at.step)
            self.board.flush()


class InsertionRun(Run):
    """Trains an insertion transformer on prepared data."""

    def __init__(
        self,
        data: str | Path,
        out: Path,
        settings: TrainingSettings,
        init: str | Path,
        validation: str | Path | None,
        about: str,
        show: bool,
    ) -> None:
        super().__init__(out, settings, about, show)
        self.init = str(init)
        prepared = PreparedData.open(data, verify=self.accelerator.is_main_process)
        self.manifest, self.vocabulary = prepared.manifest, prepared.vocabulary
        self.tables = {name: (prepared.folder / name).read_bytes() for name in TABLES}
        rows, held_out = split_held_out(prepared, validation, settings)
        shares = settings.closing_share, settings.begun_share, settings.taken_share
        stages = Stages(settings.skeleton, settings.keywords, *shares, settings.seed, settings.schedule)
        self.batches = Batches(rows, self.vocabulary, stages, settings.batch_tokens, self.batches_per_step)
        self.validation = Batches(
            held_out,
            self.vocabulary,
            replace(stages, closing_share=1.0, begun_share=0.0, taken_share=0.0),
            settings.batch_tokens,
        ).plan(0, 0)
        self.longest = max(_longest(rows), _longest(held_out))
        self.open()

    def identity(self) -> dict[str, Any]:
        """The start, the data and the vocabulary."""
        return {"init": self.init, "data": self.manifest["shards"], "vocabulary": self.vocabulary.fingerprint}

    def make(self, last: Path | None) -> nn.Module:
        """An insertion transformer for the vocabulary of the data."""
        settings = self.settings
        model = InsertionTransformer.start(last or self.init, self.vocabulary, settings.positions, settings.dropout)
        if self.longest > model.config.max_position_embeddings:
            raise TrainingError(
                f"Expected texts of at most {model.config.max_position_embeddings} tokens, the positions of the model, "
                f"found one of {self.longest}.",
                "Prepare the data with a smaller --max-length, or choose a model with more positions.",
            )
        if not model.cls.predictions.bias.any():
            _expect_frequencies(model, self.batches.rows)
        model.files = self.tables
        model.config.pointer["schedule"] = settings.schedule
        if settings.begun_share:
            model.config.pointer["rounds"] = ROUNDS
        if settings.taken_share:
            model.config.pointer["revisions"] = REVISIONS
        if settings.gradient_checkpointing:
            model.gradient_checkpointing_enable()
        self.model = model
        return GapLoss(model)

    def tokens_seen(self) -> int:
        """As the checkpoint counts them."""
        return int(self.model.config.pointer["tokens_seen"])

    def collate(self, step: Step, part: Any) -> Any:
        """Stage pairs as tensors."""
        return collate(step.rows, part, self.vocabulary)

    def validate(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Loss and accuracy of every stage."""
        rows, steps = self.validation
        mine = [batch for step in steps for batch in step][
            self.accelerator.process_index :: self.accelerator.num_processes
        ]
        device = self.accelerator.device
        stages = int(rows.stage.max(initial=0)) + 1
        tensors = (collate(rows, pairs, self.vocabulary).to(device) for pairs in mine)
        counts = stage_counts(self.model, tensors, self.vocabulary.noi, stages)
        samples = self._samples(rows) if self.accelerator.is_main_process else []
        return stage_metrics(self.accelerator.reduce(counts.to(device), "sum").cpu()), samples

    def describe(self, found: dict[str, Any]) -> str:
        """Loss, accuracy, and how well `[NOI]` is told."""
        return (
            f"validation loss {found['loss']:.4f}, perplexity {found['perplexity']:.1f}, accuracy "
            f"{found['accuracy']:.1%}, [NOI] precision {found['noi_precision'] or 0:.1%} recall "
            f"{found['noi_recall'] or 0:.1%}"
        )

    def _samples(self, rows: Rows) -> list[dict[str, Any]]:
        """Texts around the keywords of a few held-out texts: to read, not to measure."""
        from pointer.decoding.generator import Pointer

        pointer = Pointer.of(self.model, str(self.out))
        asked = [keywords for i in range(min(len(rows), 20)) if (keywords := _best_keywords(rows, i, self.vocabulary))]
        texts = pointer.generate_many(asked[:SAMPLES], max_length=min(128, _longest(rows)))
        return [{"constraints": list(found.constraints), "text": found.text} for [found] in texts]

    def write(self, folder: Path, is_last: bool, extras: dict[str, bytes]) -> None:
        """A Transformers checkpoint with tables, card and curve."""
        self.model.config.pointer["tokens_seen"] = self.at.tokens_before + self.at.tokens
        history, curve = self.drawn()
        card = model_card(self.out.name, self.init, self.about, self.settings, self.manifest, history, asdict(self.at))
        self.model.files[CARD] = card.encode()
        if curve:
            self.model.files[CURVE] = curve
        dtype = torch.float16 if self.settings.half and not is_last else torch.float32
        self.model.save_pretrained(folder, dtype=dtype, extras=extras)


@contextmanager
def progress_bar(show: bool, description: str, used: float) -> "Iterator[Progress | None]":
    """A bar over the budget of a run on stderr, if that is a terminal; what is printed through it stays above it."""
    if not show:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        bar.update(bar.add_task(description, total=1.0), completed=min(1.0, used))
        yield bar


def check_finite(losses: list[float], first: int, out: Path, hint: str) -> None:
    """Stop a run with a loss that is no number; `first` is the step of the first loss."""
    bad = next((i for i, loss in enumerate(losses) if not math.isfinite(loss)), None)
    if bad is not None:
        kept = f"the last good checkpoint is in {out / 'last'}"
        raise TrainingError(
            f"Expected a finite loss, found {losses[bad]} at step {first + bad}; "
            f"{kept if (out / 'last').exists() else 'nothing was saved before it'}.",
            hint,
        )


def _accelerator(settings: TrainingSettings) -> "Accelerator":
    try:
        from accelerate import Accelerator
    except ImportError as error:
        raise missing_extra("Training", "accelerate", "train") from error
    # Without a GPU, Accelerate takes the processes of torchrun for as many separate runs unless it is told this.
    many_on_cpu = int(os.environ.get("WORLD_SIZE", "1")) > 1 and not torch.cuda.is_available()
    return Accelerator(mixed_precision=settings.precision, cpu=many_on_cpu)


def _tensorboard(folder: Path, step: int) -> "SummaryWriter | None":
    """A writer for TensorBoard that forgets what was written after `step`; None where TensorBoard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=step + 1)


def split_held_out(
    prepared: PreparedData, validation: str | Path | None, settings: TrainingSettings
) -> tuple[Rows, Rows]:
    """Training rows and validation rows; without data of its own, validation gets a share of the training rows."""
    rows = prepared.load()
    if validation is not None:
        other = PreparedData.open(validation)
        if other.vocabulary.fingerprint != prepared.vocabulary.fingerprint:
            raise TrainingError(
                f"Expected validation data of the same vocabulary as {prepared.folder}, found another in {validation}.",
                "Prepare both with one --vocabulary.",
            )
        held_out = other.load()
        few = np.linspace(0, len(held_out), min(len(held_out), settings.validation_rows), endpoint=False)
        return rows, take(held_out, few.astype(np.int64))
    order = np.random.default_rng([settings.seed, len(rows)]).permutation(len(rows))
    few_rows = min(settings.validation_rows, len(rows) // 10)
    if few_rows == 0:
        raise TrainingError(
            f"Expected at least 10 texts, so that some can be held out, found {len(rows)} in {prepared.folder}.",
            "Prepare more texts, or give validation data of its own (--validation).",
        )
    return take(rows, np.sort(order[few_rows:])), take(rows, np.sort(order[:few_rows]))


def _best_keywords(rows: Rows, row: int, vocabulary: Vocabulary, most: int = 4) -> list[str]:
    """The words of a text that YAKE ranks best, in text order."""
    part = slice(rows.offsets[row], rows.offsets[row + 1])
    word_of = np.cumsum(~vocabulary.continues[rows.ids[part]]) - 1
    chosen = np.flatnonzero((rows.rank[part] > 0) & (rows.rank[part] <= most))
    words: dict[int, str] = {}
    for i in chosen.tolist():
        token = vocabulary.tokens[rows.ids[part][i]].removeprefix("##")
        words[word_of[i]] = words.get(word_of[i], "") + token
    return list(words.values())[:most]


def _longest(rows: Rows) -> int:
    return int(np.diff(rows.offsets).max(initial=0)) + 2


@torch.no_grad()
def _expect_frequencies(model: InsertionTransformer, rows: Rows) -> None:
    """Start a new output layer at how often each token is a label.

    Adam moves a bias by no more than the learning rate at a step, so a short run would never get there.
    """
    some = take(rows, np.arange(min(len(rows), BLOCK_ROWS)))
    counts = np.bincount(some.ids[some.stage > 0], minlength=model.config.vocab_size) + 0.5
    gaps = all_pairs(some, Stages(), np.random.default_rng(0)).gaps
    counts[model.config.pointer["noi_token_id"]] = max(0.5, gaps - (some.stage > 0).sum())
    prior = torch.from_numpy(np.log(counts)).float()
    model.cls.predictions.bias.copy_(prior - prior.mean())


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Biases and layer norms are not decayed."""
    trained = [p for p in model.parameters() if p.requires_grad]
    matrices = [p for p in trained if p.dim() > 1]
    vectors = [p for p in trained if p.dim() <= 1]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]


# ---------------------------------------------------------------------------------------------------------------------
# The files of a run


def tidy(out: Path) -> None:
    """Make the folder of a run, without what a killed process left in it."""
    with full_disk_explained(out):
        out.mkdir(parents=True, exist_ok=True)
        for name in {path.name.split(".")[1] for path in out.glob(".*")}:
            recover(out / name)
        remove_partial(out)


def read_state(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        return state if {"identity", "progress", "optimizer"} <= state.keys() else None
    except Exception as error:  # zip, pickle and torch each have their own way to fail
        raise TrainingError(
            f"Expected the state of a training run in {path}, found something else ({type(error).__name__}).",
            "Delete that file to go on from the weights alone.",
        ) from error


def same_run(state: dict[str, Any], now: dict[str, Any], last: Path) -> None:
    was = json.loads(state["identity"])
    differs = [name for name in now if was.get(name) != now[name]]
    if differs:
        shown = "" if differs[0] == "data" else f" (was {was.get(differs[0])}, is {now[differs[0]]})"
        raise TrainingError(
            f"Expected the command that began the run in {last.parent}, found another {differs[0]}{shown}.",
            f"Give the same settings (a budget may change), or start a new run: --init {last} and another --out.",
        )


def read_log(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    lines = []
    for line in path.read_text("utf-8").splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:  # a killed process may have written half of its last line
            break
    return lines


def cut_log(path: Path, step: int) -> None:
    """Forget what was logged after the checkpoint that the run continues from."""
    kept = [line for line in read_log(path) if line["step"] <= step]
    if path.exists():
        write_whole(path, "".join(json.dumps(line) + "\n" for line in kept).encode())
