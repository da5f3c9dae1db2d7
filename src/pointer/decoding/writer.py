"""`Writer`: a `Pointer` whose model is a pre-trained language model that inserts from left to right."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pointer.checkpoint import CARD, CURVE, causal_config, read_files
from pointer.decoding import picks
from pointer.decoding.causal import GUIDANCE, CausalEngine, Draft, Rules, told_orders
from pointer.decoding.demand import Demand, demand_of
from pointer.decoding.generator import Generation, Plan, Pointer, Wanted, drafts_of, rounded, texts_of
from pointer.decoding.grammar import Given, parse
from pointer.decoding.options import Options
from pointer.decoding.presets import Guidance
from pointer.errors import UsageError
from pointer.language import STYLES, Language, Likelihood
from pointer.runtime import NextToken

if TYPE_CHECKING:
    from pointer.causal import CausalInserter

TASK = 64
"""About how many tokens the task has that the model reads before it writes."""
DRAFTS_NOI = -1.0
"""Added to `[NOI]` in drafts to pick from: the likeliest texts close their gaps too early."""
UNKNOWN = ("rounds", "presence_penalty", "max_stages")
"""Options that mean something for parallel models only."""


class Writer(Pointer):
    """A causal model that writes texts around constraints.

    >>> writer = Pointer.from_pretrained("writer")                                                   # doctest: +SKIP
    >>> writer.generate(["dog", "frisbee", "park"], best_of=8).text                                  # doctest: +SKIP
    """

    chooses_on_the_way = True

    def __init__(
        self,
        next_token: NextToken,
        language: Language,
        *,
        styles: tuple[str, ...] = tuple(STYLES),
        noi_offset: float = 0.0,
        longest: int = 512,
        name: str = "writer",
        guidance: Guidance = GUIDANCE,
        likelihoods: Callable[[Sequence[str], str | None], list[Likelihood]] = lambda texts, style: [],
        files: Mapping[str, bytes] | None = None,
        parameters: int = 0,
    ) -> None:
        self.predict: NextToken = next_token
        self.language = language
        self.styles = styles
        self.noi_offset = noi_offset
        self.longest = longest
        self.name = name
        self.guidance = guidance
        self._likelihoods = likelihoods
        """How likely the base, as it was before training, finds texts of a style."""
        self.files = dict(files or {})
        self.parameters = parameters

    @classmethod
    def open(cls, folder: Path, name: str, threads: int | None = None) -> "Writer":
        """A writer from a checkpoint folder, whose base has to be there too, run by onnxruntime in int8."""
        from pointer.runtime.writer import OnnxWriter

        config = causal_config(folder)
        assert config is not None
        model = OnnxWriter(folder, config, threads)
        return cls(
            model.next_token,
            model.language,
            styles=tuple(config["styles"]) or tuple(STYLES),
            noi_offset=config["noi_offset"],
            longest=model.longest,
            name=name,
            likelihoods=model.likelihoods,
            files=read_files(folder, (CARD, CURVE)),
            parameters=model.parameters,
        )

    @classmethod
    def of_inserter(cls, inserter: "CausalInserter", name: str) -> "Writer":
        """A writer for a model that PyTorch has opened, where it is."""
        return cls(
            inserter.next_token(),
            inserter.language,
            styles=tuple(inserter.config["styles"]) or tuple(STYLES),
            noi_offset=inserter.config["noi_offset"],
            longest=inserter.longest,
            name=name,
            likelihoods=inserter.likelihoods,
            files=inserter.files,
            parameters=sum(weights.numel() for weights in inserter.model.parameters()),
        )

    def cost(self, constraints: Given, options: Options) -> int:
        """What the texts of one list may cost at most; every token is read once, and once more to pick among drafts."""
        demand = demand_of(parse(constraints), options)
        texts, scored = texts_of(demand, options)
        texts *= 1 if self._is_told_once(demand, options) else told_orders(demand)
        positions = (texts + scored) * min(self.longest, options.max_length + TASK)
        return positions * max(1, self.parameters // 10**6)

    @property
    def tokens(self) -> int:
        """How many tokens its vocabulary has."""
        return self.language.size

    def engine(self, options: Options, of_drafts: float = 0.0) -> CausalEngine:
        """What lets texts grow by these options; `of_drafts` is added to `[NOI]` beside their own offset."""
        self.refuse_what_it_cannot(options)
        offset = options.noi_offset + of_drafts + (self.noi_offset if options.preset == "default" else 0.0)
        return CausalEngine(
            self.predict,
            self.language,
            options,
            self.style(options.style),
            offset,
            self.longest,
            self.name,
            self._rules,
        )

    @cached_property
    def _rules(self) -> Rules:
        """Made once: to look at every token of a vocabulary takes longer than to write a text."""
        return Rules(self.language, self.guidance)

    def style(self, wanted: str | None) -> str:
        """The style that is asked for, or the first that the model has learnt."""
        if wanted is None:
            return self.styles[0]
        if wanted not in self.styles:
            raise UsageError(
                f'style: expected {", ".join(self.styles)}, all that {self.name} has learnt, found "{wanted}".',
                "Choose one of these.",
            )
        return wanted

    def refuse_what_it_cannot(self, options: Options) -> None:
        if options.preset not in ("default", "plain"):
            raise UsageError(
                f'preset: expected default or plain, all that {self.name} can do, found "{options.preset}".',
                "Choose one of these, or a parallel model: wiki, reviews, news.",
            )
        defaults = {field.name: field.default for field in fields(Options)}
        for option in UNKNOWN:
            if getattr(options, option) != defaults[option]:
                raise UsageError(
                    f"{option}: expected for parallel models alone, found with {self.name}.", "Leave it out."
                )

    def _texts(self, demand: Demand, options: Options) -> Plan:
        """Texts as the decoding gives them, best first. Where the order is free, the model is told several."""
        if self._is_told_once(demand, options):
            return (yield from super()._texts(demand, options))
        engine = self.engine(replace(options, n=1))
        pools = yield Wanted(engine, [engine.start(demand, number) for number in range(told_orders(demand))])
        found = [self.written(best) for best, *_ in pools]
        return [max(found, key=lambda text: text.score)]

    @staticmethod
    def _is_told_once(demand: Demand, options: Options) -> bool:
        """Is there one order, or are there several drafts anyway, each of which is told another?"""
        return drafts_of(demand, options) > 1 or options.decoding == "sample" or told_orders(demand) == 1

    def _drafts(self, demand: Demand, options: Options) -> Plan:
        """Drafts of both kinds: texts that begin differently, the likeliest first, and the texts of a beam."""
        beams = options.best_of // 2
        engine = self.engine(options, DRAFTS_NOI)
        pools = yield Wanted(engine, [engine.start(demand, number) for number in range(options.best_of - beams)])
        beam = self.engine(replace(options, decoding="beam", width=beams, n=beams, best_of=1), DRAFTS_NOI)
        pools += yield Wanted(beam, [beam.start(demand)])
        return [self.written(draft) for pool in pools for draft in pool]

    def readings(self, texts: list[str], style: str | None) -> list[float]:
        """How well texts read, by the base as it was before training."""
        return [picks.reading(one) for one in self._likelihoods(texts, style or self.styles[0])]

    def written(self, draft: Draft) -> Generation:
        """A text as it stands now, finished or not; what is still to come of the constraints stands at its end."""
        draft = draft.sure
        text, spans = draft.text()
        stages = draft.stages()
        tokens = tuple(token.text for token in stages[-1])
        order, items = draft.order, draft.demand.items
        said = [text[start:end].lower() for start, end in spans]
        forms = (
            next(f for f in items[i].forms if f.lower() == as_said) for i, as_said in zip(order, said, strict=True)
        )
        score = rounded(draft.score)
        return Generation(
            text, tokens, tuple(spans), stages, score, draft.stopped, tuple(forms), (), draft.demand.asked, order
        )

    def drafts(self, generation: Generation) -> list[str]:
        """The text after every stage of a generation, X^0 first."""
        grown = [generation.text] * (len(generation.stages) - 1)
        return [" ".join(generation.constraints), *grown]
