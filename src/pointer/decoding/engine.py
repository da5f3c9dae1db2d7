"""The stage loop: many texts grow together, each until it is done; converged ones leave the batch.

For any weights and any logits: a stage is a subsequence of the next, constraints stay whole and in order, no special
token is ever inserted, decoding ends, and a text does not depend on what else is in its batch.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from pointer.decoding.constraints import FRAME, INSERTED, Tokens, first_stage
from pointer.decoding.demand import Demand, count_sentences, count_words
from pointer.decoding.options import Options
from pointer.decoding.rules import Rules
from pointer.decoding.scores import Scores
from pointer.decoding.search import Filling, Steps, Text, at_once, fill, is_required, written
from pointer.english import SENTENCE_ENDS
from pointer.errors import ConstraintError
from pointer.runtime import Predict
from pointer.stage import Stage, Token


@dataclass(frozen=True)
class Growth:
    """A text on its way: where it is now, how it came there, and why it stopped if it did."""

    text: Text
    stages: tuple[Stage, ...]
    likelihood: float = 0.0
    """The model's own log-probability of every decision so far, `[NOI]` included."""
    stopped: str = ""
    """`converged`, `max_stages` or `max_length` once it is done; `length` if its length could not be reached."""

    @property
    def score(self) -> float:
        """The log-likelihood of all decisions per gap of the text."""
        return self.likelihood / (len(self.text.tokens) - 1)


class Candidate(Protocol):
    """A text on its way."""

    @property
    def stopped(self) -> str:
        """Why it stopped, if it did."""


Grown = TypeVar("Grown", bound=Candidate)


class Loop(ABC, Generic[Grown]):
    """Lets texts grow step by step until all have stopped; a text has one candidate or several."""

    @abstractmethod
    def advance(self, pools: Sequence[list[Grown]]) -> list[list[Grown]]:
        """The candidates of every text one step later, best first; what has stopped stays as it is.

        Texts know nothing of each other, so from one step to the next some may be left out and others added.
        """

    def steps(self, pools: Sequence[list[Grown]]) -> Steps[list[list[Grown]]]:
        """`advance`, with pauses in which others can have the model."""
        yield
        return self.advance(pools)

    def run(self, growths: Sequence[Grown]) -> Iterator[list[list[Grown]]]:
        """After every step, the candidates of every text, best first; ends when all have stopped."""
        pools = [[growth] for growth in growths]
        while not all(map(has_stopped, pools)):
            pools = self.advance(pools)
            yield pools

    def finish(self, growths: Sequence[Grown]) -> list[list[Grown]]:
        """The finished candidates of every text, best first."""
        pools = [[growth] for growth in growths]
        for after_step in self.run(growths):
            pools = after_step
        return pools


class Engine(Loop[Growth]):
    """Runs the stage loop for one model."""

    def __init__(
        self, predict: Predict, scores: Scores, rules: Rules, options: Options, end: str, longest: int, name: str
    ) -> None:
        self.predict = predict
        self.scores = scores
        self.rules = rules
        self.vocabulary = scores.vocabulary
        self.options = replace(options, max_length=min(longest, options.max_length))
        self.end = end
        self.name = name

    def start(self, demand: Demand, number: int = 0) -> Growth:
        """X^0. `number` tells apart several texts that are drawn for the same constraints, all settled."""
        constraints = demand.constraints
        tokens = self._separated(first_stage(constraints, self.vocabulary, self.end), demand)
        needed = len(tokens) + sum(item.after_gap for item in demand.items) + demand.ends_with_gap
        if needed > self.options.max_length:
            raise ConstraintError(
                f"Expected constraints of at most {self.options.max_length} tokens, found {needed}.",
                "Give fewer constraints, or raise max_length if the model allows it.",
            )
        content = json.dumps([self.options.seed, number, constraints]).encode()
        text = Text(tokens, 0, hashlib.blake2b(content, digest_size=32).digest(), demand)
        return Growth(text, (self._shown(tokens),), stopped=self._limit(text))

    def _separated(self, tokens: Tokens, demand: Demand) -> Tokens:
        """With commas between constraints that would be something forbidden side by side."""
        if not demand.forbids(written(tokens, demand, self.vocabulary)):
            return tokens
        edges = np.flatnonzero((tokens.owner[1:] != tokens.owner[:-1]) & (tokens.owner[1:] >= 0))[1:]
        return tokens.filled(dict.fromkeys(edges.tolist(), self.vocabulary.id(",")))[0]

    def advance(self, pools: Sequence[list[Growth]]) -> list[list[Growth]]:
        """The candidates of every text one stage later."""
        return at_once(self.steps(pools))

    def steps(self, pools: Sequence[list[Growth]]) -> Steps[list[list[Growth]]]:
        """The same with a pause before every forward pass: a stage of a wide beam has hundreds."""
        live = [(i, growth) for i, pool in enumerate(pools) for growth in pool if not growth.stopped]
        texts = [growth.text for _, growth in live]
        fillings = yield from fill(self.predict, texts, self.scores, self.rules, self.options, self.name)
        grown: list[list[Growth]] = [[g for g in pool if g.stopped] for pool in pools]
        for (i, growth), ways in zip(live, fillings, strict=True):
            grown[i] += [self._after(growth, way) for way in ways[: self._kept]]
        return [_best(pool, self._kept) for pool in grown]

    @cached_property
    def kind(self) -> Options:
        """Engines of one kind can grow each other's texts: all options but the seed, which is in the texts."""
        return replace(self.options, seed=0)

    @property
    def _kept(self) -> int:
        """How many candidates a text carries from stage to stage: the paper's beam search keeps one."""
        return self.options.n if self.options.decoding == "beam" else 1

    def _after(self, growth: Growth, way: Filling) -> Growth:
        if not way.tokens and (wants := self._wants(growth.text)):
            tried = growth.text.tried | {wants}
            return replace(growth, text=replace(growth.text, wants=wants, tried=tried))
        if not way.tokens and (gap := self._end_without_mark(growth.text)) is not None:
            way = replace(way, tokens={gap: self.vocabulary.id(".")}, own={gap: 0.0})
        return self._grown(growth, way)

    def _wants(self, text: Text) -> str:
        """What a text that would not grow any more has to have still, if it was not tried in vain."""
        words, sentences = text.demand.words, text.demand.sentences
        so_far = written(text.tokens, text.demand, self.vocabulary) if words or sentences else ""
        if sentences is not None and count_sentences(so_far) < sentences.low and "sentence" not in text.tried:
            return "sentence"
        is_short = words is not None and count_words(so_far) < words.low
        return "words" if is_short and "words" not in text.tried else ""

    def _end_without_mark(self, text: Text) -> int | None:
        """The last gap, if a full stop is missing there."""
        tokens, demand = text.tokens, text.demand
        if not self.scores.preset.full_stop or demand.lock_end:
            return None
        last = int(np.flatnonzero(tokens.ids != self.vocabulary.id("[SEP]"))[-1])
        if self.vocabulary.tokens[tokens.ids[last]] in SENTENCE_ENDS:
            return None
        closed, _ = tokens.filled({last: self.vocabulary.id(".")})
        return None if demand.forbids(written(closed, demand, self.vocabulary)) else last

    def _limit(self, text: Text) -> str:
        if len(text.tokens) >= self.options.max_length:
            return "max_length"
        return "max_stages" if text.stage >= self.options.max_stages else ""

    def _grown(self, growth: Growth, way: Filling) -> Growth:
        growth = replace(growth, likelihood=growth.likelihood + way.likelihood)
        if not way.tokens:
            return self._converged(growth)
        room = self.options.max_length - len(growth.text.tokens)
        # Where not everything fits, the insertions that were decided first are made (in a round the surest gap decides
        # first), and the text stops growing. Any other choice might bring words together that the rules keep apart.
        decided = sorted(way.tokens, key=lambda gap: not is_required(growth.text, gap))
        growth = replace(growth, likelihood=growth.likelihood - sum(way.own[gap] for gap in decided[room:]))
        after, new = growth.text.tokens.filled({gap: way.tokens[gap] for gap in decided[:room]})
        separator = after.ids == self.vocabulary.id("[SEP]")
        after = Tokens(after.ids, np.where(separator & (after.owner == INSERTED), FRAME, after.owner))
        text = replace(growth.text, tokens=after, stage=growth.text.stage + 1, wants="", tried=frozenset())
        stages = (*growth.stages, self._shown(after, new))
        return replace(growth, text=text, stages=stages, stopped=self._why(text, self._limit(text)))

    def _converged(self, growth: Growth) -> Growth:
        stages = (*growth.stages, self._shown(growth.text.tokens))
        return replace(growth, stages=stages, stopped=self._why(growth.text, "converged"))

    def _why(self, text: Text, stopped: str) -> str:
        """Why a text stops, if it does: `length` if it has not the length it should have."""
        demand = text.demand
        is_steered = stopped and (demand.words is not None or demand.sentences is not None)
        return "length" if is_steered and demand.misses(written(text.tokens, demand, self.vocabulary)) else stopped

    def _shown(self, tokens: Tokens, new: npt.NDArray[np.bool_] | None = None) -> Stage:
        """A stage for people: without the frame, and with what is new marked."""
        marks = np.zeros(len(tokens), bool) if new is None else new
        parts = zip(tokens.ids.tolist(), tokens.owner.tolist(), marks.tolist(), strict=True)
        return tuple(Token(self.vocabulary.tokens[i], mark) for i, owner, mark in parts if owner != FRAME)


def has_stopped(pool: Sequence[Candidate]) -> bool:
    """Are all candidates of a text done?"""
    return all(growth.stopped for growth in pool)


def _best(pool: list[Growth], kept: int) -> list[Growth]:
    """The best candidates, no two of the same tokens."""
    distinct: dict[bytes, Growth] = {}
    for growth in sorted(pool, key=lambda growth: -growth.score):
        distinct.setdefault(growth.text.tokens.ids.tobytes(), growth)
    return list(distinct.values())[:kept]
