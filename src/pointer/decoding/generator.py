"""`Pointer`: constraints in, texts out. What a user of the library touches."""

import gzip
import json
from collections import abc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch

from pointer.causal import is_causal
from pointer.decoding import picks
from pointer.decoding.calibration import Calibration
from pointer.decoding.constraints import FRAME, INSERTED, Tokens, first_stage, parse
from pointer.decoding.engine import Engine, Growth
from pointer.decoding.lexicon import Lexicon
from pointer.decoding.options import Options
from pointer.decoding.released import LENGTH, decode_released, released_text
from pointer.decoding.revision import Stage, births
from pointer.decoding.schedule import Preset, Schedule, default_preset
from pointer.decoding.search import Predict, Text
from pointer.errors import CheckpointError, UsageError
from pointer.model import CALIBRATION, InsertionTransformer, checkpoint_folder
from pointer.picture import Token
from pointer.vocabulary import Vocabulary
from pointer.writing import missing_constraints, write

Constraints = str | Sequence[str]
LENGTH_TRIES = 7
"""Texts that are decoded to find the `[NOI]` offset for a wanted length."""


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
    """X^0, X^1, ... ; ends with the repeated X^K if it converged. What a revision replaced is replaced in all."""
    score: float
    """The model's log-likelihood of all decisions by which the text grew, per gap of the text."""
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

Whoever follows plans decides which share a batch: `generate_many` has all at hand, a server gets them one by one.
"""


class Generator(Protocol):
    """What every system that turns constraints into texts offers."""

    name: str
    """What records and errors call it."""

    def generate_many(
        self, lists: Sequence[Constraints], batch_size: int = 64, **options: Any
    ) -> list[list[Generation]]:
        """For every list of constraints its texts, best first."""


class Pointer:
    """An insertion transformer that writes texts around constraints.

    >>> pointer = Pointer.from_pretrained("wiki")                                                    # doctest: +SKIP
    >>> pointer.generate(["sources", "sees", "structure", "perfectly"]).text                         # doctest: +SKIP
    """

    def __init__(
        self,
        predict: Predict,
        vocabulary: Vocabulary,
        *,
        casing: Mapping[str, Mapping[str, str]] | None = None,
        end: str = "fixed",
        longest: int = 512,
        name: str = "model",
        device: torch.device | None = None,
        calibrated: Preset | None = None,
        calibration: Calibration | None = None,
        rounds: int = 1,
        revisions: int = 0,
        schedule: str = "paper",
        frequencies: bytes | None = None,
        model: InsertionTransformer | None = None,
    ) -> None:
        self.predict = predict
        self.vocabulary = vocabulary
        self.casing = casing or {}
        self.end = end
        self.longest = longest
        self.name = name
        self.device = device or torch.device("cpu")
        self.calibrated = calibrated
        self.calibration = calibration
        self.rounds = rounds
        self.revisions = revisions
        self.schedule = schedule
        self._frequencies = frequencies
        self.model = model

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        device: str | None = None,
        dtype: str = "float32",
        threads: int | None = None,
    ) -> "Pointer":
        """Open a model by embedded name, folder or Hub id; `dtype` is float32, bfloat16 or float16."""
        if dtype not in ("float32", "bfloat16", "float16"):
            raise UsageError(f'dtype: expected float32, bfloat16 or float16, found "{dtype}".', "Choose one of these.")
        if threads is not None:
            torch.set_num_threads(threads)
        place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        folder = checkpoint_folder(name)
        if is_causal(folder):
            from pointer.decoding.writer import Writer

            return Writer.open(folder, str(name), place, dtype)
        model = InsertionTransformer.from_pretrained(folder)
        model.to(device=place, dtype=getattr(torch, dtype))  # type: ignore[call-arg]
        model.eval()  # type: ignore[no-untyped-call]
        return cls.of(model, str(name))

    @classmethod
    def of(cls, model: InsertionTransformer, name: str) -> "Pointer":
        """A generator for a model that is already open, where it is; `name` is what errors call it."""
        if model.vocabulary is None:
            raise UsageError("model: expected one with a vocabulary, found none.", "Open it with from_pretrained.")
        table = model.files.get("casing.json.gz")
        section = model.config.pointer
        calibrated, measured = section.get("default_preset"), model.files.get(CALIBRATION)
        return cls(
            predictor(model),
            model.vocabulary,
            casing=json.loads(gzip.decompress(table)) if table else None,
            end=section["end"],
            longest=model.config.max_position_embeddings,
            name=name,
            device=model.device,
            calibrated=_preset(calibrated, section, name) if calibrated else None,
            calibration=Calibration.of(measured, model.vocabulary, name) if measured else None,
            rounds=section.get("rounds", 1),
            revisions=section.get("revisions", 0),
            schedule=section.get("schedule", "paper"),
            frequencies=model.files.get("document_frequencies.json.gz"),
            model=model,
        )

    @property
    def parameters(self) -> int:
        """How many weights the model has."""
        return sum(weights.numel() for weights in self.model.parameters()) if self.model else 0

    @property
    def tokens(self) -> int:
        """How many tokens its vocabulary has."""
        return len(self.vocabulary)

    @property
    def files(self) -> dict[str, bytes]:
        """What travels with the model: tables and the card."""
        return self.model.files if self.model else {}

    def generate(self, constraints: Constraints, **options: Any) -> Generation:
        """The best text for some constraints: a list, or one string with `;` between them."""
        return self.generate_many([constraints], **options)[0][0]

    def generate_many(
        self, lists: Sequence[Constraints], batch_size: int = 64, **options: Any
    ) -> list[list[Generation]]:
        """For every list of constraints its `n` texts, best first; the order of the lists is kept."""
        chosen = Options.of(options)
        parsed = [parse(constraints) for constraints in lists]
        if batch_size < 1:
            raise UsageError(f"batch_size: expected at least 1, found {batch_size}.", "Change batch_size.")
        results: list[list[Generation]] = []
        for start in range(0, len(parsed), batch_size):
            results += self._generate(parsed[start : start + batch_size], chosen)
        return results

    def stream(self, constraints: Constraints, **options: Any) -> Iterator[Generation]:
        """The text after every stage, X^0 first; the last one is finished (`stopped` says why).

        While a text is revised there is nothing new to see; where it was, some words of the last one are others.
        """
        chosen = Options.of(options)
        if chosen.n > 1 or chosen.best_of > 1 or chosen.length is not None or chosen.preset == "released":
            raise UsageError(
                "stream: expected one text, one draft, no length and no preset released.", "Use generate_many."
            )
        engine = self.engine(chosen)
        growth = engine.start(parse(constraints))
        yield self.written(growth)
        for [pool] in engine.run([growth]):
            if not pool[0].is_revised or pool[0].stopped:
                yield self.written(pool[0])

    def plan(self, constraints: tuple[str, ...], options: Options) -> Plan:
        """How to get the texts of one list, best first."""
        if options.preset == "released":
            return [self._released(constraints, options)]
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
        """The best of several drafts, as a language model judges them."""
        drafts = yield from self._drafts(constraints, options)
        found = list({draft.text: draft for draft in drafts}.values())
        scores = self.fluency([draft.text for draft in found]) or [draft.score for draft in found]
        ranked = sorted(zip(scores, found, strict=True), key=lambda one: -one[0])
        return [draft for _, draft in ranked[: options.n]]

    def _drafts(self, constraints: tuple[str, ...], options: Options) -> Plan:
        """The greedy text, and samples beside it."""
        alone = replace(options, best_of=1, n=1)
        greedy = yield from self.plan(constraints, replace(alone, decoding="greedy"))
        several = replace(alone, decoding="sample", n=options.best_of - 1)
        return greedy + (yield from self.plan(constraints, several))

    def fluency(self, texts: list[str]) -> list[float]:
        """How well texts read, by a language model; nothing where none is installed."""
        return picks.fluency(texts)

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

    def engine(self, options: Options) -> Engine:
        """What lets texts grow by these options."""
        options = replace(options, blocks=self._blocks(options), revisions=self._revisions(options))
        lexicon = self.lexicon if options.preset == "default" else None  # only where it is asked for
        default = self.calibrated or default_preset(self.schedule, options.blocks)
        schedule = Schedule(self.vocabulary, options, self.device, default, lexicon, self.calibration)
        return Engine(self.predict, schedule, options, self.end, self.longest, self.name)

    def _blocks(self, options: Options) -> int:
        if options.blocks is not None:
            return options.blocks
        if options.decoding == "beam":
            return 2
        return self.rounds if options.preset == "default" else 1  # the other presets decode as the paper does

    def _revisions(self, options: Options) -> int:
        if options.revisions is not None:
            return options.revisions
        return self.revisions if options.preset == "default" else 0

    @cached_property
    def lexicon(self) -> Lexicon | None:
        """The words of the training texts, where the checkpoint tells them."""
        return Lexicon.of(self._frequencies, self.vocabulary) if self._frequencies else None

    def written(self, growth: Growth) -> Generation:
        """A text as it stands now, finished or not."""
        text, spans = write(growth.units(self.vocabulary), self.casing)
        tokens = tuple(token.text for token in growth.stages[-1])
        return Generation(text, tokens, tuple(spans), growth.stages, growth.score, growth.stopped, growth.constraints)

    def drafts(self, generation: Generation) -> list[str]:
        """The text after every stage of a generation, X^0 first."""
        if not generation.spans:  # the authors' decoder keeps no account of what stands where
            stages = ([self.vocabulary.id(token.text) for token in stage] for stage in generation.stages)
            return [released_text(self.vocabulary, ids) for ids in stages]
        born = births(generation.stages)
        owner = np.full(len(born), INSERTED)
        first = first_stage(generation.constraints, self.vocabulary, self.end)
        owner[born == 0] = first.owner[first.owner != FRAME]
        ids = np.array([self.vocabulary.id(token) for token in generation.tokens])
        texts = []
        for stage in range(len(generation.stages)):
            tokens = Tokens(ids[born <= stage], owner[born <= stage])
            units = Growth(generation.constraints, Text(tokens, stage, b""), ()).units(self.vocabulary)
            texts.append(write(units, self.casing)[0])
        return texts

    def _released(self, constraints: tuple[str, ...], options: Options) -> Generation:
        if self.model is None:
            raise UsageError("preset: released expects a checkpoint, found a scripted model.", "Choose another preset.")
        generator = torch.Generator().manual_seed(options.seed) if options.decoding == "sample" else None
        length = min(LENGTH, self.longest)
        found = decode_released(self.model, self.vocabulary, constraints, sampling=generator, length=length)
        stages = tuple(tuple(Token(self.vocabulary.tokens[i], False) for i in ids) for ids in found.stages)
        tokens = tuple(token.text for token in stages[-1])
        missing = tuple(missing_constraints(found.text, constraints))
        return Generation(found.text, tokens, (), stages, float("nan"), "max_stages", constraints, missing)


def predictor(model: InsertionTransformer) -> Predict:
    """The model as a function of gaps: the output layer runs only where an answer is wanted."""

    def predict(
        ids: torch.Tensor, attention: torch.Tensor | None, rows: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        hidden = model.bert(input_ids=ids, attention_mask=attention).last_hidden_state  # B T H
        logits: torch.Tensor = model.cls(hidden[rows, positions])  # G V
        return logits

    return predict


def _words(generation: Generation) -> int:
    return len(generation.text.split())


def _preset(given: Mapping[str, Any], section: Mapping[str, Any], name: str) -> Preset:
    """What a checkpoint decodes with: `default`, but for the fields that its config gives."""
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    try:
        return replace(default_preset(section.get("schedule", "paper"), section.get("rounds", 1)), **values)
    except TypeError as error:
        known = [field.name for field in fields(Preset)]
        unknown = [key for key in given if key not in known]
        raise CheckpointError(
            f"Expected a default_preset of {', '.join(known)} in the config of {name}, found {', '.join(unknown)}.",
            "The checkpoint may need a newer version of pointer-text.",
        ) from error
