"""Choosing before inserting: the order and the forms of constraints, and which optional ones to use.

A parallel model fills all gaps at once, so X^0 has to be there before it starts. The model says what it should be.
Alone with one constraint, it tells how likely each other one is left and right of it: that is one text for each
constraint. The best order is the one that agrees most with these preferences over all pairs (the linear ordering
problem), found exactly where there are few constraints and by a beam where there are many. Then every constraint
with several forms is taken out of that order, and the gap where it stood says which form it wants.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pointer.decoding.constraints import FRAME, Tokens, first_stage
from pointer.decoding.demand import Demand
from pointer.decoding.engine import Loop
from pointer.decoding.search import grouped, padded
from pointer.runtime import LARGEST_LOGIT, Floats, Predict, log_softmax
from pointer.vocabulary import Vocabulary

EXACT = 9
"""Up to so many constraints the best order is found among all; 2^9 sets of them are looked at."""
BEAM = 16
"""Orders that are kept of longer lists."""
FITS = 100
"""An optional constraint is used if it is among so many likeliest tokens for the gap where it would stand."""


@dataclass(frozen=True)
class Arranged:
    """A list of constraints on its way to X^0."""

    demand: Demand
    order: tuple[int, ...] = ()
    settled: Demand | None = None
    stopped: str = ""


class Open(NamedTuple):
    """A constraint of which something is still to be chosen."""

    number: int
    forms: list[list[int]]
    """The pieces of each form."""
    answers: dict[tuple[int, ...], int]
    """For the pieces that may have been said, the place of the answer about the next one."""


class Arranger(Loop[Arranged]):
    """Chooses order, forms and optional constraints, for many lists at once."""

    kind = "arrange"
    """All arrangers of a model are of one kind."""

    def __init__(self, predict: Predict, vocabulary: Vocabulary, end: str) -> None:
        self.predict = predict
        self.vocabulary = vocabulary
        self.end = end

    def start(self, demand: Demand) -> Arranged:
        """A list before anything is chosen."""
        return Arranged(demand)

    def advance(self, pools: Sequence[list[Arranged]]) -> list[list[Arranged]]:
        """All that there is to choose, chosen."""
        lists = [one for [one] in pools if not one.stopped]
        ordered = self._ordered(lists)
        chosen = iter(self._formed(ordered))
        return [[one if one.stopped else next(chosen)] for [one] in pools]

    # -- order

    def _ordered(self, lists: list[Arranged]) -> list[Arranged]:
        """Every list with its order."""
        pieces = [[self._pieces(item.forms) for item in one.demand.items] for one in lists]
        asked = [self._row([some[0]]) for items in pieces for some in items]
        gaps = [[0, len(row) - (2 if self.end == "fixed" else 1)] for row in asked]
        answers = iter(self._log_probabilities(asked, gaps))
        found = []
        for one, items in zip(lists, pieces, strict=True):
            sides = np.stack([next(answers) for _ in items])  # N 2 V
            first = [[form[0] for form in forms] for forms in items]
            beside = np.stack([sides[:, :, ids].max(-1) for ids in first], -1)  # N 2 N: of each, left and right of each
            before = [item.after for item in one.demand.items]
            found.append(replace(one, order=best_order(beside[:, 1] + beside[:, 0].T, before)))
        return found

    # -- forms

    def _formed(self, lists: list[Arranged]) -> list[Arranged]:
        """Every list with its forms, without the optional constraints that do not fit."""
        asked: list[Tokens] = []
        gaps: list[list[int]] = []
        wanted: list[list[Open]] = []
        for one in lists:
            wanted.append([])
            plain = [self._pieces(one.demand.items[number].forms[:1])[0] for number in one.order]
            for place, number in enumerate(one.order):
                item = one.demand.items[number]
                if len(item.forms) == 1 and not item.optional:
                    continue
                forms = self._pieces(item.forms)
                heads = sorted({tuple(form[:said]) for form in forms for said in range(len(form))})
                wanted[-1].append(Open(number, forms, {head: len(asked) + i for i, head in enumerate(heads)}))
                start = 1 + sum(map(len, plain[:place]))
                for head in heads:  # the first piece, then each next one given those before it
                    asked.append(self._row([*plain[:place], list(head), *plain[place + 1 :]]))
                    gaps.append([start + len(head) - 1])
        answers = [answer[0] for answer in self._log_probabilities(asked, gaps)]
        return [_settled(one, mine, answers) for one, mine in zip(lists, wanted, strict=True)]

    # -- the model

    def _pieces(self, forms: Sequence[str]) -> list[list[int]]:
        """The pieces of every form, as X^0 has them."""
        stages = [first_stage([form], self.vocabulary, self.end) for form in forms]
        return [stage.ids[stage.owner != FRAME].tolist() for stage in stages]

    def _row(self, parts: Sequence[Sequence[int]]) -> Tokens:
        ids = [self.vocabulary.id("[CLS]"), *(piece for part in parts for piece in part)]
        ids += [self.vocabulary.id("[SEP]")] if self.end == "fixed" else []
        return Tokens(np.array(ids), np.zeros(len(ids), np.int64))

    def _log_probabilities(self, texts: list[Tokens], gaps: list[list[int]]) -> list[Floats]:
        """For every text the log-probabilities of some of its gaps, `G V`."""
        found: dict[int, Floats] = {}
        for group in grouped([(len(text), 1) for text in texts], gaps):
            ids, attention = padded([texts[i] for i in group], self.vocabulary.id("[PAD]"))
            rows = np.repeat(np.arange(len(group)), [len(gaps[i]) for i in group])
            positions = np.concatenate([gaps[i] for i in group])
            logits = np.nan_to_num(
                np.clip(self.predict(ids, attention, rows, positions), -LARGEST_LOGIT, LARGEST_LOGIT)
            )
            answers = log_softmax(logits)  # G V
            for row, i in enumerate(group):
                found[i] = answers[rows == row]
        return [found[i] for i in range(len(texts))]


def _settled(one: Arranged, still_open: list[Open], answers: list[Floats]) -> Arranged:
    """A list with what its gaps say: each form is as likely as its pieces, one after the other."""
    chosen = {number: one.demand.items[number].forms[0] for number in one.order}
    for number, forms, places in still_open:
        gap = {head: answers[place] for head, place in places.items()}
        scores = [sum(gap[tuple(form[:k])][form[k]] for k in range(len(form))) for form in forms]
        best = int(np.argmax(scores))
        item = one.demand.items[number]
        chosen[number] = item.forms[best]
        rank = int((gap[()] > gap[()][forms[best][0]]).sum())
        if item.optional and rank >= FITS:
            del chosen[number]
    order = tuple(number for number in one.order if number in chosen)
    settled = one.demand.settled(order, [chosen[number] for number in order])
    return replace(one, order=order, settled=settled, stopped="converged")


def best_order(prefer: Floats, before: Sequence[frozenset[int]]) -> tuple[int, ...]:
    """The order that agrees best with the preferences: `prefer[a, b]` is what it is worth that a comes before b.

    Some come before others whatever the preferences are. Exact for up to nine, otherwise a beam, whose cost grows with
    the square of the number.

    >>> best_order(np.array([[0.0, 1.0], [3.0, 0.0]]), [frozenset(), frozenset()])
    (1, 0)
    """
    count = len(before)
    # Of all orders of the same first few, only the best can begin the best order: sets of them are the states. With
    # each goes what every other would be worth after them.
    states: dict[frozenset[int], tuple[float, tuple[int, ...], Floats]] = {
        frozenset(): (0.0, (), np.zeros(count, np.float32))
    }
    for _ in range(count):
        longer: dict[frozenset[int], tuple[float, tuple[int, ...], Floats]] = {}
        for done, (worth, order, gains) in states.items():
            for number in range(count):
                if number not in done and before[number] <= done:
                    now, after = worth + float(gains[number]), done | {number}
                    if after not in longer or now > longer[after][0]:
                        longer[after] = now, (*order, number), gains + prefer[number]
        kept = sorted(longer.items(), key=lambda one: (-one[1][0], one[1][1]))
        states = dict(kept if count <= EXACT else kept[:BEAM])
    [(_, found, _)] = states.values()
    return found
