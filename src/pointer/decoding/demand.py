"""What a text has to be: constraints and options brought together, as the engines need them. Decoding starts from here.

An engine never sees the language, only items: the forms each may have, which of them come before it, and whether it
may be left out. What is forbidden and how long a text should be is asked of the text as it is written, here for all.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product

from pointer.decoding.grammar import (
    BLANK,
    SENTENCES,
    WORDS,
    AnyOrder,
    Constraints,
    Forbid,
    InOrder,
    Length,
    Maybe,
    Part,
    Phrase,
    Template,
    Term,
    leaves,
    parse,
)
from pointer.decoding.options import Options
from pointer.english import inflections
from pointer.errors import ConstraintError
from pointer.prepare.yake import stop_words
from pointer.text import normalise, split_sentences

_PIECE = re.compile(r"\w(?:\S*\w)?|[^\w\s]+")
"""What a sentence is made of, for insertions between: words with all that is inside them, and marks."""

_WORD = re.compile(r"[^\W_]\w*(?:['\u2019.-]\w+|(?<=\d)[,:]\d+)*")

MOST_FORBIDDEN = 5_000
"""Forms of all forbidden phrases together: a text is searched for each of them."""


@dataclass(frozen=True)
class Item:
    """One thing that has to be in the text."""

    asked: str
    """As it was asked for."""
    forms: tuple[str, ...]
    """The ways in which it may be written; any of them will do."""
    after: frozenset[int] = frozenset()
    """The items that come before it."""
    optional: bool = False
    """May it be left out?"""
    touches: tuple[bool, bool] = (False, False)
    """Does it stand without a space after what is before it, and before what is after it? Only in templates."""
    after_gap: bool = False
    """Must something be inserted before it?"""

    @cached_property
    def shortest(self) -> str:
        """The form with the fewest words."""
        return min(self.forms, key=self.words)

    def least_words(self) -> int:
        """The words that it adds to a text at least."""
        return self.words(self.shortest)

    def words(self, form: str) -> int:
        """The words that it adds to a text in one of its forms."""
        return count_words(form) - (self.touches[0] and form[0].isalnum())


@dataclass(frozen=True)
class Demand:
    """All that a text has to be."""

    items: tuple[Item, ...]
    forbidden: tuple[str, ...] = ()
    """What is nowhere in the text, whatever its case."""
    avoided: frozenset[str] = frozenset()
    """Words that are not inserted, so that a text differs from others; constraints may have them."""
    words: Length | None = None
    sentences: Length | None = None
    lock_start: bool = False
    lock_end: bool = False
    ends_with_gap: bool = False
    """Must something be inserted at the end?"""
    verbatim: bool = False
    """Are capitals as they were given?"""

    @property
    def asked(self) -> tuple[str, ...]:
        """The items as they were asked for."""
        return tuple(item.asked for item in self.items)

    @property
    def constraints(self) -> tuple[str, ...]:
        """The items as X^0 has them."""
        return tuple(item.shortest for item in self.items)

    @property
    def glue(self) -> tuple[tuple[bool, bool], ...] | None:
        """Of every stretch of a template, where it touches its neighbours."""
        return tuple(item.touches for item in self.items) if self.verbatim else None

    @property
    def is_settled(self) -> bool:
        """Is there nothing to choose: every item in one form, none optional, all in one order?"""
        in_order = all(item.after == frozenset(range(number)) for number, item in enumerate(self.items))
        return in_order and not any(item.optional or len(item.forms) > 1 for item in self.items)

    @property
    def has_length(self) -> bool:
        """Is a number of words or sentences asked for?"""
        return self.words is not None or self.sentences is not None

    @property
    def is_tight(self) -> bool:
        """Must the text be something that the model would hardly write by itself?"""
        return self.has_length or self.verbatim

    def settled(self, order: Sequence[int], forms: Sequence[str]) -> "Demand":
        """With some of the items in one order, each in one form."""
        items = [
            replace(self.items[number], forms=(form,), after=frozenset(range(place)), optional=False)
            for place, (number, form) in enumerate(zip(order, forms, strict=True))
        ]
        return replace(self, items=tuple(items))

    def waiting(self, done: Sequence[int]) -> list[int]:
        """The items that have to come still."""
        return [i for i, item in enumerate(self.items) if i not in done and not item.optional]

    def available(self, done: Sequence[int]) -> list[int]:
        """The items that may come next."""
        passed = frozenset(done).union(*(self.items[i].after for i in done))
        must = frozenset(self.waiting(done))
        return [i for i, item in enumerate(self.items) if i not in passed and not item.after & must]

    # -- what the written text is asked

    @property
    def watches(self) -> bool:
        """Has every insertion to be looked at?"""
        return bool(self.forbidden or self.avoided or self.words or self.sentences)

    @cached_property
    def _patterns(self) -> list[re.Pattern[str]]:
        return [_anywhere(phrase) for phrase in self.forbidden]

    @cached_property
    def suspects(self) -> frozenset[str]:
        """The words that something forbidden or avoided has in it, in lower case."""
        return self.avoided.union(*(re.findall(r"\w+|[^\w\s]", phrase) for phrase in self.forbidden))

    @cached_property
    def reach(self) -> int:
        """The characters at the end of a text among which a forbidden phrase can have been completed."""
        return 3 * max(map(len, self.forbidden), default=0) + 40

    def forbids(self, text: str) -> bool:
        """Is something forbidden in a text?"""
        if not self.forbidden:
            return False
        plain = normalise(text)
        return any(pattern.search(plain) for pattern in self._patterns)

    def misses(self, text: str) -> int:
        """How far a text is from the length it should have; 0 if it has it."""
        words = self.words.misses(count_words(text)) if self.words else 0
        return words + (100 * self.sentences.misses(count_sentences(text)) if self.sentences else 0)


def _anywhere(phrase: str) -> re.Pattern[str]:
    """What finds a forbidden phrase, in any case, alone or with a hyphen or an apostrophe beside it."""
    pieces = re.findall(r"\w+|[^\w\s]", phrase)
    pattern = "".join(
        (r"\s+" if i and piece[0].isalnum() and pieces[i - 1][-1].isalnum() else r"\s*" if i else "") + re.escape(piece)
        for i, piece in enumerate(pieces)
    )
    return re.compile(rf"(?<!\w){pattern}(?!\w)", re.IGNORECASE)


def count_words(text: str) -> int:
    """The words of a text, numbers included; what an apostrophe, a hyphen or a dot holds together is one.

    >>> count_words("Well - it's 3.50, really! At 10:30 a.m. in a well-known U.S. town,or not")
    14
    """
    return len(_WORD.findall(text))


def count_sentences(text: str) -> int:
    """The sentences of a text."""
    return len(split_sentences(text))


def content_words(text: str, spans: Sequence[tuple[int, int]]) -> frozenset[str]:
    """The words outside these spans that are no stop words, in lower case.

    >>> sorted(content_words("The dog chased it to the small park.", [(4, 7)]))
    ['chased', 'park', 'small']
    """
    ends = [0, *(end for _, end in spans)]
    starts = [*(start for start, _ in spans), len(text)]
    outside = " ".join(text[a:b] for a, b in zip(ends, starts, strict=True))
    return frozenset(word for word in re.findall(r"\w+", outside.lower()) if word not in stop_words())


# ---------------------------------------------------------------------------------------------------------------------
# From the language and the options


def demand_of(constraints: Constraints, options: Options) -> Demand:
    """What constraints and options ask for together; what contradicts itself is refused."""
    flat = list(leaves(constraints.parts))
    forbidden = _forbidden([part for part in flat if isinstance(part, Forbid)], options)
    lengths = {part.unit: part for part in flat if isinstance(part, Length)}
    if len(lengths) < sum(isinstance(part, Length) for part in flat):
        raise ConstraintError("Expected one length in words and one in sentences, found more.", "Keep one.")
    if options.length is not None:
        lengths.setdefault(WORDS, Length.of(options.length))
    if options.sentences is not None:
        lengths.setdefault(SENTENCES, Length.of(options.sentences, SENTENCES))
    [first, *_] = constraints.parts
    if isinstance(first, Template):
        found = _of_template(first)
        if replace(found, forbidden=forbidden).forbids(BLANK.sub(" ", first.text)):
            raise ConstraintError("forbid: expected nothing that the template has, found some.", "Change one of them.")
    else:
        items = _items(constraints.parts, options.unordered)
        found = Demand(items, lock_start=options.lock_start, lock_end=options.lock_end)
    found = replace(found, words=lengths.get(WORDS), sentences=lengths.get(SENTENCES))
    return _without(found, forbidden)


def _items(parts: Sequence[Part | Template], in_any_order: bool) -> tuple[Item, ...]:
    """The items of some parts, numbered as they are read, each with those that come before it."""
    items: list[Item] = []

    def add_all(parts: Sequence[Part | Template], is_free: bool, before: frozenset[int]) -> frozenset[int]:
        mine: frozenset[int] = frozenset()
        for part in parts:
            mine |= add(part, before if is_free else before | mine)
        return mine

    def add(part: Part | Template, before: frozenset[int]) -> frozenset[int]:
        """Add what is in a part; the numbers of its items."""
        if isinstance(part, (InOrder, AnyOrder)):
            return add_all(part.parts, isinstance(part, AnyOrder), before)
        if isinstance(part, (Forbid, Length, Template)):
            return frozenset()
        term: Term = part.term if isinstance(part, Maybe) else part
        asked = part.text if isinstance(part, Phrase) else str(part)
        items.append(Item(asked, term.forms(), before, isinstance(part, Maybe)))
        return frozenset([len(items) - 1])

    add_all(parts, in_any_order, frozenset())
    return tuple(items)


def _of_template(template: Template) -> Demand:
    """Fixed text with gaps: every stretch of it is an item, and nothing goes in but where a gap is."""
    text = template.text
    if template.everywhere:
        return _of_sentence(text)
    ends = [0, *(gap.end() for gap in BLANK.finditer(text))]
    starts = [*(gap.start() for gap in BLANK.finditer(text)), len(text)]
    stretches = [text[a:b] for a, b in zip(ends, starts, strict=True)]
    items: list[Item] = []
    for place, stretch in enumerate(stretches):
        if stretch.strip():
            touches = place > 0 and stretch[0] != " ", place + 1 < len(stretches) and stretch[-1] != " "
            before = frozenset(range(len(items)))
            items.append(Item(stretch.strip(), (stretch.strip(),), before, touches=touches, after_gap=place > 0))
    is_open = not stretches[0].strip(), not stretches[-1].strip()
    return Demand(
        tuple(items), lock_start=not is_open[0], lock_end=not is_open[1], ends_with_gap=is_open[1], verbatim=True
    )


def _of_sentence(text: str) -> Demand:
    """A sentence whose every word and mark is an item; what is glued together stays so where nothing comes between."""
    pieces = list(_PIECE.finditer(text))
    items = []
    for place, piece in enumerate(pieces):
        is_mark = not any(map(str.isalnum, piece[0]))
        touches_left = place > 0 and is_mark and pieces[place - 1].end() == piece.start()
        touches_right = is_mark and text[piece.end() : piece.end() + 1].isalnum()
        before = frozenset(range(place))
        items.append(Item(piece[0], (piece[0],), before, touches=(touches_left, touches_right)))
    ends = pieces[-1][0][-1] in ".!?" if pieces else True
    return Demand(tuple(items), lock_start=True, lock_end=ends, verbatim=True)


def _forbidden(parts: Sequence[Forbid], options: Options) -> tuple[str, ...]:
    terms = [part.term for part in parts]
    for text in options.forbid:
        [part, *more] = parse([text]).parts
        if more or isinstance(part, (Maybe, Forbid, Length, InOrder, AnyOrder, Template)):
            raise ConstraintError(f"forbid: expected a word or a phrase, found {text!r}.", "Forbid each by itself.")
        terms.append(part)
    found = dict.fromkeys(normalise(form).lower() for term in terms for form in term.forms())
    if options.forbid_forms:
        found = dict.fromkeys(form for phrase in found for form in _all_forms(phrase))
    if len(found) > MOST_FORBIDDEN:
        raise ConstraintError(f"forbid: expected at most {MOST_FORBIDDEN} forms, found {len(found):,}.", "Forbid less.")
    for phrase in found:
        if not any(map(str.isalnum, phrase)):
            raise ConstraintError(f"forbid: expected words, found {phrase!r}.", "Marks cannot be forbidden.")
    return tuple(found)


@cache
def _all_forms(phrase: str) -> list[str]:
    """A phrase with each of its words in any form."""
    ways = [sorted(inflections(word)) for word in phrase.split()[:3]]
    rest = phrase.split()[3:]
    return [" ".join([*way, *rest]) for way in product(*ways)]


def _without(demand: Demand, forbidden: tuple[str, ...]) -> Demand:
    """With what is forbidden, and without the forms that have it in them."""
    demand = replace(demand, forbidden=forbidden)
    if not forbidden:
        return demand
    kept = [replace(item, forms=tuple(f for f in item.forms if not demand.forbids(f))) for item in demand.items]
    for item, left in zip(demand.items, kept, strict=True):
        if not left.forms and not item.optional:
            raise ConstraintError(
                f'forbid: expected nothing that the constraints need, found "{item.asked}" forbidden.',
                "Take it out of one of the two.",
            )
    numbers = [i for i, item in enumerate(kept) if item.forms]
    renumbered = {old: new for new, old in enumerate(numbers)}
    items = [
        replace(kept[i], after=frozenset(renumbered[j] for j in kept[i].after if j in renumbered)) for i in numbers
    ]
    return replace(demand, items=tuple(items))
