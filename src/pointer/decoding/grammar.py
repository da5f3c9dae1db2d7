"""The constraint language: strings to typed objects and back. One parser for library, command line and server.

    new york            these words, together             "?!"             exactly this, whatever it holds
    ~buy                any form: buys, bought, buying     colour|color     one of these; {new york|nyc} inside a phrase
    ?very               if it fits                         !very  !~buy     never; never in any form
    a; b; c             in this order                      [a; b; c]        in any order
    [a > b; c]          in any order, but a before b       =12  =10-15  =2 sentences      how long
    Dear ___, hi!       a template: insertions go where ___ stands

`str` of what was parsed is a string that parses to the same. docs/constraints.md is the page for users.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import prod
from typing import TypeAlias

from pointer.english import word_forms
from pointer.errors import ConstraintError
from pointer.text import normalise

MOST_FORMS = 256
"""Ways to write one constraint; a phrase of several `~words` may have more than anybody meant."""
BLANK = re.compile(r"_{3,}")
"""Where a template has a gap."""
_CHAIN = re.compile(r"\s+>\s|(?<=\s)>\s")
_MARKED = re.compile(r"[\w\"{~]")
WORDS, SENTENCES = "words", "sentences"


def _few_enough(forms: int) -> None:
    if forms > MOST_FORMS:
        raise ConstraintError(
            f"Expected at most {MOST_FORMS} ways to write a constraint, found {forms:,}.", "Leave fewer words open."
        )


@dataclass(frozen=True)
class Phrase:
    """A word or words, exactly as they stand here."""

    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", " ".join(self.text.split()))
        if not normalise(self.text):
            raise ConstraintError(f"A phrase ({self.text!r}) is empty. Expected a word or words.", "Remove it.")

    def __str__(self) -> str:
        return _quoted(self.text)

    def forms(self) -> tuple[str, ...]:
        """All ways to write it, the plainest first."""
        return (self.text,)


@dataclass(frozen=True)
class AnyForm:
    """A word in any of its inflections.

    >>> AnyForm("buy").forms()
    ('buy', 'bought', 'buying', 'buys')
    """

    word: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[^\W\d_][\w'\u2019-]*", self.word):
            raise ConstraintError(f'"~": expected one word, found {self.word!r}.', "Put ~ before each word by itself.")

    def __str__(self) -> str:
        return f"~{self.word}"

    def forms(self) -> tuple[str, ...]:
        """All ways to write it, the plainest first."""
        return (self.word, *sorted(word_forms(self.word) - {self.word}))


@dataclass(frozen=True)
class AnyOf:
    """One of several."""

    options: tuple["Term", ...]

    def __post_init__(self) -> None:
        flat = [one for option in self.options for one in (option.options if isinstance(option, AnyOf) else [option])]
        object.__setattr__(self, "options", tuple(dict.fromkeys(flat)))
        if len(self.options) < 2:
            raise ConstraintError(f"Expected at least two alternatives, found {len(self.options)}.", "Give more.")
        _few_enough(sum(len(option.forms()) for option in self.options))

    def __str__(self) -> str:
        return "|".join(map(_inside, self.options))

    def forms(self) -> tuple[str, ...]:
        """All ways to write it, the plainest first."""
        return tuple(dict.fromkeys(form for option in self.options for form in option.forms()))


@dataclass(frozen=True)
class Joined:
    """Parts of one phrase, some of which may be written in several ways: `favourite {colour|color}`."""

    parts: tuple["Term", ...]

    def __post_init__(self) -> None:
        merged: list[Term] = []
        flat = [one for part in self.parts for one in (part.parts if isinstance(part, Joined) else [part])]
        for part in flat:
            if isinstance(part, Phrase) and merged and isinstance(merged[-1], Phrase):
                merged[-1] = Phrase(f"{merged[-1].text} {part.text}")
            else:
                merged.append(part)
        object.__setattr__(self, "parts", tuple(merged))
        if len(merged) < 2:
            raise ConstraintError("A joined phrase: expected parts that differ in kind.", "Give the part itself.")
        _few_enough(prod(len(part.forms()) for part in merged))

    def __str__(self) -> str:
        return " ".join(map(_inside, self.parts))

    def forms(self) -> tuple[str, ...]:
        """All ways to write it, the plainest first."""
        ways = [part.forms() for part in self.parts]
        return tuple(dict.fromkeys(" ".join(way) for way in product(*ways)))


Term: TypeAlias = Phrase | AnyForm | AnyOf | Joined


@dataclass(frozen=True)
class Maybe:
    """To be used if it fits."""

    term: Term

    def __str__(self) -> str:
        return f"?{_after_mark(self.term)}"


@dataclass(frozen=True)
class Forbid:
    """Never in the text, whatever its case."""

    term: Term

    def __str__(self) -> str:
        return f"!{_after_mark(self.term)}"


@dataclass(frozen=True)
class Length:
    """How many words, or sentences, from `low` to `high`.

    >>> str(Length.of("10-15")), str(Length(2, 2, "sentences"))
    ('=10-15', '=2 sentences')
    """

    low: int
    high: int
    unit: str = WORDS

    def __post_init__(self) -> None:
        if not 1 <= self.low <= self.high <= 400 or self.unit not in (WORDS, SENTENCES):
            raise ConstraintError(
                f"length: expected 1 to 400, the lower number first, found {self.low}-{self.high} {self.unit}.",
                "Write 12 or 10-15.",
            )

    @classmethod
    def of(cls, text: "str | int", unit: str = WORDS) -> "Length":
        """From `12` or `10-15`."""
        found = re.fullmatch(r"\s*(\d{1,4})(?:\s*(?:-|\u2013|\.\.)\s*(\d{1,4}))?\s*", str(text))
        if found is None:
            name = "length" if unit == WORDS else unit
            raise ConstraintError(f"{name}: expected a number or a range, found {text!r}.", "Write 12 or 10-15.")
        return cls(int(found[1]), int(found[2] or found[1]), unit)

    def __str__(self) -> str:
        size = f"={self.low}" if self.low == self.high else f"={self.low}-{self.high}"
        return size if self.unit == WORDS else f"{size} {self.unit}"

    def misses(self, size: int) -> int:
        """How far a size is from the range; 0 inside."""
        return max(self.low - size, size - self.high, 0)


@dataclass(frozen=True)
class InOrder:
    """Each before the next: `a > b`."""

    parts: tuple["Part", ...]

    def __post_init__(self) -> None:
        flat = [one for part in self.parts for one in (part.parts if isinstance(part, InOrder) else [part])]
        object.__setattr__(self, "parts", tuple(flat))
        _at_least_two(self.parts)

    def __str__(self) -> str:
        return " > ".join(map(str, self.parts))


@dataclass(frozen=True)
class AnyOrder:
    """In the order that the model likes best: `[a; b]`."""

    parts: tuple["Part", ...]

    def __post_init__(self) -> None:
        _at_least_two(self.parts)

    def __str__(self) -> str:
        return f"[{'; '.join(map(str, self.parts))}]"


def _at_least_two(parts: "tuple[Part, ...]") -> None:
    if len(parts) < 2:
        raise ConstraintError(f"A group: expected at least two parts, found {len(parts)}.", "Give the part itself.")


Part: TypeAlias = Phrase | AnyForm | AnyOf | Joined | Maybe | Forbid | Length | InOrder | AnyOrder
Leaf: TypeAlias = "Phrase | AnyForm | AnyOf | Joined | Maybe | Forbid | Length | Template"
"""A part that is no group."""


@dataclass(frozen=True)
class Template:
    """Fixed text with gaps: `Dear ___, thank you for ___.`; only gaps are filled, and each of them is.

    With `everywhere` the text has a gap at every space instead, and none has to be filled.
    """

    text: str
    everywhere: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", " ".join(self.text.split()))
        fixed = BLANK.sub(" ", self.text)
        if not normalise(fixed) or (not self.everywhere and fixed == self.text):
            raise ConstraintError(
                f"A template ({self.text!r}) needs fixed text and a gap.", "Write it as: Dear ___, thank you."
            )

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Constraints:
    """All that was asked for, in order unless `AnyOrder` says otherwise; or a template."""

    parts: tuple[Part | Template, ...]

    def __post_init__(self) -> None:
        if len(self.parts) > 1 and any(isinstance(part, Template) for part in self.parts):
            raise ConstraintError("A template: expected nothing beside it, found more.", "Give it alone.")
        if not self.asked:
            raise ConstraintError("Expected at least one constraint, found none.", "Give a word or a phrase.")

    def __str__(self) -> str:
        return "; ".join(map(str, self.parts))

    @property
    def asked(self) -> tuple[str, ...]:
        """What has to be in the text, one string each."""
        return tuple(str(part) for part in leaves(self.parts) if not isinstance(part, (Forbid, Length)))

    @property
    def is_template(self) -> bool:
        """Is it fixed text with gaps?"""
        return isinstance(self.parts[0], Template)

    @property
    def phrases(self) -> tuple[str, ...] | None:
        """The phrases, where there is nothing but phrases in order; None otherwise."""
        found = [part.text for part in self.parts if isinstance(part, Phrase)]
        return tuple(found) if len(found) == len(self.parts) else None


def leaves(parts: "Sequence[Part | Template]") -> "Iterator[Leaf]":
    """What is in some parts, those in groups included, in the order in which it is read."""
    for part in parts:
        if isinstance(part, (InOrder, AnyOrder)):
            yield from leaves(part.parts)
        else:
            yield part


Given: TypeAlias = "str | Constraints | Template | Sequence[str | Part]"
"""How a caller may say what is asked for."""


_WANTED = 'a list of words and phrases, or one string with ";" between them'


def parse(constraints: Given, separator: str = ";") -> Constraints:
    """What a list says, each entry by itself, or one string with a separator between entries.

    >>> parse("new york; [~buy; ?very > coffee|tea]; !expensive; =10-15").asked
    ('new york', '~buy', '?very', 'coffee|tea')
    """
    if isinstance(constraints, Constraints):
        return constraints
    if isinstance(constraints, Template):
        return Constraints((constraints,))
    if isinstance(constraints, str):
        if _is_template(constraints):
            return Constraints((Template(constraints),))
        return Constraints(tuple(_Reader(constraints, separator).entries("")))
    if not isinstance(constraints, Sequence) or isinstance(constraints, bytes):
        raise ConstraintError(f"Expected {_WANTED}, found {constraints!r:.100}.", "Give a list of strings.")
    return Constraints(tuple(_entry(part, number) for number, part in enumerate(constraints, 1)))


def _entry(part: "str | Part", number: int) -> "Part | Template":
    if isinstance(part, Part):
        return part
    if not isinstance(part, str):
        several = isinstance(part, Sequence)
        raise ConstraintError(
            f"Expected {_WANTED}, found {part!r:.100} as constraint {number}.",
            "For several lists at once use generate_many." if several else "Give a list of strings.",
        )
    if not normalise(part):
        raise _empty(part, number, "")
    if _is_template(part):
        return Template(part)
    return _Reader(part, None, number).only()


def concept_set(concepts: Sequence[str]) -> Constraints:
    """A set of concepts, as those of CommonGen: each in any form, all in any order.

    >>> str(concept_set(["dog", "catch", "frisbee"]))
    '[~dog; ~catch; ~frisbee]'
    """
    terms = [AnyForm(one) if one.isalpha() else Phrase(one) for one in concepts]
    return Constraints((AnyOrder(tuple(terms)),) if len(terms) > 1 else tuple(terms))


def quote(text: str) -> str:
    """A text so that it parses to itself, whatever it holds.

    >>> quote("new york"), quote("~5|6")
    ('new york', '"~5|6"')
    """
    return str(Phrase(text))


@cache
def _quoted(text: str) -> str:
    try:
        is_plain = ";" not in text and not _is_template(text) and _Reader(text, ";").entries("") == [Phrase(text)]
    except ConstraintError:
        is_plain = False
    # Inside groups and braces their ends are read, and so is what chains; a quote would pair with another's.
    is_plain = is_plain and not set(text) & set('|{}[]\\"') and " > " not in f" {text} "
    return text if is_plain else _in_quotes(text)


def _inside(term: Term) -> str:
    """A part of a term: in braces where it would be read as something else."""
    return f"{{{term}}}" if isinstance(term, (AnyOf, Joined)) else str(term)


def _after_mark(term: Term) -> str:
    """A term after `?` or `!`, which are only read before a letter, a digit, a quotation mark, a brace or `~`."""
    shown = str(term)
    return shown if _MARKED.match(shown) else _in_quotes(term.text) if isinstance(term, Phrase) else f"{{{shown}}}"


def _in_quotes(text: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def _is_template(text: str) -> bool:
    return bool(BLANK.search(re.sub(r'"(\\.|[^"\\])*"', "", text)))


def _empty(part: object, number: int, separator: str) -> ConstraintError:
    hint = f'Remove it, or quote a phrase that contains the separator "{separator}".' if separator else "Remove it."
    return ConstraintError(f"constraint {number} ({part!r}) is empty. Expected a word or a phrase.", hint)


class _Reader:
    """Reads one string from left to right."""

    def __init__(self, text: str, separator: str | None, number: int = 1) -> None:
        self.text, self.separator, self.number = text, separator, number
        self.at = 0
        self.groups = 0
        self.braces = 0

    # -- entries

    def entries(self, closing: str) -> list[Part]:
        """The entries up to what closes them; without it, up to the end."""
        found = [self.entry()]
        while self.at < len(self.text) and not (closing and self.sees(closing)):
            if not self._separates():
                raise self.error(f'Expected "{self._separator}" or the end')
            self.at += len(self._separator)
            if not self._separator.strip() and not self.text[self.at :].strip():
                break  # a space at the end separates nothing
            found.append(self.entry())
        return found

    def only(self) -> Part:
        """The one entry of the string."""
        found = self.entry()
        if self.at < len(self.text):
            raise self.error("Expected the end of the constraint")
        return found

    def entry(self) -> Part:
        """One entry, or several that are chained."""
        parts = [self.part()]
        while _CHAIN.match(self.text, self.at):
            self.at = self.text.index(">", self.at) + 2
            parts.append(self.part())
        self.spaces()
        self.number += 1
        return parts[0] if len(parts) == 1 else InOrder(tuple(parts))

    def part(self) -> Part:
        """A group, a length, or a term with what stands before it."""
        self.spaces()
        if group := self.group():
            return group
        ends = rf"(?=\s*($|[;\]]|>\s)|{re.escape(self._separator)})"
        if length := re.match(rf"=(\d+(?:-\d+)?)(?: *(words|sentences))?{ends}", self.text[self.at :]):
            self.at += length.end()
            return Length.of(length[1], length[2] or WORDS)
        mark = re.match(r"[?!]", self.text[self.at :]) if _MARKED.match(self.text, self.at + 1) else None
        self.at += bool(mark)
        term = self.term()
        return term if not mark else Maybe(term) if mark[0] == "?" else Forbid(term)

    def group(self) -> AnyOrder | None:
        """Entries in brackets; brackets round one entry alone are text."""
        if not self.sees("["):
            return None
        start, number = self.at, self.number
        self.at += 1
        self.groups += 1
        parts = self.entries("]")
        self.groups -= 1
        if not self.sees("]"):
            self.at = start
            raise self.error('Expected a "]" for this bracket, found the end', found=False)
        self.at += 1
        if len(parts) > 1:
            return AnyOrder(tuple(parts))
        self.at, self.number = start, number
        return None

    # -- terms

    def term(self) -> Term:
        """Alternatives, or one."""
        start, options = self.at, [self.phrase()]
        while self.sees("|"):
            self.at += 1
            options.append(self.phrase())
        distinct = tuple(dict.fromkeys(options))
        return distinct[0] if len(distinct) == 1 else self.placed(start, lambda: AnyOf(distinct))

    def phrase(self) -> Term:
        """Words, one after the other."""
        parts: list[Term] = []
        self.spaces()
        start = self.at
        while not self.ends():
            parts.append(self.atom())
            self.spaces()
        if not parts:
            before, here = self.text[: self.at].rstrip()[-1:], self.text[self.at : self.at + 1]
            if self.braces or "|" in (before, here):
                raise self.error("Expected a word")
            raise _empty("", self.number, self._separator)
        if all(isinstance(part, Phrase) for part in parts):
            return Phrase(" ".join(part.text for part in parts if isinstance(part, Phrase)))
        return parts[0] if len(parts) == 1 else self.placed(start, lambda: Joined(tuple(parts)))

    def atom(self) -> Term:
        """A quoted text, alternatives in braces, a word in any form, or a plain word."""
        if self.sees('"'):
            return self.quoted()
        if self.sees("{"):
            return self.braced()
        is_form = re.match(r"~(?=[^\W\d_])", self.text[self.at :])
        self.at += bool(is_form)
        start, word = self.at, ""
        while not self.ends() and not self.text[self.at].isspace():
            self.at += self.sees("\\") and self.at + 1 < len(self.text)
            word += self.text[self.at]
            self.at += 1
        return self.placed(start, lambda: AnyForm(word) if is_form else Phrase(word))

    def placed(self, start: int, made: Callable[[], Term]) -> Term:
        """A term; if it cannot be, the error says where."""
        try:
            return made()
        except ConstraintError as error:
            self.at = start
            raise self.error(error.message.rstrip("."), found=False) from None

    def quoted(self) -> Phrase:
        """All up to the next quotation mark."""
        found = re.match(r'"((?:\\.|[^"\\])*)"', self.text[self.at :])
        if found is None or not normalise(found[1]):
            raise self.error('Expected words and a closing "', found=False)
        self.at += found.end()
        return Phrase(re.sub(r"\\(.)", r"\1", found[1]))

    def braced(self) -> Term:
        """Alternatives inside a phrase."""
        start = self.at
        self.at += 1
        self.braces += 1
        found = self.term()
        self.braces -= 1
        if not self.sees("}"):
            self.at = start
            raise self.error('Expected a "}" for this brace', found=False)
        self.at += 1
        return found

    # -- places

    @property
    def _separator(self) -> str:
        return self.separator if self.separator and not self.groups else ";"

    def _separates(self) -> bool:
        return (self.separator is not None or bool(self.groups)) and self.sees(self._separator)

    def sees(self, text: str) -> bool:
        """Is this what comes next?"""
        return self.text.startswith(text, self.at)

    def ends(self) -> bool:
        """Does a phrase end here?"""
        is_chain = _CHAIN.match(self.text, self.at)
        is_closed = (self.groups and self.sees("]")) or (self.braces and self.sees("}"))
        is_split = self._separates() and not self.braces
        return self.at >= len(self.text) or bool(is_chain or is_closed or is_split) or self.sees("|")

    def spaces(self) -> None:
        """Skip white space, unless it separates."""
        while self.at < len(self.text) and self.text[self.at].isspace() and not (self._separates() and not self.braces):
            self.at += 1

    def error(self, expected: str, found: bool = True) -> ConstraintError:
        """One sentence, and a caret under the place."""
        here = repr(self.text[self.at]) if self.at < len(self.text) else "the end"
        start = max(0, self.at - 60)
        line = self.text[start : start + 100].replace("\n", " ").replace("\t", " ")
        message = f"{expected}{f', found {here}' if found else ''}:\n  {line}\n  {' ' * (self.at - start)}^\n"
        return ConstraintError(message, 'Quote what is meant as text: "a|b".')
