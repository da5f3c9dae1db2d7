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
from pointer.decoding.options import Options
from pointer.decoding.rules import Rules
from pointer.decoding.scores import Scores
from pointer.decoding.search import Filling, Steps, Text, at_once, fill
from pointer.english import SENTENCE_ENDS
from pointer.errors import ConstraintError
from pointer.runtime import Predict
from pointer.stage import Stage, Token
from pointer.vocabulary import Vocabulary
from pointer.writing import Unit


@dataclass(frozen=True)
class Growth:
    """A text on its way: where it is now, how it came there, and why it stopped if it did."""

    constraints: tuple[str, ...]
    text: Text
    stages: tuple[Stage, ...]
    likelihood: float = 0.0
    """The model's own log-probability of every decision so far, `[NOI]` included."""
    stopped: str = ""
    """`converged`, `max_stages` or `max_length` once it is done."""

    @property
    def score(self) -> float:
        """The log-likelihood of all decisions per gap of the text."""
        return self.likelihood / (len(self.text.tokens) - 1)

    def units(self, vocabulary: Vocabulary) -> list[Unit]:
        """The words of the text, a constraint being one of them however many pieces it has."""
        units: list[Unit] = []
        for piece, owner in zip(self.text.tokens.ids.tolist(), self.text.tokens.owner.tolist(), strict=True):
            token = vocabulary.tokens[piece]
            if owner >= 0:
                if not units or units[-1].constraint != owner:
                    units.append(Unit(self.constraints[owner], owner))
            elif owner == INSERTED and token.startswith("##"):
                units[-1] = Unit(units[-1].text + token[2:], None)
            elif owner == INSERTED:
                units.append(Unit(token, None))
        return units


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

    def start(self, constraints: tuple[str, ...], number: int = 0) -> Growth:
        """X^0. `number` tells apart several texts that are drawn for the same constraints."""
        tokens = first_stage(constraints, self.vocabulary, self.end)
        if len(tokens) > self.options.max_length:
            raise ConstraintError(
                f"Expected constraints of at most {self.options.max_length} tokens, found {len(tokens)}.",
                "Give fewer constraints, or raise max_length if the model allows it.",
            )
        content = json.dumps([self.options.seed, number, constraints]).encode()
        text = Text(tokens, 0, hashlib.blake2b(content, digest_size=32).digest())
        return Growth(constraints, text, (self._shown(tokens),), stopped=self._limit(text))

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
        if not way.tokens and (gap := self._end_without_mark(growth.text.tokens)) is not None:
            way = replace(way, tokens={gap: self.vocabulary.id(".")}, own={gap: 0.0})
        return self._grown(growth, way)

    def _end_without_mark(self, tokens: Tokens) -> int | None:
        """The last gap, if a full stop is missing there."""
        if not self.scores.preset.full_stop or self.options.lock_end or "." in self.options.banned:
            return None
        last = int(np.flatnonzero(tokens.ids != self.vocabulary.id("[SEP]"))[-1])
        return None if self.vocabulary.tokens[tokens.ids[last]] in SENTENCE_ENDS else last

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
        decided = list(way.tokens)
        growth = replace(growth, likelihood=growth.likelihood - sum(way.own[gap] for gap in decided[room:]))
        after, new = growth.text.tokens.filled({gap: way.tokens[gap] for gap in decided[:room]})
        separator = after.ids == self.vocabulary.id("[SEP]")
        after = Tokens(after.ids, np.where(separator & (after.owner == INSERTED), FRAME, after.owner))
        text = replace(growth.text, tokens=after, stage=growth.text.stage + 1)
        stages = (*growth.stages, self._shown(after, new))
        return replace(growth, text=text, stages=stages, stopped=self._limit(text))

    def _converged(self, growth: Growth) -> Growth:
        return replace(growth, stages=(*growth.stages, self._shown(growth.text.tokens)), stopped="converged")

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
