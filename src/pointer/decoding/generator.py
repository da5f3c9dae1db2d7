"""`Pointer`: constraints in, texts out. What a user of the library touches."""

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from pointer.decoding.constraints import parse
from pointer.decoding.engine import Engine, Growth, Stage
from pointer.decoding.options import Options
from pointer.decoding.released import LENGTH, decode_released
from pointer.decoding.schedule import Preset, Schedule
from pointer.decoding.search import Predict
from pointer.errors import UsageError
from pointer.model import InsertionTransformer
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
    """X^0, X^1, ... ; ends with the repeated X^K if it converged."""
    score: float
    """The model's log-likelihood of all its decisions, per gap of the text."""
    stopped: str
    """`converged`, `max_stages` or `max_length`."""
    constraints: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Constraints that are not in the text: always none, but for the preset `released`."""

    def to_dict(self) -> dict[str, Any]:
        """The generation for programs."""
        stages = [[{"token": text, "new": new} for text, new in stage] for stage in self.stages]
        return asdict(self) | {"stages": stages}


class Generator(Protocol):
    """What every system that turns constraints into texts offers."""

    def generate_many(self, lists: Sequence[Constraints], **options: Any) -> list[list[Generation]]:
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
        model = InsertionTransformer.from_pretrained(name)
        place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
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
        calibrated = section.get("default_preset")
        return cls(
            predictor(model),
            model.vocabulary,
            casing=json.loads(gzip.decompress(table)) if table else None,
            end=section["end"],
            longest=model.config.max_position_embeddings,
            name=name,
            device=model.device,
            calibrated=Preset(**{k: _frozen(v) for k, v in calibrated.items()}) if calibrated else None,
            model=model,
        )

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
        """The text after every stage, X^0 first; the last one is finished (`stopped` says why)."""
        chosen = Options.of(options)
        if chosen.n > 1 or chosen.length is not None or chosen.preset == "released":
            raise UsageError("stream: expected one text, no length and no preset released.", "Use generate_many.")
        engine = self._engine(chosen)
        growth = engine.start(parse(constraints))
        yield self._finished(growth)
        for [pool] in engine.run([growth]):
            yield self._finished(pool[0])

    def _generate(self, lists: list[tuple[str, ...]], options: Options) -> list[list[Generation]]:
        if options.preset == "released":
            return [[self._released(constraints, options)] for constraints in lists]
        if options.length is not None:
            return self._of_length(lists, options, options.length)
        if options.decoding == "sample":
            return self._samples(lists, options)
        engine = self._engine(options)
        pools = engine.finish([engine.start(constraints) for constraints in lists])
        return [[self._finished(growth) for growth in pool] for pool in pools]

    def _samples(self, lists: list[tuple[str, ...]], options: Options) -> list[list[Generation]]:
        """`n` different texts for each list; where the model has no more to say after some tries, fewer."""
        engine = self._engine(options)
        found: list[dict[str, Generation]] = [{} for _ in lists]
        for attempt in range(4):
            wanted = [(i, attempt * options.n + k) for i in range(len(lists)) for k in range(options.n - len(found[i]))]
            pools = engine.finish([engine.start(lists[i], number) for i, number in wanted])
            for (i, _), [growth] in zip(wanted, pools, strict=True):
                generation = self._finished(growth)
                found[i].setdefault(generation.text, generation)
            if all(len(texts) == options.n for texts in found):
                break
        return [sorted(texts.values(), key=lambda generation: -generation.score) for texts in found]

    def _of_length(self, lists: list[tuple[str, ...]], options: Options, words: int) -> list[list[Generation]]:
        """Bisect the `[NOI]` offset for every list; keep the texts that come nearest to the length."""
        low, high = [-12.0] * len(lists), [12.0] * len(lists)
        best: list[list[Generation]] = [[] for _ in lists]
        for _ in range(LENGTH_TRIES):
            for i, constraints in enumerate(lists):
                offset = (low[i] + high[i]) / 2
                tried = replace(options, length=None, noi_offset=options.noi_offset + offset)
                [found] = self._generate([constraints], tried)
                size = _words(found[0])
                if not best[i] or abs(size - words) < abs(_words(best[i][0]) - words):
                    best[i] = found
                low[i], high[i] = (low[i], offset) if size < words else (offset, high[i])
        return best

    def _engine(self, options: Options) -> Engine:
        schedule = Schedule(self.vocabulary, options, self.device, self.calibrated)
        return Engine(self.predict, schedule, options, self.end, self.longest, self.name)

    def _finished(self, growth: Growth) -> Generation:
        text, spans = write(growth.units(self.vocabulary), self.casing)
        tokens = tuple(token.text for token in growth.stages[-1])
        return Generation(text, tokens, tuple(spans), growth.stages, growth.score, growth.stopped, growth.constraints)

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


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
