"""`Pointer`: constraints in, texts out. What a user of the library touches."""

from abc import ABC, abstractmethod
from collections import abc
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from pointer.base import has_base
from pointer.checkpoint import ONNX, checkpoint_folder, embedded_folder, is_causal
from pointer.decoding.demand import Demand, content_words, count_sentences, count_words, demand_of
from pointer.decoding.grammar import Constraints, Given, Template, parse
from pointer.decoding.options import BACKENDS, DTYPES, Options
from pointer.decoding.picks import BY_LANGUAGE_MODEL, ranked
from pointer.errors import UsageError, missing_extra
from pointer.fields import sentences
from pointer.integrity import check_sizes
from pointer.runtime import check_threads, side_by_side
from pointer.stage import Stage

DRAFTS = 8
"""Drafts to pick from where a text cannot just grow as the model likes: to a wanted length, or in a template."""
SCORED_TOGETHER = 8
"""Drafts that a language model scores before others may have the machine."""
SAMPLE_ROUNDS = 4
"""Times that samples are drawn to find different ones, before words are avoided."""


@dataclass(frozen=True, repr=False)
class Generation:
    """A text and how it came about. `print` prints the text; in a notebook it draws how the text grew."""

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
    """`converged`, `max_stages` or `max_length`; `length` if the length that was asked for could not be reached."""
    constraints: tuple[str, ...] = ()
    """The constraints in the order and the forms that the text has them in."""
    missing: tuple[str, ...] = ()
    """Constraints that are not in the text: always none, but for the preset `released`."""
    asked: tuple[str, ...] = ()
    """The constraints as they were asked for, those that were optional and left out included."""
    order: tuple[int, ...] = ()
    """For each of `constraints`, which of `asked` it is."""
    remark: str = ""
    """One sentence where the answer is not all that was asked for: fewer texts, or another length."""
    glue: tuple[tuple[bool, bool], ...] | None = None
    """Of a template: does each stretch touch what is before it, and what follows it?"""

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        grown = f"stages={len(self.stages)}, score={self.score}, stopped={self.stopped!r}"
        grown += f", remark={self.remark!r}" if self.remark else ""
        return f"Generation({self.text!r}, constraints={list(self.constraints)}, {grown})"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from pointer.picture import stage_fragment

        return stage_fragment(self.stages, self.text, self.spans)

    def to_dict(self) -> dict[str, Any]:
        """The generation for programs."""
        stages = [[{"token": text, "new": new} for text, new in stage] for stage in self.stages]
        shown = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "glue"}
        return shown | {"stages": stages}


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

    def generate_many(self, lists: Sequence[Given], batch_size: int = 64, **options: Any) -> list[list[Generation]]:
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

    styles: tuple[str, ...] = ()
    """What a text can be like, for models that know several styles."""
    chooses_on_the_way = False
    """Are order and forms chosen while the text grows, or before?"""

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
    def readings(self, texts: list[str], style: str | None) -> list[float]:
        """How well texts read, by a language model; nothing where none is installed."""

    @abstractmethod
    def cost(self, constraints: Given, options: Options) -> int:
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
        name: str | Path | None = None,
        device: str | None = None,
        dtype: str = "float32",
        threads: int | None = None,
        backend: str | None = None,
    ) -> "Pointer":
        """Open a model by embedded name, folder or Hub id; left out, the best one that is here (`best_model`).

        `backend` is `onnx` (CPU) or `torch`; left out, the fastest that can run the checkpoint here. `device` (`cuda`)
        and `dtype` (float32, bfloat16 or float16) are for torch. `threads` is how many CPU threads are used. The model
        can be used by several threads at once, and after a fork, where it works with one thread.
        """
        for option, given, choices in (("dtype", dtype, DTYPES), ("backend", backend or "onnx", BACKENDS)):
            if given not in choices:
                raise UsageError(f'{option}: expected {", ".join(choices)}, found "{given}".', "Choose one of these.")
        if threads is not None:
            check_threads(threads)
        name = name or best_model()
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
    def generate(self, constraints: Given, **options: Any) -> Generation:
        """The best text for some constraints: a list, or one string with `;` between them (docs/constraints.md)."""
        return self.generate_many([constraints], **options)[0][0]

    @with_options_listed
    def generate_many(self, lists: Sequence[Given], batch_size: int = 64, **options: Any) -> list[list[Generation]]:
        """For every list of constraints its `n` texts, best first; the order of the lists is kept."""
        chosen = Options.of(options)
        if isinstance(lists, str) or not isinstance(lists, Sequence):
            found = f"{lists!r:.100}"
            raise UsageError(f"lists: expected a list of constraint lists, found {found}.", "For one use generate.")
        parsed = [parse(constraints) for constraints in lists]
        if batch_size < 1:
            raise UsageError(f"batch_size: expected at least 1, found {batch_size}.", "Change batch_size.")
        batches = [parsed[start : start + batch_size] for start in range(0, len(parsed), batch_size)]
        results = side_by_side(partial(self._generate, options=chosen), batches, self.predict)
        return [texts for some in results for texts in some]

    @with_options_listed
    def expand(self, sentence: str, **options: Any) -> Generation:
        """A richer sentence: nothing is taken out or moved, words come in between.

        Without a `length` it becomes a quarter longer at least, and at most twice as long.
        """
        constraints, chosen = expansion(sentence, Options.of(options))
        return self.generate(constraints, **asdict(chosen))

    @with_options_listed
    def stream(self, constraints: Given, **options: Any) -> Iterator[Generation]:
        """The text after every stage, X^0 first; the last one is finished (`stopped` says why)."""
        chosen, parsed = Options.of(options), parse(constraints)
        self.refuse_what_it_cannot(chosen)
        if not self.can_stream(parsed, chosen):
            raise UsageError(
                "stream: expected one text, one draft, no length, no template and no preset released"
                f"{'' if self.chooses_on_the_way else ', and nothing to choose before the first stage'}.",
                "Use generate_many.",
            )
        engine = self.engine(chosen)
        growth = engine.start(demand_of(parsed, chosen))
        yield self.written(growth)
        for [pool] in engine.run([growth]):
            yield self.written(pool[0])

    def can_stream(self, constraints: Constraints, options: Options) -> bool:
        """Is there one text whose stages can be watched while it grows?"""
        demand = demand_of(constraints, options)
        is_one = options.n == options.best_of == 1 and options.preset != "released" and not demand.is_tight
        return is_one and (self.chooses_on_the_way or demand.is_settled)

    def plan(self, constraints: Given, options: Options) -> Plan:
        """How to get the texts of one list, best first."""
        self.refuse_what_it_cannot(options)
        return (yield from self._different(demand_of(parse(constraints), options), options))

    def _generate(self, lists: list[Constraints], options: Options) -> list[list[Generation]]:
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

    def _different(self, demand: Demand, options: Options) -> Plan:
        """`n` texts that differ; where the model has no more to say, fewer, and a remark.

        Those that come by themselves are looked at first. If they are too few, others are written without the words
        that the first ones have.
        """
        found: list[Generation] = []
        before = -1
        while before < len(found) < options.n:
            before = len(found)
            said = frozenset(word for text in found for word in _inserted(text))
            for text in (yield from self._of_length(replace(demand, avoided=said), options)):
                _add_if_different(found, text, options.n)
        if len(found) == options.n:
            return found
        fewer = f"Expected {options.n} texts that differ, found {len(found)}: the model has no others to give."
        return [replace(text, remark=f"{text.remark} {fewer}".strip()) for text in found]

    def _of_length(self, demand: Demand, options: Options) -> Plan:
        """Texts of the length that is asked for, best first.

        A text that has it by itself reads best, so the model is asked as always first. Otherwise drafts are steered to
        the length, and the one that reads best is given.
        """
        if not demand.has_length:
            return (yield from self._texts(demand, options))
        found = yield from self._texts(replace(demand, words=None, sentences=None), options)
        if not any(demand.misses(text.text) == 0 for text in found):
            found += yield from self._texts(demand, options)
        fitting = [text for text in found if demand.misses(text.text) == 0]
        nearest = min(found, key=lambda text: demand.misses(text.text))
        return fitting or [replace(nearest, stopped="length", remark=_of_another_length(nearest.text))]

    def _texts(self, demand: Demand, options: Options) -> Plan:
        """Texts as the decoding gives them, best first."""
        if options.best_of > 1 or demand.is_tight:
            return (yield from self._picked(demand, options))
        if options.decoding == "sample":
            return (yield from self._samples(demand, options))
        engine = self.engine(replace(options, n=1))
        [[best, *_]] = yield Wanted(engine, [engine.start(demand)])
        return [self.written(best)]

    def _samples(self, demand: Demand, options: Options) -> Plan:
        """Some samples that differ, the likeliest first; perhaps fewer than `n`."""
        engine = self.engine(replace(options, n=1))
        found: list[Generation] = []
        for attempt in range(SAMPLE_ROUNDS):
            numbers = range(attempt * options.n, (attempt + 1) * options.n - len(found))
            pools = yield Wanted(engine, [engine.start(demand, number) for number in numbers])
            for [growth] in pools:
                _add_if_different(found, self.written(growth), options.n)
            if len(found) == options.n:
                break
        return sorted(found, key=lambda generation: -generation.score)

    def _picked(self, demand: Demand, options: Options) -> Plan:
        """Several drafts, the one that reads best first."""
        decoding = "greedy" if options.decoding == "beam" else options.decoding
        chosen = replace(options, n=1, decoding=decoding, best_of=drafts_of(demand, options))
        drafts = yield from self._drafts(demand, chosen)
        found = list({draft.text: draft for draft in drafts}.values())
        scores: list[float] = []
        for start in range(0, len(found), SCORED_TOGETHER) if options.pick_by in BY_LANGUAGE_MODEL else ():
            scores += self.readings([draft.text for draft in found[start : start + SCORED_TOGETHER]], options.style)
            yield Wanted(self.engine(options), [])
        return ranked(found, options.pick_by, scores)

    def _drafts(self, demand: Demand, options: Options) -> Plan:
        """The greedy text, and samples beside it."""
        engine = self.engine(replace(options, decoding="greedy", best_of=1))
        [[greedy]] = yield Wanted(engine, [engine.start(demand)])
        several = self.engine(replace(options, decoding="sample", best_of=1))
        pools = yield Wanted(several, [several.start(demand, number) for number in range(options.best_of - 1)])
        return [self.written(greedy), *(self.written(growth) for [growth] in pools)]


def best_model() -> str:
    """The best embedded model that can be opened here: `writer` where its base is, else `everyday`."""
    return "writer" if embedded_folder("writer") is not None and has_base() else "everyday"


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


def drafts_of(demand: Demand, options: Options) -> int:
    """How many drafts a text is picked from; 1 where there is nothing to pick."""
    return max(options.best_of, DRAFTS if demand.is_tight else 1)


def texts_of(demand: Demand, options: Options) -> tuple[int, int]:
    """How many texts are decoded at most for one list, and how many of them a language model scores."""
    # Further texts are written without the words of the first ones.
    plain = options.n * options.width if options.decoding == "beam" else max(options.n, options.best_of)
    steered = options.n * drafts_of(demand, options) if demand.is_tight else 0
    decoded = steered + (plain if demand.has_length or not steered else 0)
    return decoded, decoded if drafts_of(demand, options) > 1 else 0


def expansion(sentence: str, options: Options) -> tuple[Constraints, Options]:
    """What asks for a richer sentence: longer by a quarter at least, if no length is asked for."""
    words = max(1, count_words(sentence))
    if options.length is None:
        options = replace(options, length=f"{min(400, words + -(-words // 4))}-{min(400, 2 * words)}")
    return Constraints((Template(sentence, everywhere=True),)), options


def _of_another_length(text: str) -> str:
    words, sentences = count_words(text), count_sentences(text)
    size = f"{words} word{'s' * (words != 1)}, {sentences} sentence{'s' * (sentences != 1)}"
    return f"The length could not be reached; the nearest has {size}."


def _inserted(text: Generation) -> frozenset[str]:
    return content_words(text.text, text.spans)


def _add_if_different(found: list[Generation], text: Generation, most: int) -> None:
    """Add a text unless there are enough, or it shares more than half of its content words with one of them."""
    words = _inserted(text)
    for other in found:
        fewer = min(len(words), len(_inserted(other)))
        if text.text == other.text or 2 * len(words & _inserted(other)) > fewer:
            return
    if len(found) < most:
        found.append(text)
