"""The training loop: one for pre-training, fine-tuning, adapters and the systems that POINTER is compared with.

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

import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from pointer.card import Description, curve_picture, model_card
from pointer.checkpoint import CARD, CURVE
from pointer.errors import TrainingError, missing_extra
from pointer.progress import BETWEEN_LINES
from pointer.storage import write_whole
from pointer.training.batches import Batches, Place, Step
from pointer.training.files import STATE, Log, check_same_run, read_state, state_bytes, tidy
from pointer.training.settings import BUDGET, RunSettings

if TYPE_CHECKING:
    from accelerate import Accelerator
    from rich.progress import Progress

SAMPLES = 4
"""Texts that every validation writes, for people to read."""
FRESH_WARMUP = 100
"""Warm-up steps of an optimizer that starts on weights whose own optimizer is lost."""

Opener = Callable[[Any], Any]
"""Makes a generator out of a model in training; its `generate(constraints, **options).text` is a sample."""


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

    @property
    def real_share(self) -> float:
        """The share of the positions computed so far that were real tokens."""
        return self.tokens / max(1, self.computed)


@dataclass(frozen=True)
class Outcome:
    """How a run ended: why, how far it got, the last validation, and the share of positions that were real tokens."""

    reason: str
    step: int
    tokens: int
    validation: dict[str, Any]
    real_share: float


class Run(ABC):
    """One training run: data, model and optimizer together, and what is done with them.

    A kind of model brings itself, its batches and its objective; the loop is the same for all.
    """

    batches: Batches
    """The endless stream of steps, `batches_per_step` batches each."""
    validation: tuple[Any, list[Any]]
    """Held-out texts and their batches, as `Batches.first_block` gives them."""
    model: Any
    """What is trained and saved."""
    is_annealed = False
    """Does it learn something else at the end of the budget than at the start? Then `best/` has the newest weights, and
    no run is stopped early: the lowest loss says only which task was the easiest."""

    def __init__(
        self, out: Path, settings: RunSettings, about: str = "", show: bool = True, opener: Opener | None = None
    ) -> None:
        """`about` is a paragraph for the card, `show` draws progress on stderr, `opener` is for samples."""
        self.accelerator = _accelerator(settings.precision)
        self.out, self.settings, self.about, self.opener = out, settings, about, opener
        self.show = show and self.accelerator.is_main_process
        self.clock: Callable[[], float] = time.monotonic
        """What a budget in minutes is measured by."""
        self.bar: Progress | None = None
        self.tell_at = 0.0
        """When to print a line, where there is no terminal for a bar: at once, and from then on now and then."""
        self.pending: list[tuple[torch.Tensor, float]] = []
        """The loss and the gaps of every step since the last line of the log."""

    # -- what a kind of model has to say

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What must not change between a run and its continuation, beside the settings."""

    @abstractmethod
    def make(self, last: Path | None) -> tuple[nn.Module, int]:
        """The weights, those of the checkpoint `last` if the run goes on, and how many tokens they have seen."""

    @abstractmethod
    def collate(self, rows: Any, batch: Any) -> Any:
        """A batch as a tuple of tensors, or as what `loss` makes them of."""

    @abstractmethod
    def loss(self, model: Any, tensors: Any) -> torch.Tensor:
        """The losses of all gaps of a batch, added up."""

    @abstractmethod
    def description(self) -> Description:
        """What the card says of the model."""

    @abstractmethod
    def write(self, folder: Path, dtype: torch.dtype, files: dict[str, bytes]) -> None:
        """Save the model, with these files beside it."""

    def validate(self) -> dict[str, Any]:
        """How good the model is on held-out texts: `loss` and more."""
        totals = torch.zeros(2, dtype=torch.double, device=self.accelerator.device)
        for batch, tensors in self.validation_batches():
            totals[0] += self.objective(tensors)
            totals[1] += batch.gaps
        total, gaps = self.accelerator.reduce(totals, "sum").tolist()
        return {"loss": total / gaps, "perplexity": math.exp(min(total / gaps, 700.0))}

    def asked(self) -> Iterable[tuple[list[str], dict[str, Any]]]:
        """Constraints and options of the samples."""
        return []

    # -- starting and continuing

    @property
    def batches_per_step(self) -> int:
        """Of all processes."""
        return int(self.accelerator.num_processes) * self.settings.accumulate

    @property
    def tokens_seen(self) -> int:
        """How many tokens the model was trained on, in this run and before it."""
        return self.at.tokens_before + self.at.tokens

    def open(self) -> None:
        """Model, optimizer and progress: new, continued exactly, or continued from weights alone."""
        if self.accelerator.is_main_process:
            tidy(self.out)
        self.accelerator.wait_for_everyone()
        last = self.out / "last"
        state = read_state(last / STATE)
        if state is not None:
            check_same_run(state, self._identity(), last)
        is_continued = (last / "config.json").is_file()
        torch.manual_seed(self.settings.seed)
        model, seen = self.make(last if is_continued else None)
        self.objective = Objective(model, self.loss)
        groups = parameter_groups(self.objective, self.settings.weight_decay)
        optimizer = torch.optim.AdamW(groups, self.settings.learning_rate, fused=True)
        self.module, self.optimizer = self.accelerator.prepare(self.objective, optimizer)
        warmup = max(self.settings.warmup_steps, FRESH_WARMUP if is_continued else 0)
        self.at = Progressed(warmup=warmup, tokens_before=seen)
        if state is not None:
            self.optimizer.load_state_dict(state["optimizer"])
            if self.accelerator.scaler is not None:
                self.accelerator.scaler.load_state_dict(state["scaler"])
            self.at = Progressed(**state["progress"] | {"place": Place(*state["progress"]["place"])})
        self.log = Log(self.out, self.at.step, self.accelerator.is_main_process)

    def _identity(self) -> dict[str, Any]:
        settings = {name: value for name, value in asdict(self.settings).items() if name not in BUDGET}
        return settings | self.identity() | {"number of processes": self.accelerator.num_processes}

    # -- the loop

    def __call__(self) -> Outcome:
        self.began = self.clock() - self.at.seconds
        self._start_stretch()
        self.objective.train()
        reason = self._why_stop()
        with progress_bar(self.show, f"step {self.at.step}", self.used) as self.bar:
            if reason is not None and not self.log.last_validation:
                self._evaluate()
            for step in self.batches(self.at.place) if reason is None else ():
                self._train_step(step)
                self._look_at_the_clock()
                reason = self._why_stop()
                if reason is None and not self._is_due("log_every"):
                    continue
                self._log_stretch()
                if reason is not None or self._is_due("evaluate_every"):
                    self._evaluate()
                    reason = reason or self._why_stop()
                if self._is_due("keep_every"):
                    self._save(f"step-{self.at.step}")
                if reason is not None or self._is_due("save_every"):
                    self._look_at_the_clock()
                    self._save("last")
                self._start_stretch()
                if reason is not None:
                    break
        return Outcome(reason or "", self.at.step, self.at.tokens, self.log.last_validation, self.at.real_share)

    @property
    def used(self) -> float:
        """How much of the budget is used up, from 0 to 1."""
        at = self.at
        return min(1.0, self.settings.used(at.step, at.tokens, at.epochs, at.seconds))

    def _is_due(self, every: str) -> bool:
        """Is it time for what happens every so many steps?"""
        steps = getattr(self.settings, every)
        return steps is not None and self.at.step % steps == 0

    def _why_stop(self) -> str | None:
        if self.used >= 1:
            return "the budget is used up"
        if self.settings.patience is not None and self.at.stale >= self.settings.patience:
            return "the validation loss stopped falling"
        return None

    def _look_at_the_clock(self) -> None:
        """Take the time: that of the main process, so that all processes stop at the same step."""
        self.at.seconds = self.clock() - self.began
        if self.accelerator.num_processes > 1 and self.settings.minutes is not None:
            from accelerate.utils import broadcast

            clock = broadcast(torch.tensor([self.at.seconds], device=self.accelerator.device))
            self.at.seconds = float(clock.item())

    def _train_step(self, step: Step) -> None:
        """One optimizer step: the loss is divided by the gaps of all batches of all processes."""
        rank, size = self.accelerator.process_index, self.settings.accumulate
        # Keyed by the step, so that a continued run draws the same without any state being kept.
        torch.manual_seed(self.settings.seed * 1_000_003 + self.at.step * 1009 + rank)
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.rate(self.at.step, self.used, self.at.warmup)
        gaps = sum(batch.gaps for batch in step.batches)
        mine = step.batches[rank * size : (rank + 1) * size]
        loss = torch.zeros((), device=self.accelerator.device)
        for i, batch in enumerate(mine):
            tensors = self._tensors(step.rows, batch)
            with self.accelerator.no_sync(self.module) if i + 1 < len(mine) else nullcontext():
                part = self.module(tensors) / gaps
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

    # -- logs, validation, checkpoints

    def _start_stretch(self) -> None:
        """Measure speed from here on."""
        self.stretch = self.clock(), self.at.tokens

    def _log_stretch(self) -> None:
        """A line for all steps since the last one."""
        start, tokens = self.stretch
        speed = (self.at.tokens - tokens) / max(1e-9, self.clock() - start)
        losses = self.accelerator.reduce(torch.stack([loss for loss, _ in self.pending]), "sum").tolist()
        gaps = [gaps for _, gaps in self.pending]
        self.pending.clear()
        self._check_finite(losses)
        loss = float(np.average(losses, weights=gaps))
        self.log.add(
            {
                "step": self.at.step,
                "tokens": self.at.tokens,
                "epochs": round(self.at.epochs, 6),
                "loss": loss,
                "learning_rate": self.optimizer.param_groups[0]["lr"],
                "tokens_per_second": round(speed, 1),
                "real_share": round(self.at.real_share, 4),
                "seconds": round(self.at.seconds, 1),
            }
        )
        if self.bar is not None:
            text = f"step {self.at.step} · loss {loss:.3f} · {speed:,.0f} tokens/s"
            self.bar.update(self.bar.task_ids[0], completed=self.used, description=text)
            if not self.bar.console.is_terminal and time.monotonic() >= self.tell_at:
                self.bar.console.print(f"{text} · {self.used:.0%} of the budget", markup=False)
                self.tell_at = time.monotonic() + BETWEEN_LINES

    def _check_finite(self, losses: list[float]) -> None:
        """Stop a run with a loss that is no number; the last of the losses is that of the last step."""
        bad = next((i for i, loss in enumerate(losses) if not math.isfinite(loss)), None)
        if bad is not None:
            last = self.out / "last"
            kept = f"the last good checkpoint is in {last}" if last.exists() else "nothing was saved before it"
            raise TrainingError(
                f"Expected a finite loss, found {losses[bad]} at step {self.at.step - len(losses) + 1 + bad}; {kept}.",
                "Lower the learning rate, clip the gradient (--clip 1) or leave mixed precision.",
            )

    def validation_batches(self) -> Iterator[tuple[Any, Any]]:
        """The held-out batches of this process, each also as tensors."""
        torch.manual_seed(self.settings.seed)  # what is drawn for a validation is drawn again for the next
        rows, batches = self.validation
        for batch in batches[self.accelerator.process_index :: self.accelerator.num_processes]:
            yield batch, self._tensors(rows, batch)

    def _tensors(self, rows: Any, batch: Any) -> Any:
        from accelerate.utils import send_to_device

        return send_to_device(self.collate(rows, batch), self.accelerator.device)

    def _evaluate(self) -> None:
        self.objective.train(False)
        with self.accelerator.autocast(), torch.no_grad():
            found = self.validate()
            samples = self._samples()
        self.objective.train()
        self.log.add({"step": self.at.step, "tokens": self.at.tokens, "validation": found, "samples": samples})
        is_better = self.is_annealed or found["loss"] < self.at.best
        self.at.best = min(self.at.best, found["loss"])
        self.at.stale = 0 if is_better else self.at.stale + 1
        if self.bar is not None:
            real = f"{self.at.real_share:.1%} of positions are real tokens"
            measures = [f"{name} {value:.4f}" for name, value in found.items() if isinstance(value, float)]
            self.bar.console.print(f"step {self.at.step:,}: validation {', '.join(measures)}; {real}")
            for sample in samples:
                self.bar.console.print(f"  {'; '.join(sample['constraints'])} -> {sample['text']}", markup=False)
        if is_better:
            self._save("best")

    def _samples(self) -> list[dict[str, Any]]:
        """A few texts of the model as it is: to read, not to measure."""
        if self.opener is None or not self.accelerator.is_main_process:
            return []
        generator = self.opener(self.model)
        return [
            {"constraints": words, "text": generator.generate(words, **options).text} for words, options in self.asked()
        ]

    def _save(self, name: str) -> None:
        """Write a checkpoint folder with a card and a curve; `last` with all that it takes to go on."""
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            settings, progress = asdict(self.settings), asdict(self.at)
            card = model_card(self.out.name, self.description(), self.about, settings, self.log.lines, progress)
            files = {CARD: card.encode()}
            curve = curve_picture(self.log.lines)
            if curve is not None:
                files[CURVE] = curve
                write_whole(self.out / CURVE, curve)
            if name == "last":
                files[STATE] = self._state()
            is_half = self.settings.half and name != "last"
            self.write(self.out / name, torch.float16 if is_half else torch.float32, files)
        self.accelerator.wait_for_everyone()

    def _state(self) -> bytes:
        scaler = self.accelerator.scaler
        return state_bytes(
            self._identity(),
            progress=asdict(self.at) | {"place": list(self.at.place)},
            optimizer=self.optimizer.state_dict(),
            scaler=None if scaler is None else scaler.state_dict(),
        )


class Objective(nn.Module):
    """A model and its loss as one module, so that DDP can wrap it."""

    def __init__(self, model: nn.Module, loss: Callable[[Any, Any], torch.Tensor]) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, tensors: Any) -> torch.Tensor:
        """The losses of a batch, added up."""
        return self.loss(self.model, tensors)


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Biases and layer norms are not decayed."""
    trained = [p for p in model.parameters() if p.requires_grad]
    matrices = [p for p in trained if p.dim() > 1]
    vectors = [p for p in trained if p.dim() <= 1]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]


@contextmanager
def denormals_as_zero() -> Iterator[None]:
    """Numbers so small that they slow a processor down count as zero meanwhile; what comes afterwards may need them."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


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
        bar.update(bar.add_task(description, total=1.0), completed=used)
        yield bar


def _accelerator(precision: str) -> "Accelerator":
    try:
        from accelerate import Accelerator
    except ImportError as error:
        raise missing_extra("Training", "accelerate", "train") from error
    if os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true":  # validation and checkpoints would see a part
        raise TrainingError(
            "Expected processes that each hold the whole model, found FSDP.",
            "Leave it out; --gradient-checkpointing saves memory, too.",
        )
    # Without a GPU, Accelerate takes the processes of torchrun for as many separate runs unless it is told this.
    many_on_cpu = int(os.environ.get("WORLD_SIZE", "1")) > 1 and not torch.cuda.is_available()
    return Accelerator(mixed_precision=precision, cpu=many_on_cpu)
