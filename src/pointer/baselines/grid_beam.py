"""Grid beam search: any left-to-right model writes a text in which every constraint stands, whole.

Hokamp & Liu (2017) keep a beam for every number of constraint tokens that are already there, a *bank*; Post & Vilar
(2018) share one beam of fixed width among the banks. `search` does that for any model behind a function from prefixes
to log-probabilities. `GridBeam` is the system: it searches with the model of `autoregressive`, which has also read the
keywords. With a model of Transformers:

    model = CachedModel(AutoModelForCausalLM.from_pretrained("gpt2"))
    wanted = tuple(tuple(tokenizer(" " + phrase).input_ids) for phrase in ("new york", "prime minister"))
    [[best]] = search(model, [Problem((tokenizer.eos_token_id,), wanted, 40)], Rules(end=tokenizer.eos_token_id))
    tokenizer.decode(best.text)

A constraint is begun on purpose or not at all: a token that the model happens to choose belongs to none. A text that
has spelt a constraint by chance is kept only to become another word (`bar` that becomes `bartender`), for otherwise it
is also there with the constraint begun in time, one bank further.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from pointer.baselines.autoregressive import LeftToRight, opened
from pointer.baselines.results import accepted, generation, parsed_in_batches
from pointer.decoding.constraints import INSERTED, Tokens
from pointer.decoding.generator import Generation
from pointer.decoding.grammar import Given
from pointer.decoding.options import Options
from pointer.errors import CheckpointError, ConstraintError, UsageError
from pointer.runtime import NextToken, Prefix

FLOOR = -1e5
"""The log-probability of a constraint or an end that the model calls impossible; they come all the same."""
ROWS = 128
"""Texts in the beams of all lists that are searched together; more only cost memory."""


@dataclass(frozen=True)
class Rules:
    """What holds for all texts of a search."""

    end: int
    """The token that ends a text; it may come when all constraints are there."""
    continues: npt.NDArray[np.bool_] | None = None
    """For every token: would it make another word of what is left of it? Such a token never follows a constraint."""
    ordered: bool = True
    """Constraints come in the order in which they are given."""
    width: int = 4
    """Texts that are kept from token to token, for all banks together; a bank has room for one at least."""
    length_penalty: float = 1.0
    """Texts are compared by log-likelihood over length to this power: 0 likes them short, 1 compares tokens."""
    patience: int | None = 30
    """The search ends when so many tokens have brought no better text; None: when nothing can be better any more."""
    n: int = 1
    """Texts to give, best first."""

    def __post_init__(self) -> None:
        lowest = {"width": 1, "length_penalty": 0, "patience": 1, "n": 1}
        for name, low in lowest.items():
            value = getattr(self, name)
            if value is not None and value < low:
                raise UsageError(f"{name}: expected at least {low}, found {value}.", f"Raise {name}.")


class Problem(NamedTuple):
    """One text to search for."""

    prompt: Prefix
    """What the model reads before the text; it must not be empty if the model needs a first token."""
    constraints: tuple[Prefix, ...]
    most: int
    """Tokens at which the text stops growing."""


@dataclass(frozen=True)
class Hypothesis:
    """A text on its way, or a finished one."""

    text: Prefix = ()
    owner: tuple[int, ...] = ()
    """For every token the constraint that it belongs to, or -1."""
    likelihood: float = 0.0
    met: frozenset[int] = frozenset()
    """The constraints that are complete."""
    begun: int = 0
    """How many tokens of the last token's constraint are there, as long as it is not complete."""
    bank: int = 0
    """How many constraint tokens are there."""
    stopped: str = ""
    """`end` or `max_length` once it is finished."""

    def score(self, length_penalty: float = 1.0) -> float:
        """The log-likelihood over the number of decisions, to the power of the penalty."""
        return float(self.likelihood / max(1, len(self.text) + (self.stopped == "end")) ** length_penalty)


class _Step(NamedTuple):
    """A way to go on with a hypothesis."""

    likelihood: float
    row: int
    token: int
    constraint: int
    """The constraint that the token belongs to, or -1."""
    bank: int


def search(next_log_probabilities: NextToken, problems: Sequence[Problem], rules: Rules) -> list[list[Hypothesis]]:
    """For every problem its best texts; all problems go through the model together and none knows of the others.

    >>> follows = np.log([[0.1, 0.8, 0.1], [0.6, 0.3, 0.1], [0.5, 0.4, 0.1]])  # what comes after the tokens 0, 1, 2
    >>> model = lambda prefixes: follows[[prefix[-1] for prefix in prefixes]]
    >>> [[best]] = search(model, [Problem((0,), ((2,),), 5)], Rules(end=0))
    >>> best.text, best.owner, best.stopped
    ((1, 2, 1), (-1, 0, -1), 'end')
    """
    searches = [_Search(problem, rules) for problem in problems]
    while asking := [one for one in searches if one.live]:
        prefixes = [one.problem.prompt + hypothesis.text for one in asking for hypothesis in one.live]
        scores = np.asarray(next_log_probabilities(prefixes))  # B V
        if np.isnan(scores).any():
            raise CheckpointError("Expected log-probabilities from the model, found NaN.", "Its weights are damaged.")
        start = 0
        for one in asking:
            size = len(one.live)
            one.advance(scores[start : start + size])
            start += size
    return [one.best() for one in searches]


class _Search:
    """The beam of one problem."""

    def __init__(self, problem: Problem, rules: Rules) -> None:
        self.problem = problem
        self.rules = rules
        self.needed = sum(map(len, problem.constraints))
        self.width = max(rules.width, self.needed + 1)
        self._check()
        self.live = [Hypothesis()]
        self.finished: dict[Prefix, Hypothesis] = {}
        """By text, for one text may hold its constraints in several ways."""
        self.idle = 0
        """Tokens since the last better text."""

    def _check(self) -> None:
        for number, phrase in enumerate(self.problem.constraints, 1):
            if not phrase:
                raise ConstraintError(f"constraint {number} is empty. Expected at least one token.", "Remove it.")
            if self.rules.continues is not None and self.rules.continues[phrase[0]]:
                raise ConstraintError(
                    f"constraint {number} begins with a token that continues a word. Expected the first of a word.",
                    "Give the whole word.",
                )
        if self.needed > self.problem.most:
            raise ConstraintError(
                f"Expected constraints of at most {self.problem.most} tokens, found {self.needed}.",
                "Give fewer constraints, or raise max_length if the model allows it.",
            )

    # -- one token further

    def advance(self, scores: npt.NDArray[Any]) -> None:
        """Go on by one token, given the log-probabilities after every live hypothesis."""
        steps = [*self._constrained(scores), *self._free(scores)]
        grown = [self._grown(step) for step in self._allocated(steps)]
        before = self._scores()[:1]
        self.finished = {one.text: one for one in grown if one.stopped} | self.finished
        self.live = [one for one in grown if not one.stopped]
        self.idle = self.idle + 1 if self._scores()[:1] == before else 0
        self._give_up()

    def _constrained(self, scores: npt.NDArray[Any]) -> Iterator[_Step]:
        """The steps that go on with a constraint, or begin one."""
        for row, one in enumerate(self.live):
            for number in self._open(one):
                token = self.problem.constraints[number][one.begun]
                score = max(FLOOR, min(0.0, float(scores[row, token])))
                yield _Step(one.likelihood + score, row, token, number, one.bank + 1)

    def _free(self, scores: npt.NDArray[Any]) -> Iterator[_Step]:
        """The best steps that the model chooses itself, and ends."""
        rows = [row for row, one in enumerate(self.live) if not one.begun]
        allowed = np.clip(scores[rows].astype(np.float64), -np.inf, 0.0)  # R V
        ends = np.maximum(allowed[:, self.rules.end], FLOOR)
        for i, row in enumerate(rows):
            one = self.live[row]
            self._forbid(allowed[i], one)
            if one.bank == self.needed:
                allowed[i, self.rules.end] = ends[i]
        best = torch.from_numpy(allowed).topk(min(self.width, allowed.shape[1]))
        for row, values, tokens in zip(rows, best.values.tolist(), best.indices.tolist(), strict=True):
            one = self.live[row]
            for score, token in zip(values, tokens, strict=True):
                if score >= FLOOR:
                    yield _Step(one.likelihood + score, row, token, -1, one.bank)

    def _forbid(self, allowed: npt.NDArray[np.float64], one: Hypothesis) -> None:
        """Take away what may not follow a hypothesis of its own accord; the caller gives the end back."""
        allowed[self.rules.end] = -np.inf
        continues = self.rules.continues
        if len(one.text) + self.needed - one.bank == self.problem.most:
            allowed[:] = -np.inf  # there is room for the constraints alone
        elif self._has_by_chance(one):
            allowed[np.array(True) if continues is None else ~continues] = -np.inf
        elif continues is not None and one.owner and one.owner[-1] >= 0:
            allowed[continues] = -np.inf

    def _open(self, one: Hypothesis) -> list[int]:
        """The constraints that the next token may belong to."""
        if one.begun:
            return [one.owner[-1]]
        waiting = [number for number in range(len(self.problem.constraints)) if number not in one.met]
        if self.rules.ordered:
            return waiting[:1]
        equal: dict[Prefix, int] = {}
        for number in waiting:
            equal.setdefault(self.problem.constraints[number], number)
        return list(equal.values())

    def _has_by_chance(self, one: Hypothesis) -> bool:
        """Did the last tokens spell a constraint that is still to come?"""
        for number in [] if one.begun else self._open(one):
            phrase = self.problem.constraints[number]
            if one.text[-len(phrase) :] == phrase and all(owner < 0 for owner in one.owner[-len(phrase) :]):
                return True
        return False

    def _grown(self, step: _Step) -> Hypothesis:
        one = replace(self.live[step.row], likelihood=step.likelihood, bank=step.bank)
        if step.constraint < 0 and step.token == self.rules.end:
            return replace(one, stopped="end")
        met, begun = self._state(step)
        text, owner = (*one.text, step.token), (*one.owner, step.constraint)
        is_full = len(text) == self.problem.most
        return replace(one, text=text, owner=owner, begun=begun, met=met, stopped="max_length" if is_full else "")

    def _state(self, step: _Step) -> tuple[frozenset[int], int]:
        """The constraints that are complete after a step, and how much there is of one that is not."""
        one = self.live[step.row]
        if step.constraint < 0:
            return one.met, 0
        is_complete = one.begun + 1 == len(self.problem.constraints[step.constraint])
        return (one.met | {step.constraint}, 0) if is_complete else (one.met, one.begun + 1)

    # -- who stays

    def _allocated(self, steps: list[_Step]) -> list[_Step]:
        """The best steps of every bank, each text once.

        Where a text has a constraint twice, it does not matter which of the two was meant; the last token had better be
        a free one, for more may follow that.
        """
        banks: list[dict[Any, _Step]] = [{} for _ in range(self.needed + 1)]
        for step in sorted(steps, key=lambda step: (-step.likelihood, step.constraint, step.row, step.token)):
            met, begun = self._state(step)
            whole = (self.live[step.row].text, step.token, met, step.constraint if begun else -1, begun)
            banks[step.bank].setdefault(whole, step)
        slots = allocate([len(bank) for bank in banks], self.width)
        return [step for bank, size in zip(banks, slots, strict=True) for step in list(bank.values())[:size]]

    def _scores(self) -> list[float]:
        """Of the texts that ended, best first."""
        ended = [one for one in self.finished.values() if one.stopped == "end"]
        return sorted((one.score(self.rules.length_penalty) for one in ended), reverse=True)

    def _give_up(self) -> None:
        """Drop what cannot become one of the best any more: the likelihood only falls, and lengths are limited."""
        ended = self._scores()
        if self.rules.patience is not None and ended and self.idle >= self.rules.patience:
            self.live = []
        if len(ended) >= self.rules.n:
            hope = self.problem.most**self.rules.length_penalty
            self.live = [one for one in self.live if one.likelihood / hope > ended[self.rules.n - 1]]

    def best(self) -> list[Hypothesis]:
        """The best finished texts; those that ended by themselves before those that were stopped."""

        def rank(one: Hypothesis) -> tuple[bool, float, Prefix]:
            return one.stopped != "end", -one.score(self.rules.length_penalty), one.text

        return sorted(self.finished.values(), key=rank)[: self.rules.n]


def allocate(waiting: Sequence[int], width: int) -> list[int]:
    """How many slots of the beam every bank gets: equal shares; what a bank cannot use goes to the others, last first.

    >>> allocate([9, 9, 0], 6), allocate([9, 9, 0], 7), allocate([1, 9, 9], 3)
    ([3, 3, 0], [3, 4, 0], [1, 1, 1])
    """
    share = width // len(waiting)
    slots = [min(share, size) for size in waiting]
    left = width - sum(slots)
    while left and slots != list(waiting):
        for bank in reversed(range(len(waiting))):
            if left and slots[bank] < waiting[bank]:
                slots[bank] += 1
                left -= 1
    return slots


# ---------------------------------------------------------------------------------------------------------------------
# The system


@dataclass
class GridBeam(LeftToRight):
    """Writes texts from left to right that contain every constraint, by grid beam search."""

    ordered: bool = True
    """Constraints come in the order in which they are given."""

    def generate_many(self, lists: Sequence[Given], batch_size: int = 64, **options: Any) -> list[list[Generation]]:
        """For every list of constraints its `n` best texts; the order of the lists is kept.

        `width` is the beam of a list; one that is smaller than the constraints have tokens is widened to them.
        """
        chosen = accepted("grid-beam", options, ["n", "width", "max_length", "seed"], ("greedy", "beam"))
        rules = Rules(self.end, self.vocabulary.continues, self.ordered, max(chosen.width, chosen.n), n=chosen.n)
        results: list[list[Generation]] = []
        for batch in parsed_in_batches(lists, batch_size):
            problems = [self._problem(constraints, chosen) for constraints in batch]
            for start, end in _groups([max(rules.width, sum(map(len, p.constraints)) + 1) for p in problems]):
                found = search(self._ruled(self.begin()), problems[start:end], rules)
                for constraints, texts in zip(batch[start:end], found, strict=True):
                    results.append([self._generation(constraints, one) for one in texts])
        return results

    def _problem(self, constraints: tuple[str, ...], options: Options) -> Problem:
        tokens = self.tokens(constraints)
        phrases = tuple(tuple(tokens.ids[tokens.owner == i].tolist()) for i in range(len(constraints)))
        prompt = self.prompt(constraints, needed=len(tokens))
        return Problem(prompt, phrases, self.room(prompt, options))

    def _ruled(self, model: NextToken) -> NextToken:
        return lambda prefixes: self.ruled(model(prefixes), prefixes)

    def _generation(self, constraints: tuple[str, ...], one: Hypothesis) -> Generation:
        owner = np.where(np.array(one.owner) < 0, INSERTED, one.owner)
        tokens = Tokens(np.array(one.text), owner)
        return generation(tokens, constraints, self.vocabulary, self.casing, one.score(), one.stopped)


def _groups(widths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Neighbouring lists whose beams together have at most `ROWS` texts."""
    start = 0
    for end in range(1, len(widths) + 1):
        if end == len(widths) or sum(widths[start : end + 1]) > ROWS:
            yield start, end
            start = end


def load(folder: str | Path, device: str | None = None, ordered: bool = True) -> GridBeam:
    """Search with a trained model of the system `autoregressive`."""
    return GridBeam(**opened(folder, device, "grid-beam"), ordered=ordered)
