"""`Pointer`: constraints in, texts out. What a user of the library touches."""

from abc import ABC, abstractmethod
from collections import abc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from pointer.checkpoint import ONNX, checkpoint_folder, is_causal
from pointer.decoding.constraints import parse
from pointer.decoding.options import BACKENDS, DTYPES, Options
from pointer.errors import UsageError, missing_extra
from pointer.fields import sentences
from pointer.integrity import check_sizes
from pointer.runtime import check_threads
from pointer.stage import Stage

Constraints = str | Sequence[str]
LENGTH_TRIES = 7
"""Texts that are decoded to find the `[NOI]` offset for a wanted length."""
SCORED_TOGETHER = 8
"""Drafts that a language model scores before others may have the machine."""


@dataclass(frozen=True)
class Generation:
    """A text and how it came about."""

    text: str
    """As people write it."""
    tokens: tuple[str, ...]
    """The tokens of the last stage."""
    spans: tuple[tuple[int, int], ...]
    """Where each constraint stands in `text`, in order."""
    stages: tuple[Stage, ...]
    """X^0, X^1, ... ; ends with the repeated X^K if it converged."""
    score: float
    """The model's log-likelihood of all decisions by which the text grew, per gap of the text; to four digits, as the
    last ones of a sum depend on what else is computed with it."""
    stopped: str
    """`converged`, `max_stages` or `max_length`."""
    constraints: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Constraints that are not in the text: always none, but for the preset `released`."""

    def to_dict(self) -> dict[str, Any]:
        """The generation for programs."""
        stages = [[{"token": text, "new": new} for text, new in stage] for stage in self.stages]
        return {field.name: getattr(self, field.name) for field in fields(self)} | {"stages": stages}


class Wanted(NamedTuple):
    """What a plan asks for: these texts, finished as this engine would."""

    engine: Any
    """A `Loop` with a `kind`; what it grows is its own affair."""
    growths: list[Any]


Plan: TypeAlias = abc.Generator[Wanted, list[list[Any]], list[Generation]]
"""How the texts of one list come about: asks for growths, is sent their finished candidates, returns the texts.

Whoever follows plans decides which share a batch: `generate_many` has all at hand, a server gets them one by one. A
plan that asks for no growths only pauses, so that others can go first.
"""


class Generator(Protocol):
    """What every system that turns constraints into texts offers."""

    name: str
    """What records and errors call it."""

    def generate_many(
        self, lists: Sequence[Constraints], batch_size: int = 64, **options: Any
    ) -> list[list[Generation]]:
        """For every list of constraints its texts, best first."""


Method = TypeVar("Method", bound=abc.Callable[..., Any])


def with_options_listed(method: Method) -> Method:
    """Append what every option means to the docstring of a method that takes them."""
    listed = "".join(f"\n    {name}: {sentence}" for name, sentence in sentences(Options).items())
    method.__doc__ = f"{method.__doc__}\n\nOptions:{listed}\n"
    return method


class Pointer(ABC):
    """A model that writes texts around constraints: a `ParallelPointer`, which fills all gaps of a text at once, or a
    `Writer`, which goes from left to right.

    >>> pointer = Pointer.from_pretrained("wiki")                                                    # doctest: +SKIP
    >>> pointer.generate(["sources", "sees", "structure", "perfectly"]).text                         # doctest: +SKIP
    """

    name: str
    """What errors and records call it."""
    predict: Any
    """The model as a function, which a server may wrap."""
    longest: int
    """The most tokens that the model can read."""
    parameters: int
    """How many weights the model has, those of its base included."""
    files: dict[str, bytes]
    """What travels with the model: tables and the card."""

    # -- what a kind of model has to say

    @abstractmethod
    def engine(self, options: Options) -> Any:
        """What lets texts grow by these options: a `Loop` with a `kind` and a `start`."""

    @abstractmethod
    def refuse_what_it_cannot(self, options: Options) -> None:
        """Refuse options that mean something for other models only."""

    @abstractmethod
    def written(self, growth: Any) -> Generation:
        """A text as it stands now, finished or not."""

    @abstractmethod
    def drafts(self, generation: Generation) -> list[str]:
        """The text after every stage of a generation, X^0 first."""

    @abstractmethod
    def likelihood(self, texts: list[str]) -> list[float]:
        """The log-probability of texts by a language model; nothing where none is installed."""

    @abstractmethod
    def cost(self, options: Options) -> int:
        """What the texts of one list may cost at most: positions that go through the model, times its weights.

        In millions of weights, as in 128 positions x 15 million = 1,920; a model without weights counts as one of a
        million. It is known before any work is done, so it takes a text to grow to `max_length` and to the last stage.
        """

    @property
    @abstractmethod
    def tokens(self) -> int:
        """How many tokens its vocabulary has."""

    # -- the same for all

    def __repr__(self) -> str:
        size = f"{self.parameters / 1e6:.1f} million weights, " if self.parameters else ""
        return f"<{type(self).__name__} {self.name}: {size}{self.tokens:,} tokens>"

    def __call__(self, constraints: Constraints, **options: Any) -> Generation:
        """`generate`."""
        return self.generate(constraints, **options)

    @staticmethod
    def from_pretrained(
        name: str | Path,
        device: str | None = None,
        dtype: str = "float32",
        threads: int | None = None,
        backend: str | None = None,
    ) -> "Pointer":
        """Open a model by embedded name, folder or Hub id.

        `backend` is `onnx` (CPU) or `torch`; left out, the fastest that can run the checkpoint here. `device` (`cuda`)
        and `dtype` (float32, bfloat16 or float16) are for torch. `threads` is how many CPU threads are used. The model
        can be used by several threads at once, and after a fork, where it works with one thread.
        """
        for option, given, choices in (("dtype", dtype, DTYPES), ("backend", backend or "onnx", BACKENDS)):
            if given not in choices:
                raise UsageError(f'{option}: expected {", ".join(choices)}, found "{given}".', "Choose one of these.")
        if threads is not None:
            check_threads(threads)
        folder = checkpoint_folder(name)
        check_sizes(folder)
        is_plain = device in (None, "cpu") and dtype == "float32"
        if backend == "onnx" and not is_plain:
            raise UsageError(
                f"backend: onnx expects the CPU and float32, found device {device} and {dtype}.", "Choose torch."
            )
        if backend == "onnx" or (backend is None and is_plain and _has_onnx(folder)):
            return _with_onnx(folder, str(name), threads)
        return _with_torch(folder, str(name), device, dtype, threads)

    @with_options_listed
    def generate(self, constraints: Constraints, **options: Any) -> Generation:
        """The best text for some constraints: a list, or one string with `;` between them."""
        return self.generate_many([constraints], **options)[0][0]

    @with_options_listed
    def generate_many(
        self, lists: Sequence[Constraints], batch_size: int = 64, **options: Any
    ) -> list[list[Generation]]:
        """For every list of constraints its `n` texts, best first; the order of the lists is kept."""
        chosen = Options.of(options)
        if isinstance(lists, str) or not isinstance(lists, Sequence):
            found = f"{lists!r:.100}"
            raise UsageError(f"lists: expected a list of constraint lists, found {found}.", "For one use generate.")
        parsed = [parse(constraints) for constraints in lists]
        if batch_size < 1:
            raise UsageError(f"batch_size: expected at least 1, found {batch_size}.", "Change batch_size.")
        results: list[list[Generation]] = []
        for start in range(0, len(parsed), batch_size):
            results += self._generate(parsed[start : start + batch_size], chosen)
        return results

    @with_options_listed
    def stream(self, constraints: Constraints, **options: Any) -> Iterator[Generation]:
        """The text after every stage, X^0 first; the last one is finished (`stopped` says why)."""
        chosen = Options.of(options)
        if chosen.n > 1 or chosen.best_of > 1 or chosen.length is not None or chosen.preset == "released":
            raise UsageError(
                "stream: expected one text, one draft, no length and no preset released.", "Use generate_many."
            )
        self.refuse_what_it_cannot(chosen)
        engine = self.engine(chosen)
        growth = engine.start(parse(constraints))
        yield self.written(growth)
        for [pool] in engine.run([growth]):
            yield self.written(pool[0])

    def plan(self, constraints: tuple[str, ...], options: Options) -> Plan:
        """How to get the texts of one list, best first."""
        self.refuse_what_it_cannot(options)
        if options.length is not None:
            return (yield from self._of_length(constraints, options, options.length))
        if options.best_of > 1:
            return (yield from self._picked(constraints, options))
        if options.decoding == "sample":
            return (yield from self._samples(constraints, options))
        engine = self.engine(options)
        [pool] = yield Wanted(engine, [engine.start(constraints)])
        return [self.written(growth) for growth in pool]

    def _generate(self, lists: list[tuple[str, ...]], options: Options) -> list[list[Generation]]:
        """Follow the plans of all lists; what they want of engines of one kind grows together."""
        plans = [self.plan(constraints, options) for constraints in lists]
        answers: dict[int, Any] = dict.fromkeys(range(len(lists)))
        results: dict[int, list[Generation]] = {}
        while answers:
            wanted: dict[Options, dict[int, Wanted]] = {}
            for i, answer in answers.items():
                try:
                    want = plans[i].send(answer)
                    wanted.setdefault(want.engine.kind, {})[i] = want
                except StopIteration as end:
                    results[i] = end.value
            answers = {}
            for together in wanted.values():
                engine = next(iter(together.values())).engine
                pools = iter(engine.finish([growth for want in together.values() for growth in want.growths]))
                answers |= {i: [next(pools) for _ in want.growths] for i, want in together.items()}
        return [results[i] for i in range(len(lists))]

    def _samples(self, constraints: tuple[str, ...], options: Options) -> Plan:
        """`n` different texts; where the model has no more to say after some tries, fewer."""
        engine = self.engine(options)
        found: dict[str, Generation] = {}
        for attempt in range(4):
            numbers = range(attempt * options.n, (attempt + 1) * options.n - len(found))
            pools = yield Wanted(engine, [engine.start(constraints, number) for number in numbers])
            for [growth] in pools:
                generation = self.written(growth)
                found.setdefault(generation.text, generation)
            if len(found) == options.n:
                break
        return sorted(found.values(), key=lambda generation: -generation.score)

    def _picked(self, constraints: tuple[str, ...], options: Options) -> Plan:
        """The likeliest of several drafts, by a language model.

        It is the probability of the whole text that counts. By that of a token on average, texts win that go on and on.
        """
        drafts = yield from self._drafts(constraints, options)
        found = list({draft.text: draft for draft in drafts}.values())
        scores: list[float] = []
        for start in range(0, len(found), SCORED_TOGETHER):
            scores += self.likelihood([draft.text for draft in found[start : start + SCORED_TOGETHER]])
            yield Wanted(self.engine(options), [])
        scores = scores or [draft.score for draft in found]
        ranked = sorted(zip(scores, found, strict=True), key=lambda one: -one[0])
        return [draft for _, draft in ranked[: options.n]]

    def _drafts(self, constraints: tuple[str, ...], options: Options) -> Plan:
        """The greedy text, and samples beside it."""
        alone = replace(options, best_of=1, n=1)
        greedy = yield from self.plan(constraints, replace(alone, decoding="greedy"))
        several = replace(alone, decoding="sample", n=options.best_of - 1)
        return greedy + (yield from self.plan(constraints, several))

    def _of_length(self, constraints: tuple[str, ...], options: Options, words: int) -> Plan:
        """Bisect the `[NOI]` offset; keep the texts that come nearest to the length."""
        low, high = -12.0, 12.0
        best: list[Generation] = []
        for _ in range(LENGTH_TRIES):
            offset = (low + high) / 2
            found = yield from self.plan(
                constraints, replace(options, length=None, noi_offset=options.noi_offset + offset)
            )
            size = _words(found[0])
            if not best or abs(size - words) < abs(_words(best[0]) - words):
                best = found
            low, high = (low, offset) if size < words else (offset, high)
        return best


def _has_onnx(folder: Path) -> bool:
    """Can onnxruntime run a checkpoint?"""
    if not is_causal(folder):
        return (folder / ONNX).is_file()
    from pointer.runtime.writer import can_run

    return can_run(folder)


def _with_onnx(folder: Path, name: str, threads: int | None) -> Pointer:
    if is_causal(folder):
        from pointer.decoding.writer import Writer

        return Writer.open(folder, name, threads)
    from pointer.decoding.parallel import ParallelPointer

    if not (folder / ONNX).is_file():
        raise UsageError(
            f"backend: onnx expects {ONNX} in {folder}, found none.", f"Make it with: pointer export {name} OUT"
        )
    return ParallelPointer.open(folder, name, threads)


def _with_torch(folder: Path, name: str, device: str | None, dtype: str, threads: int | None) -> Pointer:
    try:
        import torch
    except ImportError as error:
        raise missing_extra(f"Opening {name} with PyTorch", "torch", "train") from error
    if threads is not None:
        torch.set_num_threads(threads)
    place = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if is_causal(folder):
        from pointer.causal import CausalInserter
        from pointer.decoding.writer import Writer

        inserter = CausalInserter.from_pretrained(folder)
        inserter.model.to(device=place, dtype=getattr(torch, dtype)).eval()
        return Writer.of_inserter(inserter, name)
    from pointer.decoding.parallel import ParallelPointer
    from pointer.model import InsertionTransformer

    model = InsertionTransformer.from_pretrained(folder)
    model.to(device=place, dtype=getattr(torch, dtype))  # type: ignore[call-arg]
    model.eval()  # type: ignore[no-untyped-call]
    return ParallelPointer.of(model, name)


def rounded(score: float) -> float:
    """A score as it is given."""
    return round(score, 4)


def tries(options: Options) -> int:
    """How many texts of one list are decoded for a wanted length."""
    return 1 if options.length is None else LENGTH_TRIES


def _words(generation: Generation) -> int:
    return len(generation.text.split())
