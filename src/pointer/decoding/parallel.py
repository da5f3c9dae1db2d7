"""`ParallelPointer`: a `Pointer` whose model, an insertion transformer, fills all gaps of a text at once."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pointer.checkpoint import CARD, CURVE, ONNX, TABLES, casing_of, insertion_config, read_files, words_of
from pointer.decoding import picks
from pointer.decoding.arranging import Arranger
from pointer.decoding.constraints import FRAME, INSERTED, Tokens, first_stage, units_of
from pointer.decoding.demand import demand_of
from pointer.decoding.engine import Engine, Growth
from pointer.decoding.generator import Generation, Plan, Pointer, Wanted, rounded, texts_of
from pointer.decoding.grammar import Given, parse
from pointer.decoding.options import Options
from pointer.decoding.presets import PRESETS, Preset
from pointer.decoding.rules import Rules
from pointer.decoding.scores import Scores
from pointer.errors import UsageError
from pointer.language import STYLES
from pointer.runtime import Predict, onnx
from pointer.runtime.known import check_graph
from pointer.stage import Token, births
from pointer.vocabulary import Vocabulary
from pointer.writing import missing_constraints, write

if TYPE_CHECKING:
    from pointer.model import InsertionTransformer


class ParallelPointer(Pointer):
    """An insertion transformer that writes texts around constraints, stage by stage."""

    def __init__(
        self,
        predict: Predict,
        vocabulary: Vocabulary,
        *,
        casing: Mapping[str, Mapping[str, str]] | None = None,
        end: str = "fixed",
        longest: int = 512,
        name: str = "model",
        preset: Preset = PRESETS["default"],
        noi_offset: float = 0.0,
        rounds: int = 1,
        files: Mapping[str, bytes] | None = None,
        parameters: int = 0,
        model: "InsertionTransformer | None" = None,
    ) -> None:
        self.predict: Predict = predict
        self.vocabulary = vocabulary
        self.casing = casing or {}
        self.end = end
        self.longest = longest
        self.name = name
        self.preset = preset
        """What `default` is for this model."""
        self.noi_offset = noi_offset
        """Added to the log-probability of `[NOI]` by `default`, so that texts get as long as those of the corpus."""
        self.rounds = rounds
        self.files = dict(files or {})
        self.parameters = parameters
        self.model = model
        """The model itself where PyTorch runs it."""

    @classmethod
    def open(cls, folder: Path, name: str, threads: int | None = None) -> "ParallelPointer":
        """A generator from a checkpoint folder with an ONNX model."""
        config = insertion_config(folder)
        check_graph(folder / ONNX, config)
        session = onnx.Session(folder / ONNX, threads)
        vocabulary = Vocabulary.of_checkpoint(folder, config["pointer"]["vocabulary"])
        files = read_files(folder, (*TABLES, CARD, CURVE))
        return cls._of(onnx.Predictor(session), vocabulary, config, files, name=name, parameters=session.parameters)

    @classmethod
    def of(cls, model: "InsertionTransformer", name: str) -> "ParallelPointer":
        """A generator for a model that PyTorch has opened, where it is; `name` is what errors call it."""
        from pointer.runtime.torch import predictor

        if model.vocabulary is None:
            raise UsageError("model: expected one with a vocabulary, found none.", "Open it with from_pretrained.")
        parameters = sum(weights.numel() for weights in model.parameters())
        config = model.config.to_dict()
        given = {"name": name, "parameters": parameters, "model": model}
        return cls._of(predictor(model), model.vocabulary, config, model.files, **given)

    @classmethod
    def _of(
        cls, predict: Predict, vocabulary: Vocabulary, config: dict[str, Any], files: Mapping[str, bytes], **given: Any
    ) -> "ParallelPointer":
        """A generator with what its checkpoint says of it."""
        section = config["pointer"]
        return cls(
            predict,
            vocabulary,
            casing=casing_of(files.get("casing.json.gz")),
            end=section["end"],
            longest=config["max_position_embeddings"],
            noi_offset=section.get("noi_offset", 0.0),
            rounds=section.get("rounds", 1),
            files=files,
            **given,
        )

    def cost(self, constraints: Given, options: Options) -> int:
        """What the texts of one list may cost at most."""
        longest = min(self.longest, options.max_length)
        # One by one, a stage has as many rounds as the text has gaps.
        passes = options.max_stages * (self._rounds(options) or longest)
        if options.preset == "released":
            from pointer.decoding.released import LENGTH, ROUNDS

            longest, passes = min(LENGTH, self.longest), ROUNDS
        texts, scored = texts_of(demand_of(parse(constraints), options), options)
        return longest * (texts * passes * max(1, self.parameters // 10**6) + scored * picks.WEIGHTS)

    @property
    def tokens(self) -> int:
        """How many tokens its vocabulary has."""
        return len(self.vocabulary)

    def refuse_what_it_cannot(self, options: Options) -> None:
        """Refuse options that mean something for other models only."""
        if options.style is not None:
            raise UsageError(
                f'style: expected for models that know several, found "{options.style}" with {self.name}.',
                "Leave it out, or choose the model writer.",
            )

    def plan(self, constraints: Given, options: Options) -> Plan:
        """How to get the texts of one list, best first; what there is to choose is chosen before any insertion."""
        self.refuse_what_it_cannot(options)
        demand = demand_of(parse(constraints), options)
        if options.preset == "released":
            return [self._released(constraints, options)]
        if demand.is_settled:
            return (yield from self._different(demand, options))
        arranger = Arranger(self.predict, self.vocabulary, self.end)
        [[arranged]] = yield Wanted(arranger, [arranger.start(demand)])
        found = yield from self._different(arranged.settled, options)
        return [replace(one, asked=demand.asked, order=arranged.order) for one in found]

    def readings(self, texts: list[str], style: str | None) -> list[float]:
        """How well texts read, by a language model; nothing where none is installed."""
        return picks.readings(texts, style or (self.name if self.name in STYLES else None))

    def engine(self, options: Options) -> Engine:
        """What lets texts grow by these options."""
        options = replace(options, rounds=self._rounds(options))
        is_default = options.preset == "default"
        preset = self.preset if is_default else PRESETS[options.preset]
        scores = Scores(
            self.vocabulary,
            preset,
            noi=preset.noi + options.noi_offset + (self.noi_offset if is_default else 0.0),
            decoding=options.decoding,
            presence_penalty=options.presence_penalty,
            words=self.words if preset.whole_words else None,
        )
        rules = Rules(preset)
        return Engine(self.predict, scores, rules, options, self.end, self.longest, self.name)

    def _rounds(self, options: Options) -> int:
        """The paper decodes greedily in one round, and its beam search goes gap by gap; `default` in between."""
        if options.rounds is not None:
            return options.rounds
        if options.preset != "default":
            return 0 if options.decoding == "beam" else 1
        return 2 if options.decoding == "beam" else self.rounds

    @cached_property
    def words(self) -> frozenset[str] | None:
        """The words of the training texts, where the checkpoint tells them."""
        if (table := self.files.get(TABLES[1])) is None:
            return None
        return words_of(table)

    def written(self, growth: Growth) -> Generation:
        """A text as it stands now, finished or not."""
        tokens, demand = growth.text.tokens, growth.text.demand
        text, spans = write(units_of(tokens, demand.constraints, self.vocabulary, demand.glue), self.casing)
        shown = tuple(token.text for token in growth.stages[-1])
        asked, order = demand.asked, tuple(range(len(demand.items)))
        why, glue, score = growth.stopped, demand.glue, rounded(growth.score)
        return Generation(
            text, shown, tuple(spans), growth.stages, score, why, demand.constraints, (), asked, order, glue=glue
        )

    def drafts(self, generation: Generation) -> list[str]:
        """The text after every stage of a generation, X^0 first."""
        if not generation.spans:  # the authors' decoder keeps no account of what stands where
            from pointer.decoding.released import released_text

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
            units = units_of(tokens, generation.constraints, self.vocabulary, generation.glue)
            texts.append(write(units, self.casing)[0])
        return texts

    def _released(self, given: Given, options: Options) -> Generation:
        constraints = parse(given).phrases
        if constraints is None:
            raise UsageError(
                "preset: released expects words and phrases in order, found more.", "Choose another preset."
            )
        if self.model is None:
            raise UsageError(
                f"preset: released expects PyTorch, which does not run {self.name} here.",
                'Open it with backend="torch" (--backend torch), or choose another preset.',
            )
        import torch

        from pointer.decoding.released import LENGTH, decode_released

        generator = torch.Generator().manual_seed(options.seed) if options.decoding == "sample" else None
        length = min(LENGTH, self.longest)
        found = decode_released(self.model, self.vocabulary, constraints, sampling=generator, length=length)
        stages = tuple(tuple(Token(self.vocabulary.tokens[i], False) for i in ids) for ids in found.stages)
        tokens = tuple(token.text for token in stages[-1])
        missing = tuple(missing_constraints(found.text, constraints))
        return Generation(found.text, tokens, (), stages, float("nan"), "max_stages", constraints, missing, constraints)
