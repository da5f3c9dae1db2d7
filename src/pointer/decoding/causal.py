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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from pointer.decoding.constraints import INSERTED
from pointer.decoding.engine import Loop
from pointer.decoding.options import Options
from pointer.decoding.presets import Guidance
from pointer.decoding.search import sampled
from pointer.english import SENTENCE_ENDS
from pointer.errors import CheckpointError, ConstraintError
from pointer.language import SEVERAL_SENTENCES, Language
from pointer.prepare.yake import stop_words
from pointer.runtime import Floats, NextToken, Prefix, best, logsumexp
from pointer.stage import Token

NEVER = -1e6
"""The score of what may not come next: below any log-probability."""
FORBIDDEN = 0.75 * NEVER
"""Where the scores of what may not come next end: log-probabilities are at least half of NEVER."""
CANDIDATES = 256
"""Tokens that a sample is drawn from: the likeliest. The others are noise, and sorting them takes time."""
LONG_GAP = 10
"""In a gap that has more tokens than so many, the next constraint gets likelier with each."""
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
class Draft:
    """A text on its way from left to right."""

    constraints: tuple[str, ...]
    read: Prefix
    """All that the model has read: the task, then the text."""
    key: bytes
    """What its random draws depend on: seed, constraints and number."""
    number: int = 0
    """Tells apart several texts that are drawn for the same constraints."""
    size: int = 0
    """Tokens of the text."""
    pieces: tuple[Piece, ...] = ()
    copied: int = 0
    """How many constraints are there already."""
    likelihood: float = 0.0
    """The model's own log-probability of every decision so far."""
    decisions: int = 0
    total: float = 0.0
    """Of all decisions so far, adjusted: what beam search maximises."""
    stopped: str = ""
    """`converged` or `max_length` once it is done."""

    @property
    def score(self) -> float:
        """The log-likelihood of a decision, on average."""
        return self.likelihood / max(1, self.decisions)

    @cached_property
    def is_spaced(self) -> bool:
        """Does the text end with a space that belongs to a number?"""
        return bool(self.pieces) and self.pieces[-1].text == " "

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

    def text(self) -> tuple[str, list[tuple[int, int]]]:
        """The text with the constraints that are still to come after it, and the span of each constraint."""
        written, spans = "", []
        to_come = enumerate(self.constraints[self.copied :], self.copied)
        for piece in (*self.pieces, *(Piece(f" {word}", number) for number, word in to_come)):
            shown = piece.text if written else piece.text.lstrip(" ")
            if piece.owner != INSERTED:
                spans.append((len(written) + len(shown) - len(shown.lstrip(" ")), len(written) + len(shown)))
            written += shown
        return written, spans

    def stages(self) -> tuple[tuple[Token, ...], ...]:
        """X^0, the text as X^1 as far as it is there, and X^1 again once it has converged."""
        text, spans = self.text()
        first = tuple(Token(word, False) for constraint in self.constraints for word in constraint.split())
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

    def start(self, constraints: tuple[str, ...], number: int = 0) -> Draft:
        """X^0. `number` tells apart several texts that are drawn for the same constraints."""
        content = json.dumps([self.options.seed, number, constraints]).encode()
        key = hashlib.blake2b(content, digest_size=32).digest()
        draft = Draft(constraints, tuple(self.language.prompt(constraints, self.style)), key, number)
        needed, room = self._to_come(draft), self._room(draft)
        if needed > room:
            raise ConstraintError(
                f"Expected constraints of at most {max(0, room)} tokens, found {needed}.",
                "Give fewer constraints, or raise max_length if the model allows it.",
            )
        return self._limited(draft)

    @cached_property
    def kind(self) -> Options:
        """Engines of one kind can grow each other's texts: all options but the seed, which is in the texts."""
        return replace(self.options, seed=0)

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
            choices = self._choices(scores, [draft for _, draft in live])
            for row, (i, draft) in enumerate(live):
                for token in choices[row]:
                    gain = float(own[row, token]), float(scores[row, token])
                    grown[i].append(self._after(draft, token, copies[row].get(token), gain))
        return [self._kept(pool) for pool in grown]

    def _log_probabilities(self, drafts: list[Draft]) -> Floats:
        # A model may have more embeddings than tokens.
        found = self.next_token([draft.read for draft in drafts])[:, : self.language.size]
        if np.isnan(found).any():
            raise CheckpointError(
                f"Expected log-probabilities from {self.name}, found some that are no numbers.",
                "The weights are damaged: copy the checkpoint again, or train it again.",
            )
        clipped: Floats = np.maximum(found, np.float32(NEVER / 2))
        return clipped

    def _adjusted(self, own: Floats, drafts: list[Draft]) -> tuple[Floats, list[dict[int, Piece]]]:
        """What may come next, and how likely; and for every text the constraint that some tokens stand for."""
        scores = own + self.rules.masks[[self.rules.state(draft) for draft in drafts]]  # B V
        copies = [self._copies(draft) for draft in drafts]
        for row, draft in enumerate(drafts):
            scores[row, self.rules.refused(draft)] = NEVER
            if self._must_copy(draft):
                scores[row] = NEVER
            if copies[row]:
                self._weigh_copy(scores[row], own[row], draft, list(copies[row]))
            elif self._may_end(draft):
                scores[row, self.language.end] = own[row, self.language.end] + self.noi_offset
        return scores, copies

    def _weigh_copy(self, scores: Floats, own: Floats, draft: Draft, copies: list[int]) -> None:
        """Score the next constraint, `[NOI]` of the gap that is open."""
        scores[copies] = NEVER
        likeliest = copies[int(own[copies].argmax())]
        wanted = logsumexp(own[copies])
        if self.guidance.forms is not None:
            # A model that would say another form of the word wants the word: the decoder knows which form it must have.
            forms = self.rules.forms(draft.constraints[draft.copied], draft)
            scores[forms] = NEVER
            others = list({*forms} - {*copies})
            wanted = np.logaddexp(wanted, logsumexp(own[others]) + self.guidance.forms)
        scores[likeliest] = wanted + self.noi_offset + self.guidance.urgency * max(0, draft.gap - LONG_GAP)
        if self.style not in SEVERAL_SENTENCES:
            scores[self.rules.sentence_ends] -= self.guidance.unfinished

    def _copies(self, draft: Draft) -> dict[int, Piece]:
        """The tokens that stand for the next constraint, in the capitals that it may have."""
        if draft.copied == len(draft.constraints) or draft.is_spaced:
            return {}
        lead = self._lead(draft)
        constraint = draft.constraints[draft.copied]
        # With capitals it may have more tokens, for which there may be no room.
        longest = self._room(draft) - self._to_come(draft) + len(self.spelt(f"{lead}{constraint}"))
        found: dict[int, Piece] = {}
        for form in cased(constraint):
            spelt = self.spelt(f"{lead}{form}")
            # Inside a text, a space alone begins a number: no sign that capitals are wanted.
            is_told = form == constraint or not draft.pieces or self.language.writes[spelt[0]] != " "
            if is_told and len(spelt) <= longest:
                found.setdefault(spelt[0], Piece(f"{lead}{form}", draft.copied))
        return found

    def _lead(self, draft: Draft) -> str:
        """What stands before the next word of a text."""
        return " " if draft.pieces else self.language.lead

    def _must_copy(self, draft: Draft) -> bool:
        return self.options.lock_start and not draft.copied

    def _may_end(self, draft: Draft) -> bool:
        return draft.copied == len(draft.constraints) and not draft.is_spaced

    def _choices(self, scores: Floats, drafts: list[Draft]) -> list[list[int]]:
        """The tokens that each text goes on with."""
        if self.options.decoding == "beam":
            ids = best(scores, self.width)
            pairs = zip(ids.tolist(), (np.take_along_axis(scores, ids, 1) > FORBIDDEN).tolist(), strict=True)
            return [[token for token, may_be in zip(*row, strict=True) if may_be] for row in pairs]
        greedy: list[list[int]] = scores.argmax(-1, keepdims=True).tolist()
        if self.options.decoding == "greedy":
            return greedy
        ids = best(scores, CANDIDATES)
        draws = np.array([draft.draw() for draft in drafts])
        places = sampled(np.take_along_axis(scores, ids, 1), draws, self.options)
        drawn: list[list[int]] = np.take_along_axis(ids, places, 1).tolist()
        # Of several drafts to pick from, the first is the greedy one: none may be worse than the best single text.
        is_first = [self.options.best_of > 1 and draft.number == 0 for draft in drafts]
        return [one if first else other for one, other, first in zip(greedy, drawn, is_first, strict=True)]

    def _after(self, draft: Draft, token: int, copy: Piece | None, gain: tuple[float, float]) -> Draft:
        """A text one decision later."""
        draft = replace(
            draft,
            likelihood=draft.likelihood + gain[0],
            total=draft.total + gain[1],
            decisions=draft.decisions + 1,
        )
        if copy is not None:
            return self._limited(self._with_constraint(draft, copy))
        if token == self.language.end:
            return replace(self._closed(draft), stopped="converged")
        return self._limited(self._with_token(draft, token))

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

    def _with_constraint(self, draft: Draft, piece: Piece) -> Draft:
        spelt = self.spelt(piece.text)
        grown = replace(
            draft,
            read=draft.read + spelt,
            size=draft.size + len(spelt),
            pieces=(*draft.pieces, piece),
            copied=draft.copied + 1,
        )
        is_last = grown.copied == len(grown.constraints)
        return replace(grown, stopped="converged") if is_last and self.options.lock_end else grown

    def _limited(self, draft: Draft) -> Draft:
        """At the length limit all gaps are closed: the constraints that are still to come follow at once."""
        needed = self._to_come(draft)
        if draft.stopped or self._room(draft) > needed + (not draft.is_spaced):
            return draft
        for number, constraint in enumerate(draft.constraints[draft.copied :], draft.copied):
            draft = self._with_constraint(draft, Piece(f"{self._lead(draft)}{constraint}", number))
        return replace(draft, stopped="max_length")

    def _to_come(self, draft: Draft) -> int:
        """The tokens of the constraints that are not in the text yet."""
        to_come = draft.constraints[draft.copied :]
        leads = [self._lead(draft), *" " * len(to_come)]
        return sum(len(self.spelt(f"{lead}{word}")) for lead, word in zip(leads, to_come, strict=False))

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


def cased(constraint: str) -> list[str]:
    """How a constraint may be written: as it was given, and with capitals if it has none.

    >>> cased("new york"), cased("iPhone")
    (['new york', 'New york', 'New York'], ['iPhone'])
    """
    if constraint != constraint.lower():
        return [constraint]
    titled = re.sub(r"(?<![\w'\u2019])\w", lambda found: found[0].upper(), constraint)
    found = dict.fromkeys([constraint, constraint[:1].upper() + constraint[1:], titled])
    return [form for form in found if form.lower() == constraint]  # "ß" has no capital of its own


class Rules:
    """What may follow what, so that the text stays a text and constraints stay what they are."""

    FREE, START, SPACED, GLUED, TOUCHED = range(5)

    def __init__(self, language: Language, banned: Sequence[str] = (), guidance: Guidance = GUIDANCE) -> None:
        self.language = language
        self.banned = banned
        self.guidance = guidance
        kinds, writes = language.kinds, language.writes
        anything = kinds.starts | kinds.continues | kinds.marks
        closing = kinds.marks & np.array([bool(w) and all(c in _CLOSING for c in w) for w in writes])
        possessive = np.array([w in ("'s", "\u2019s") for w in writes])
        space = np.array([w == " " for w in writes])
        start = kinds.starts if language.lead else kinds.continues
        allowed = [anything | space, start, kinds.continues, kinds.starts | space | closing]
        allowed += [kinds.starts | space | closing | possessive]
        self.masks = np.where(np.stack(allowed), 0.0, NEVER).astype(np.float32)  # 5 V
        self.sentence_ends = [i for i, w in enumerate(writes) if w and set(w) <= set(".!?")]
        self._forms: dict[tuple[str, str], list[int]] = {}

    def state(self, draft: Draft) -> int:
        """Which tokens may come next, by what they write: an index into `masks`."""
        if not draft.pieces:
            return self.START
        if draft.is_spaced:
            return self.SPACED
        if draft.tail is not None:
            return self.GLUED if draft.tail else self.TOUCHED
        return self.FREE

    @cached_property
    def by_text(self) -> dict[str, list[int]]:
        """The tokens that write a text, whatever its case."""
        found: dict[str, list[int]] = {}
        for token, text in enumerate(self.language.writes):
            if text:
                found.setdefault(text.lower(), []).append(token)
        return found

    def forms(self, constraint: str, draft: Draft) -> list[int]:
        """The tokens that begin a form of a word: of `stood`, those of stand, stands and standing too."""
        lead = "" if draft.is_spaced else " " if draft.pieces else self.language.lead
        if (lead, constraint) not in self._forms:
            words = inflections(constraint)
            forms = [form for word in words for form in (word, word.capitalize())]
            first = {token for form in forms for token in self.language.encode(f"{lead}{form}")[:1]}
            # A first piece may be another word: " clim" tells "climbs", but " in" does not tell "inking".
            least = min(map(len, words))
            pieces = {token: self.language.writes[token].strip() for token in first}
            told = [token for token, piece in pieces.items() if len(piece) >= least or not is_word(piece)]
            self._forms[lead, constraint] = [token for token in told if len(pieces[token]) > 1]
        return self._forms[lead, constraint]

    def refused(self, draft: Draft) -> list[int]:
        """Tokens that would repeat a word or three tokens, say a constraint before its turn, or say a banned word."""
        word, before = draft.last_words
        found: list[int] = []
        if self.guidance.no_repeat:
            found += self.by_text.get(f" {word}", []) if word else []
            found += draft.repeating
        if self.guidance.turns:
            for later in draft.constraints[draft.copied + 1 :]:
                found += self.forms(later, draft) if later.lower() not in stop_words() else []
        for banned in self.banned:
            found += self.by_text.get(f" {banned.lower()}", [])
        begun = word.lstrip("'\u2019")
        for whole in (*self.banned, *([before] if self.guidance.no_repeat else [])):  # in pieces
            if draft.tail is None and whole.lower().startswith(begun):
                found += self.by_text.get(whole.lower()[len(begun) :], [])
        return found


@cache
def is_word(text: str) -> bool:
    """Is it a word by itself?"""
    from lemminflect import getAllLemmas

    return text.lower() in stop_words() or bool(getAllLemmas(text.lower()))


@cache
def inflections(word: str) -> frozenset[str]:
    """All forms of a word, itself among them, in lower case."""
    from lemminflect import getAllInflections, getAllLemmas

    lemmas = {lemma for found in getAllLemmas(word.lower()).values() for lemma in found}
    forms = {form for lemma in lemmas for found in getAllInflections(lemma).values() for form in found}
    return frozenset({word.lower(), *lemmas, *forms})
