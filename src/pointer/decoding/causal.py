"""Causal insertion: a pre-trained left-to-right model fills the gaps between the constraints, one after the other.

The text so far stands before the constraints that are still to come. At every point the model inserts a token into the
gap that is open, or it answers `[NOI]`: it says the first token of the next constraint, which is then copied as a
whole, and the next gap is open. So constraints are never generated, only copied. For any weights and any logits they
are all there, in order, each a word of its own; a text ends only after the last of them, or at the length limit, which
closes all gaps; and it does not depend on what else is in its batch.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import islice
from typing import TypeAlias

import numpy as np

from pointer.decoding.capitals import as_told, cased
from pointer.decoding.constraints import INSERTED
from pointer.decoding.demand import Demand, Item
from pointer.decoding.engine import Loop
from pointer.decoding.options import Options
from pointer.decoding.presets import Guidance
from pointer.decoding.search import sampled
from pointer.decoding.steering import Steering, Way
from pointer.english import HALF_WORDS, NOT, SENTENCE_ENDS, inflections, is_word
from pointer.errors import CheckpointError, ConstraintError
from pointer.language import Language
from pointer.prepare.yake import stop_words
from pointer.runtime import Floats, NextToken, Prefix, best, logsumexp
from pointer.stage import Token

NEVER = -1e6
"""The score of what may not come next: below any log-probability."""
FORBIDDEN = 0.75 * NEVER
"""Where the scores of what may not come next end: log-probabilities are at least half of NEVER."""
CANDIDATES = 256
"""Tokens that a sample is drawn from: the likeliest. The others are noise, and sorting them takes time."""
EVEN = float(np.log(0.5))
"""Above this log-probability something is likelier than all else together."""
LONG_GAP = 10
"""In a gap that has more tokens than so many, the next constraint gets likelier with each."""
Copies: TypeAlias = "dict[int, tuple[Copy, ...]]"
"""For some tokens the constraints that they begin or go on with."""
TOLD_ORDERS = 6
"""Orders in which a model is told constraints whose order is free: all orders of three."""
GUIDANCE = Guidance()
_CLOSING = frozenset('.,!?;:)]}"\u201d\u2026')
"""Marks that may touch the end of a constraint: none of them makes it another word."""


@dataclass(frozen=True)
class Piece:
    """What one decision put into the text: a token, or a constraint."""

    text: str
    """With the space before it, if there is one."""
    owner: int = INSERTED
    """The number of the constraint that it is; INSERTED for the model's own."""


@dataclass(frozen=True)
class Copy:
    """A constraint on its way into a text, in one of the forms it may have."""

    number: int
    text: str
    """With the space before it, if there is one."""
    tokens: Prefix
    said: int = 0
    """How many of its tokens are in the text."""


@dataclass(frozen=True)
class Draft:
    """A text on its way from left to right."""

    demand: Demand
    read: Prefix
    """All that the model has read: the task, then the text."""
    key: bytes
    """What its random draws depend on: seed, constraints and number."""
    number: int = 0
    """Tells apart several texts that are drawn for the same constraints."""
    rank: int = 0
    """Which of the likeliest tokens it takes where it first has a choice: drafts to pick from begin differently."""
    size: int = 0
    """Tokens of the text."""
    pieces: tuple[Piece, ...] = ()
    done: tuple[int, ...] = ()
    """The constraints that are there already, in the order of the text."""
    pending: tuple[Copy, ...] = ()
    """Copies that have begun alike; the next tokens tell which of them it is."""
    likelihood: float = 0.0
    """The model's own log-probability of every decision so far."""
    decisions: int = 0
    total: float = 0.0
    """Of all decisions so far, adjusted: what beam search maximises."""
    stopped: str = ""
    """`converged` or `max_length` once it is done."""
    instead: "Draft | None" = None
    """If the last decision ended a sentence too early, perhaps: the text with the next best decision in its place."""

    @property
    def score(self) -> float:
        """The log-likelihood of a decision, on average."""
        return self.likelihood / max(1, self.decisions)

    @property
    def sure(self) -> "Draft":
        """Without a mark that may be taken back: what can be shown, as texts only grow."""
        return self if self.instead is None else replace(self, pieces=self.pieces[:-1], instead=None)

    @cached_property
    def is_spaced(self) -> bool:
        """Does the text end with a space that belongs to a number?"""
        return bool(self.pieces) and self.pieces[-1].text == " "

    @property
    def ends_with_mark(self) -> bool:
        """Is the last that was inserted a mark, which a word may touch?"""
        last = self.pieces[-1] if self.pieces else None
        return last is not None and last.owner == INSERTED and not last.text[-1:].isalnum() and not self.is_spaced

    @cached_property
    def tail(self) -> str | None:
        """The marks that touch the last constraint, if nothing else came after it; None where there is a space."""
        marks = ""
        for piece in reversed(self.pieces):
            if piece.owner != INSERTED:
                return marks
            if piece.text.startswith(" "):
                return None
            marks = piece.text + marks
        return None

    @cached_property
    def repeating(self) -> list[int]:
        """The tokens that would repeat three in a row (no-repeat-n-gram, Paulus et al. 2018)."""
        text = self.read[len(self.read) - self.size :]
        return [text[i + 2] for i in range(len(text) - 2) if text[i : i + 2] == text[-2:]]

    @cached_property
    def gap(self) -> int:
        """The decisions since the last constraint."""
        inserted = (i for i, piece in enumerate(reversed(self.pieces)) if piece.owner != INSERTED)
        return next(inserted, len(self.pieces))

    @cached_property
    def last_words(self) -> tuple[str, str]:
        """The word at the end of the text, as far as it is there, and the one a space before it; in lower case."""
        text = "".join(piece.text for piece in self.pieces[-64:])
        found = re.search(r"(?:([\w'\u2019]+) )?([\w'\u2019]*)$", text)
        assert found is not None  # nothing is a word, too
        return found[2].lower(), (found[1] or "").lower()

    def draw(self) -> float:
        """A number in [0, 1) that depends on seed, constraints, number and place alone."""
        digest = hashlib.blake2b(str(self.decisions).encode(), key=self.key, digest_size=8).digest()
        return int.from_bytes(digest, "big") / 2**64

    @cached_property
    def so_far(self) -> str:
        """What is written, without what is still to come."""
        return "".join(piece.text for piece in self.pieces).lstrip(" ")

    def text(self) -> tuple[str, list[tuple[int, int]]]:
        """The text with the constraints that are still to come after it, and the span of each constraint."""
        written, spans = "", []
        for piece in (*self.pieces, *self.to_come()):
            shown = piece.text if written else piece.text.lstrip(" ")
            if piece.owner != INSERTED:
                spans.append((len(written) + len(shown) - len(shown.lstrip(" ")), len(written) + len(shown)))
            written += shown
        return written, spans

    def to_come(self) -> list[Piece]:
        """The constraints that have to come still, each in its plainest form."""
        items, waiting = self.demand.items, () if self.stopped else self.demand.waiting(self.done)
        before = [self.done[-1] if self.done and not self.gap else None, *waiting]
        return [
            Piece(f"{'' if _touching(items, left, number) else ' '}{items[number].shortest}", number)
            for left, number in zip(before, waiting, strict=False)
        ]

    @property
    def order(self) -> tuple[int, ...]:
        """The constraints as they stand in the text, those to come included."""
        return (*self.done, *(piece.owner for piece in self.to_come()))

    def stages(self) -> tuple[tuple[Token, ...], ...]:
        """X^0, the text as X^1 as far as it is there, and X^1 again once it has converged."""
        text, spans = self.text()
        constraints = (
            (text[start:end] for start, end in spans) if self.pieces else (item.shortest for item in self.demand.items)
        )
        first = tuple(Token(word, False) for constraint in constraints for word in constraint.split())
        if not self.pieces and not self.stopped:
            return (first,)
        grown = tuple(_words(text, spans))
        again = tuple(Token(token.text, False) for token in grown)
        return (first, grown, again) if self.stopped == "converged" else (first, grown)


def _words(text: str, spans: list[tuple[int, int]]) -> list[Token]:
    """The words and marks of a text; those of a constraint are not new."""
    tokens, at = [], 0
    for start, end in (*spans, (len(text), len(text))):
        tokens += [Token(part, True) for part in re.findall(r"[\w'\u2019-]+|[^\w\s]", text[at:start])]
        tokens += [Token(part, False) for part in text[start:end].split()]
        at = end
    return tokens


def told_orders(demand: Demand) -> int:
    """In how many orders a model is told constraints whose order is free: all there are, or so many of them."""
    return len(list(islice(_orders(demand), TOLD_ORDERS)))


@cache
def told_order(demand: Demand, number: int) -> tuple[int, ...]:
    """The order in which a model is told the constraints: as they were given, or for another draft in another order.

    A model tends to use words in the order in which it was told them. So where the order is free, drafts that are told
    different ones have different ones.
    """
    few = list(islice(_orders(demand), TOLD_ORDERS + 1))
    if len(few) <= TOLD_ORDERS or number == 0:
        return few[number % len(few)]
    random = np.random.default_rng(number)
    order: list[int] = []
    while len(order) < len(demand.items):
        possible = [i for i, item in enumerate(demand.items) if i not in order and item.after <= set(order)]
        order.append(possible[int(random.integers(len(possible)))])
    return tuple(order)


def _orders(demand: Demand, begun: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """All orders that the constraints may have, that in which they were given first."""
    if len(begun) == len(demand.items):
        yield begun
    for number, item in enumerate(demand.items):
        if number not in begun and item.after <= set(begun):
            yield from _orders(demand, (*begun, number))


def _touching(items: Sequence[Item], left: int | None, right: int) -> bool:
    """Do two constraints stand side by side without a space? `left` is None where the model's own words stand."""
    return items[right].touches[0] or (left is not None and items[left].touches[1])


class CausalEngine(Loop[Draft]):
    """Lets texts grow token by token, by one set of options."""

    def __init__(
        self,
        next_token: NextToken,
        language: Language,
        options: Options,
        style: str,
        noi_offset: float,
        longest: int,
        name: str,
        rules: "Rules",
    ) -> None:
        self.next_token = next_token
        self.language = language
        self.options = options
        self.style = style
        self.noi_offset = noi_offset
        """Added to the log-probability of `[NOI]`: of the next constraint, and of the end."""
        self.longest = longest
        self.name = name
        self.rules = rules
        self.guidance = rules.guidance
        self._spelt: dict[str, Prefix] = {}

    def start(self, demand: Demand, number: int = 0) -> Draft:
        """X^0. `number` tells apart several texts that are drawn for the same constraints."""
        content = json.dumps([self.options.seed, number, demand.asked]).encode()
        key = hashlib.blake2b(content, digest_size=32).digest()
        words = [demand.items[i].forms[0] for i in told_order(demand, number)]
        told = [word for word in words if any(map(str.isalnum, word)) or not demand.verbatim]
        if self.guidance.as_written and not demand.verbatim:
            told = [as_told(word, self.rules.completes_half_words) for word in told]
        rank = number if self.options.best_of > 1 else 0
        draft = Draft(demand, tuple(self.language.prompt(told, self.style)), key, number, rank)
        needed, room = self._to_come(draft), self._room(draft)
        if needed > room:
            raise ConstraintError(
                f"Expected constraints of at most {max(0, room)} tokens, found {needed}.",
                "Give fewer constraints, or raise max_length if the model allows it.",
            )
        return self._limited(draft)

    @cached_property
    def kind(self) -> tuple[Options, float]:
        """Engines of one kind can grow each other's texts: all that counts but the seed, which is in the texts."""
        return replace(self.options, seed=0), self.noi_offset

    @property
    def width(self) -> int:
        """How many candidates of a text are kept."""
        return self.options.width if self.options.decoding == "beam" else 1

    def advance(self, pools: Sequence[list[Draft]]) -> list[list[Draft]]:
        """The candidates of every text one decision later, best first; what has stopped stays as it is."""
        live = [(i, draft) for i, pool in enumerate(pools) for draft in pool if not draft.stopped]
        grown: list[list[Draft]] = [[draft for draft in pool if draft.stopped] for pool in pools]
        if live:
            own = self._log_probabilities([draft for _, draft in live])  # B V
            scores, copies = self._adjusted(own, [draft for _, draft in live])
            choices = self._kept_choices(scores, [draft for _, draft in live], copies)
            for row, (i, draft) in enumerate(live):
                if draft.instead is not None and own[row, self.language.end] > EVEN:
                    grown[i].append(draft.instead)
                    continue
                if draft.rank and np.count_nonzero(scores[row] > FORBIDDEN) > 1:
                    draft = replace(draft, rank=0)  # it has had its choice
                instead = self._instead(draft, choices[row], scores[row], copies[row])
                gains = {token: (float(own[row, token]), float(scores[row, token])) for token in choices[row] + instead}
                ways = [self._after(draft, token, copies[row].get(token, ()), gain) for token, gain in gains.items()]
                can_go_back = instead and not ways[0].stopped
                grown[i] += [replace(ways[0], instead=ways[1])] if can_go_back else ways[: len(choices[row])]
        return [self._kept(pool) for pool in grown]

    def _instead(self, draft: Draft, choices: list[int], scores: Floats, copies: Copies) -> list[int]:
        """What a text says if it has to take back a mark that ends a sentence while constraints wait.

        A beam has other texts to go on with, and a text that should have a number of sentences needs its marks.
        """
        may_take_back = self.guidance.take_back and self.width == 1 and not draft.demand.has_length
        if not may_take_back or choices[0] not in self.rules.ends or not draft.demand.waiting(draft.done):
            return []
        others = scores.copy()
        others[list(self.rules.ends)] = NEVER
        best_other = int(others.argmax())
        is_sayable = best_other in copies or not self._says(draft, best_other)
        return [best_other] if others[best_other] > FORBIDDEN and is_sayable else []

    def _log_probabilities(self, drafts: list[Draft]) -> Floats:
        # A model may have more embeddings than tokens.
        found = self.next_token([draft.read for draft in drafts])[:, : self.language.size]
        if np.isnan(found.min()):
            raise CheckpointError(
                f"Expected log-probabilities from {self.name}, found some that are no numbers.",
                "The weights are damaged: copy the checkpoint again, or train it again.",
            )
        clipped: Floats = np.maximum(found, np.float32(NEVER / 2))
        return clipped

    def _adjusted(self, own: Floats, drafts: list[Draft]) -> tuple[Floats, list[Copies]]:
        """What may come next, and how likely; and for every text the copies that some tokens stand for."""
        settled = [self._settled(draft) for draft in drafts]
        scores = own + self.rules.masks[[self.rules.state(draft) for draft in settled]]  # B V
        copies: list[Copies] = []
        for row, (draft, base) in enumerate(zip(drafts, settled, strict=True)):
            found = self._copies(base) if draft.pending == base.pending else self._going_on(draft) | self._copies(base)
            if base.pending:
                found = self._going_on(draft)
            self._score(scores[row], own[row], base, found)
            if float(scores[row].max()) <= FORBIDDEN:  # no way to a wanted length: a text comes first
                found = found or self._copies(base, strictly=False)
                scores[row, [*found] or [self.language.end]] = own[row, [*found] or [self.language.end]]
            copies.append(found)
        return scores, copies

    def _score(self, scores: Floats, own: Floats, draft: Draft, copies: Copies) -> None:
        """Score what may come next in one text."""
        scores[self.rules.refused(draft)] = NEVER
        if draft.pending or (draft.demand.lock_start and not draft.pieces) or self._is_full(draft):
            scores[:] = NEVER
        if draft.demand.verbatim:  # the marks of a template are its own
            scores[~self.rules.steering.letters] = NEVER
        way = self._way(draft)
        if way is not None:
            scores[self.rules.steering.refused(way)] = NEVER
        if copies:
            self._weigh_copies(scores, own, draft, copies)
        if self._may_end(draft) and (way is None or way.may_end):
            scores[self.language.end] = own[self.language.end] + self.noi_offset

    def _weigh_copies(self, scores: Floats, own: Floats, draft: Draft, copies: Copies) -> None:
        """Score the constraints that may come next, `[NOI]` of the gap that is open, each form by itself."""
        forms: dict[tuple[int, str], list[int]] = {}
        for token, found in copies.items():
            for copy in found:
                forms.setdefault((copy.number, copy.text.strip().lower()), []).append(token)
        long, urgency = (2, 2 * self.guidance.urgency) if draft.demand.verbatim else (LONG_GAP, self.guidance.urgency)
        gain = self.noi_offset + urgency * max(0, draft.gap - long)
        wanted: dict[int, float] = {}
        for (number, form), tokens in forms.items():
            likeliest = tokens[int(own[tokens].argmax())]
            total = logsumexp(own[tokens])
            if self.guidance.forms is not None and not draft.pending and form == self._likeliest(own, forms, number):
                # A model that would say another form of the word wants the word: the decoder knows which it may have.
                others = list({*self.rules.forms(draft.demand.items[number], self.rules.lead(draft))} - {*copies})
                scores[others] = NEVER
                total = np.logaddexp(total, logsumexp(own[others]) + self.guidance.forms)
            is_free = draft.demand.items[number].optional
            wanted[likeliest] = max(wanted.get(likeliest, NEVER), float(total) + (0.0 if is_free else gain))
        scores[list(copies)] = NEVER
        scores[list(wanted)] = list(wanted.values())

    @staticmethod
    def _likeliest(own: Floats, forms: dict[tuple[int, str], list[int]], number: int) -> str:
        """The form of a constraint that the model likes best."""
        mine = {form: float(own[tokens].max()) for (owner, form), tokens in forms.items() if owner == number}
        return max(mine, key=lambda form: mine[form])

    def _settled(self, draft: Draft) -> Draft:
        """The text as it is if a copy that may be complete is."""
        whole = [copy for copy in draft.pending if copy.said == len(copy.tokens)]
        return self._with_copy(replace(draft, pending=()), whole[0]) if whole else draft

    @staticmethod
    def _going_on(draft: Draft) -> Copies:
        """The next tokens of the copies that have begun."""
        found: Copies = {}
        for copy in draft.pending:
            if copy.said < len(copy.tokens):
                token = copy.tokens[copy.said]
                found[token] = (*found.get(token, ()), copy)
        return found

    def _copies(self, draft: Draft, strictly: bool = True) -> Copies:
        """The tokens that begin a constraint which may come next, in any of its forms and the capitals it may have.

        `strictly`: only where the text can still get the length it should have.
        """
        if draft.is_spaced or draft.stopped or draft.pending:
            return {}
        way = self._way(draft)
        spare = self._room(draft) - self._to_come(draft)
        found: dict[int, dict[tuple[int, str], Copy]] = {}
        for number in draft.demand.available(draft.done):
            item = draft.demand.items[number]
            if not self._may_come(draft, item):
                continue
            reserved = 0 if item.optional else len(self.spelt(f"{self._lead(draft, number)}{item.shortest}"))
            for copy in self._written(draft, number):
                is_short = len(copy.tokens) <= spare + reserved
                if is_short and (not strictly or self._keeps_to(draft, way, copy)):
                    found.setdefault(copy.tokens[0], {}).setdefault((number, copy.text.lower()), copy)
        return {token: tuple(some.values()) for token, some in found.items()}

    def _written(self, draft: Draft, number: int) -> list[Copy]:
        """The ways in which a constraint may be written here."""
        item, lead = draft.demand.items[number], self._lead(draft, number)
        written = []
        for form in item.forms:
            for way in [form] if draft.demand.verbatim else cased(form):
                spelt = self.spelt(f"{lead}{way}")
                # Inside a text, a space alone begins a number: no sign that capitals are wanted.
                if way == form or not draft.pieces or self.language.writes[spelt[0]] != " ":
                    written.append(Copy(number, f"{lead}{way}", spelt))
        return written

    def _may_come(self, draft: Draft, item: Item) -> bool:
        """Is the gap before a stretch of a template as it should be?"""
        if not draft.demand.verbatim:
            return True
        gap = "".join(piece.text for piece in draft.pieces[len(draft.pieces) - draft.gap :])
        if item.after_gap and not any(map(str.isalnum, gap)):
            return False
        return not (gap and item.touches[0] and not item.forms[0][0].isalnum() and not gap[-1].isalnum())

    def _keeps_to(self, draft: Draft, way: Way | None, copy: Copy) -> bool:
        """May a text still be what it should after a copy: nothing forbidden, not too long, no end too soon?"""
        demand = draft.demand
        if demand.forbidden and demand.forbids(_end_of(draft, demand.reach) + copy.text):
            return False
        if way is None:
            return True
        item = demand.items[copy.number]
        words = item.words(copy.text.strip())
        if words - (0 if item.optional else item.least_words()) > way.spare() and demand.words:
            return False
        if demand.sentences and way.is_closed:
            # After the last sentence nothing may look like another one; before it, something has to.
            begins_another = not copy.text.strip()[0].islower()
            if way.sentences >= demand.sentences.high and begins_another:
                return False
            if way.sentences < demand.sentences.low and not begins_another:
                return False
        is_end = demand.lock_end and demand.waiting(draft.done) == [copy.number]
        return not is_end or replace(way, text=draft.so_far + copy.text, words=0).may_end

    def _way(self, draft: Draft) -> Way | None:
        """Where the text is on its way to its length; None if it may have any."""
        demand = draft.demand
        if not demand.has_length or draft.pending:
            return None
        waiting = demand.waiting(draft.done)
        words = sum(demand.items[number].least_words() for number in waiting)
        room = self._room(draft) - self._to_come(draft)
        return Way(demand, draft.so_far, words, not waiting, room, self.options.max_length)

    def _lead(self, draft: Draft, number: int) -> str:
        """What stands before a constraint that comes next."""
        before = draft.done[-1] if draft.done and not draft.gap else None
        if draft.pieces and _touching(draft.demand.items, before, number):
            return ""
        return " " if draft.pieces else self.language.lead

    def _may_end(self, draft: Draft) -> bool:
        if draft.pending or draft.is_spaced or draft.demand.waiting(draft.done):
            return False
        return not draft.demand.ends_with_gap or self._is_filled(draft)

    @staticmethod
    def _is_filled(draft: Draft) -> bool:
        """Has a word been inserted into the gap that is open?"""
        return any(c.isalnum() for piece in draft.pieces[len(draft.pieces) - draft.gap :] for c in piece.text)

    def _is_full(self, draft: Draft) -> bool:
        """Is there only room left for what has to come, where gaps of a template are to be filled too?"""
        if not draft.demand.verbatim or draft.is_spaced:
            return False
        return self._room(draft) <= self._to_come(draft) + 1 and (
            self._is_filled(draft) or not self._needs_filling(draft)
        )

    @staticmethod
    def _needs_filling(draft: Draft) -> bool:
        """Must something be inserted into the gap that is open?"""
        waiting = draft.demand.waiting(draft.done)
        return draft.demand.items[waiting[0]].after_gap if waiting else draft.demand.ends_with_gap

    def _kept_choices(self, scores: Floats, drafts: list[Draft], copies: list[Copies]) -> list[list[int]]:
        """The tokens that each text goes on with, none of which says what it may not say."""
        choices = self._choices(scores, drafts)
        for row, draft in enumerate(drafts):
            if draft.demand.forbidden or draft.demand.avoided:
                while bad := [token for token in choices[row] if token not in copies[row] and self._says(draft, token)]:
                    scores[row, bad] = NEVER
                    [choices[row]] = self._choices(scores[row : row + 1], [draft])
        return choices

    def _says(self, draft: Draft, token: int) -> bool:
        """Would a token complete something that the text must not have?"""
        if token == self.language.end:
            return False
        demand, base = draft.demand, self._settled(draft)
        before = _end_of(base, demand.reach)
        after = before + self.language.writes[token]
        words = [word[0].lower() for word in re.finditer(r"\w+", after) if word.end() > len(before)]
        return demand.forbids(after) or any(word in demand.avoided for word in words)

    def _choices(self, scores: Floats, drafts: list[Draft]) -> list[list[int]]:
        """The tokens that each text goes on with."""
        if self.options.decoding == "beam":
            ids = best(scores, self.width)
            pairs = zip(ids.tolist(), (np.take_along_axis(scores, ids, 1) > FORBIDDEN).tolist(), strict=True)
            found = [[token for token, may_be in zip(*row, strict=True) if may_be] for row in pairs]
            return [some or [int(row[0])] for some, row in zip(found, ids, strict=True)]
        if self.options.decoding == "greedy":
            chosen: list[list[int]] = scores.argmax(-1, keepdims=True).tolist()
        else:
            ids = best(scores, CANDIDATES)
            draws = np.array([draft.draw() for draft in drafts])
            places = sampled(np.take_along_axis(scores, ids, 1), draws, self.options)
            chosen = np.take_along_axis(ids, places, 1).tolist()
        for row, draft in enumerate(drafts):
            if draft.rank:
                ranked = best(scores[row : row + 1], draft.rank + 1)[0]
                possible = ranked[scores[row, ranked] > FORBIDDEN]
                chosen[row] = [int(possible[draft.rank % len(possible)])] if len(possible) else chosen[row]
        return chosen

    def _after(self, draft: Draft, token: int, copies: tuple[Copy, ...], gain: tuple[float, float]) -> Draft:
        """A text one decision later."""
        draft = replace(
            draft,
            likelihood=draft.likelihood + gain[0],
            total=draft.total + gain[1],
            decisions=draft.decisions + 1,
            instead=None,
        )
        if copies:
            return self._limited(self._begun(draft, token, copies))
        draft = self._settled(draft)
        if draft.stopped:
            return draft
        if token == self.language.end:
            return self._ended(self._closed(draft), "converged")
        return self._limited(self._with_token(draft, token))

    def _begun(self, draft: Draft, token: int, copies: tuple[Copy, ...]) -> Draft:
        """With the next token of some copies; if there is only one, with all of it."""
        if not any(copy in draft.pending for copy in copies):
            draft = self._settled(draft)
        if len(copies) == 1:
            [copy] = copies
            return self._with_copy(replace(draft, pending=()), copy)
        pending = tuple(replace(copy, said=copy.said + 1) for copy in copies)
        draft = replace(draft, read=(*draft.read, token), size=draft.size + 1, pending=pending)
        return self._settled(draft) if all(copy.said == len(copy.tokens) for copy in pending) else draft

    def _ended(self, draft: Draft, why: str) -> Draft:
        """The finished text, and why it ended."""
        return replace(draft, stopped="length" if draft.demand.misses(draft.so_far) else why)

    def _with_token(self, draft: Draft, token: int) -> Draft:
        piece = Piece(self.language.writes[token])
        return replace(draft, read=(*draft.read, token), size=draft.size + 1, pieces=(*draft.pieces, piece))

    def _closed(self, draft: Draft) -> Draft:
        """The text with a full stop, if it would end without a mark and there is room."""
        marks = self.rules.by_text.get(".", [])
        is_whole = draft.text()[0].rstrip("\"'\u201d\u2019)").endswith(tuple(SENTENCE_ENDS))
        if is_whole or not marks or not self.guidance.full_stop or self._room(draft) < 1:
            return draft
        return self._with_token(draft, marks[0])

    def _with_copy(self, draft: Draft, copy: Copy) -> Draft:
        """With a constraint, as far as it is not there yet."""
        grown = replace(
            draft,
            read=draft.read + copy.tokens[copy.said :],
            size=draft.size + len(copy.tokens) - copy.said,
            pieces=(*draft.pieces, Piece(copy.text, copy.number)),
            done=(*draft.done, copy.number),
        )
        is_last = not grown.demand.waiting(grown.done)
        return self._ended(grown, "converged") if is_last and grown.demand.lock_end else grown

    def _limited(self, draft: Draft) -> Draft:
        """At the length limit all gaps are closed: the constraints that are still to come follow at once."""
        if draft.stopped or draft.pending:
            return draft
        needed = self._to_come(draft)
        if draft.demand.verbatim and (needed or not self._may_end(draft)):
            return draft  # its gaps are to be filled, each in its turn
        if self._room(draft) > needed + (not draft.is_spaced):
            return draft
        for number in draft.demand.waiting(draft.done):
            draft = self._closed_up(draft, number)
        return self._ended(draft, "max_length")

    def _closed_up(self, draft: Draft, number: int) -> Draft:
        """With the next constraint at once, or after a comma where the two together would be something forbidden."""
        demand, item = draft.demand, draft.demand.items[number]
        lead = self._lead(draft, number)
        text = f"{lead}{item.shortest}"
        if demand.forbidden and demand.forbids(_end_of(draft, demand.reach) + text) and "," in self.rules.by_text:
            draft = self._with_token(draft, self.rules.by_text[","][0])
        return self._with_copy(draft, Copy(number, text, self.spelt(text)))

    def _to_come(self, draft: Draft) -> int:
        """The tokens of the constraints that are not in the text yet, and of what else has to be there."""
        waiting = draft.demand.waiting(draft.done)
        leads = [self._lead(draft, waiting[0]) if waiting else "", *" " * len(waiting)]
        items = [draft.demand.items[number] for number in waiting]
        needed = sum(len(self.spelt(f"{lead}{item.shortest}")) for lead, item in zip(leads, items, strict=False))
        gaps = sum(item.after_gap for item in items) + draft.demand.ends_with_gap
        return needed + gaps + (len(waiting) if draft.demand.forbidden else 0)

    def _room(self, draft: Draft) -> int:
        """How many more tokens the text may have, by its own limit and by what the model can read."""
        return min(self.options.max_length - draft.size, self.longest - len(draft.read))

    def _kept(self, pool: list[Draft]) -> list[Draft]:
        """The best candidates of a text. Those that are still growing are compared by what has been decided so far."""
        if self.width == 1:
            return pool
        distinct: dict[Prefix, Draft] = {}
        for draft in sorted(pool, key=lambda draft: -draft.total / max(1, draft.decisions)):
            distinct.setdefault(draft.read, draft)
        best = list(distinct.values())[: self.width]
        if all(draft.stopped for draft in best):
            best.sort(key=lambda draft: -draft.score)
            return best[: self.options.n]
        return best

    def spelt(self, text: str) -> Prefix:
        """The tokens of a text; one that cannot be spelt is read as an end."""
        if text not in self._spelt:
            self._spelt[text] = tuple(self.language.encode(text)) or (self.language.end,)
        return self._spelt[text]


def _end_of(draft: Draft, characters: int) -> str:
    """About so many of the last characters of a text, from the beginning of a word."""
    text = draft.so_far
    if len(text) <= characters:
        return text
    return text[-characters:].split(" ", 1)[-1]


class Rules:
    """What may follow what, so that the text stays a text and constraints stay what they are."""

    FREE, START, SPACED, GLUED, TOUCHED, HALVED, APART = range(7)

    def __init__(self, language: Language, guidance: Guidance = GUIDANCE) -> None:
        self.language = language
        self.guidance = guidance
        kinds, writes = language.kinds, language.writes
        anything = kinds.starts | kinds.continues | kinds.marks
        closing = kinds.marks & np.array([bool(w) and all(c in _CLOSING for c in w) for w in writes])
        possessive = np.array([w in ("'s", "\u2019s") for w in writes])
        completing = np.array([w in NOT for w in writes])
        space = np.array([w == " " for w in writes])
        start = kinds.starts if language.lead else kinds.continues
        allowed = [anything | space, start, kinds.continues, kinds.starts | space | closing]
        allowed += [allowed[self.GLUED] | possessive, allowed[self.GLUED] | completing, kinds.starts]
        self.masks = np.where(np.stack(allowed), 0.0, NEVER).astype(np.float32)  # 7 V
        self.completes_half_words = bool(completing.any())
        """Has the vocabulary the `'t` as a token?"""
        self._forms: dict[tuple[str, tuple[str, ...]], list[int]] = {}

    @cached_property
    def steering(self) -> Steering:
        """What each token does to the length of a text."""
        return Steering(self.language.writes)

    def state(self, draft: Draft) -> int:
        """Which tokens may come next, by what they write: an index into `masks`."""
        if not draft.pieces:
            return self.START
        if draft.is_spaced:
            return self.SPACED
        if draft.demand.verbatim:
            last = draft.pieces[-1].owner
            return self.FREE if last == INSERTED else self.SPACED if draft.demand.items[last].touches[1] else self.APART
        if draft.tail is not None:
            if draft.tail:
                return self.GLUED
            is_half = draft.demand.items[draft.pieces[-1].owner].forms[0] in HALF_WORDS
            return self.HALVED if is_half else self.TOUCHED
        return self.FREE

    @cached_property
    def ends(self) -> frozenset[int]:
        """The tokens that end a sentence."""
        return frozenset(token for token, text in enumerate(self.language.writes) if text[-1:] in SENTENCE_ENDS)

    @cached_property
    def by_text(self) -> dict[str, list[int]]:
        """The tokens that write a text, whatever its case."""
        found: dict[str, list[int]] = {}
        for token, text in enumerate(self.language.writes):
            if text:
                found.setdefault(text.lower(), []).append(token)
        return found

    def lead(self, draft: Draft) -> str:
        """What stands before a word that comes next."""
        return "" if draft.is_spaced else " " if draft.pieces else self.language.lead

    def forms(self, item: Item, lead: str) -> list[int]:
        """The tokens that begin a form of a constraint: of `stood`, those of stand, stands and standing too."""
        if (lead, item.forms) not in self._forms:
            found = {token for form in item.forms for token in self._first_pieces(form, lead)}
            self._forms[lead, item.forms] = sorted(found)
        return self._forms[lead, item.forms]

    def _first_pieces(self, constraint: str, lead: str) -> list[int]:
        words = inflections(constraint)
        forms = [form for word in words for form in (word, word.capitalize())]
        first = {token for form in forms for token in self.language.encode(f"{lead}{form}")[:1]}
        # A first piece may be another word: " clim" tells "climbs", but " in" does not tell "inking".
        least = min(map(len, words))
        pieces = {token: self.language.writes[token].strip() for token in first}
        told = [token for token, piece in pieces.items() if len(piece) >= least or not _is_whole(piece)]
        return [token for token in told if len(pieces[token]) > 1]

    def refused(self, draft: Draft) -> list[int]:
        """Tokens that would repeat a word or three tokens, or say a constraint before its turn or without its space."""
        word, before = draft.last_words
        found: list[int] = []
        if self.guidance.no_repeat:
            found += self.by_text.get(f" {word}", []) if word else []
            found += [token for token in draft.repeating if not self._completes(draft, token)]
        if self.guidance.turns and not draft.demand.verbatim:
            demand, next_ones = draft.demand, draft.demand.available(draft.done)
            for number in demand.waiting(draft.done):
                item = demand.items[number]
                if item.forms[0].lower() in stop_words():
                    continue
                if number not in next_ones:
                    found += self.forms(item, self.lead(draft))
                if draft.ends_with_mark:  # a constraint has a space before it
                    found += self.forms(item, "")
        begun = word.lstrip("'\u2019")
        if self.guidance.no_repeat and draft.tail is None and before.startswith(begun):  # in pieces
            found += self.by_text.get(before[len(begun) :], [])
        return found

    def _completes(self, draft: Draft, token: int) -> bool:
        """Does a token only go on with a word (`don't`, a name in pieces), which may be said again as a whole?

        Not where three tokens in a row go on: that is no word but a stutter.
        """
        continues = self.language.kinds.continues
        return bool(continues[token] and not continues[list(draft.read[-2:])].all())


@cache
def _is_whole(text: str) -> bool:
    """Is a piece a word by itself?"""
    return text.lower() in stop_words() or is_word(text)
