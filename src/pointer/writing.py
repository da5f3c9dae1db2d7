"""Writing: tokens become text with the spaces and capitals that people use, and every constraint stays what it was."""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pointer.english import (
    ABBREVIATIONS,
    ADDRESS,
    CLIPPED,
    HALF_WORDS,
    NEVER_AFTER_AN_ARTICLE,
    NOT_ONLY_ABBREVIATIONS,
    OPENS_CLAUSE,
    OPENS_SENTENCE,
    SAYING,
    SHORT_FORMS,
    SPOKEN_WITH_A_CONSONANT,
    SPOKEN_WITH_A_VOWEL,
)


class Unit(NamedTuple):
    """What stands between two gaps: a word, a punctuation mark, or a whole constraint."""

    text: str
    """A word with its pieces joined, a single punctuation mark, or a constraint exactly as it was given."""
    constraint: int | None = None
    """Which constraint it is; None for what was inserted."""
    glue: tuple[bool, bool] | None = None
    """Of a stretch of a template: does it stand without a space after what is before it, and before what follows it?
    Its capitals are as they were given."""


class _Bond(NamedTuple):
    """Does a mark stand without a space after what is left of it, and before what is right of it?"""

    left: bool
    right: bool


_ALONE, _LEFT, _RIGHT, _BOTH = _Bond(False, False), _Bond(True, False), _Bond(False, True), _Bond(True, True)


def write(units: Sequence[Unit], casing: Mapping[str, Mapping[str, str]]) -> tuple[str, list[tuple[int, int]]]:
    """The text as people write it, and the span of every constraint in it.

    A constraint comes back as it was given, but for the first letter of an all-lower-case one at a sentence start, and
    nothing is glued to it that makes it another word. `casing` is the table of `Casing.table`; it may be empty.

    >>> words = "i don ' t think a well - known chef costs $ 3 . 5 ,".split()
    >>> units = [*map(Unit, words), Unit("eBay", 0), *map(Unit, "' s ( old ) boss said .".split())]
    >>> write(units, {})
    ("I don't think a well-known chef costs $3.5, eBay's (old) boss said.", [(44, 48)])
    """
    bonds = _bonds(units)
    written, spans = "", []
    for i, text in enumerate(_recased(units, bonds, casing)):
        if i and not _touching(units, bonds, i):
            written += " "
        if units[i].constraint is not None:
            spans.append((len(written), len(written) + len(text)))
        written += text
    return written, spans


_SPACED = re.compile(r" [.,?!](?= |$)")
"""A mark with a space before it: a text that was cut into words and marks."""


def as_written(text: str) -> str:
    """A text whose marks have spaces round them, as people write it; any other as it is.

    >>> as_written("I don ' t know .")
    "I don't know."
    """
    return write([*map(Unit, text.split())], {})[0] if _SPACED.search(text) else text


def _is_mark(unit: Unit) -> bool:
    return unit.constraint is None and len(unit.text) == 1 and not unit.text.isalnum()


def _word(units: Sequence[Unit], i: int) -> str:
    """The inserted word at `i`; empty where there is none, for the rules that may not change a constraint."""
    inside = 0 <= i < len(units) and units[i].constraint is None and not _is_mark(units[i])
    return units[i].text if inside else ""


def _mark(units: Sequence[Unit], i: int) -> str:
    return units[i].text if 0 <= i < len(units) and _is_mark(units[i]) else ""


# Spaces. Every mark gets its bonds from itself and its neighbours; then the constraints have the last word.

_MAY_FOLLOW_A_CONSTRAINT = frozenset('.,!?;:)]}"')
_MAY_PRECEDE_A_CONSTRAINT = frozenset('([{"')


def _touching(units: Sequence[Unit], bonds: Sequence[_Bond], i: int) -> bool:
    """Is there no space between the units `i - 1` and `i`?"""
    before, after = units[i - 1], units[i]
    if before.glue or after.glue:
        return bool((before.glue and before.glue[1]) or (after.glue and after.glue[0]))
    if not (bonds[i - 1].right or bonds[i].left):
        return False
    if before.constraint is not None:
        is_whole = after.text == "'" and _may_end(before.text, _word(units, i + 1))
        may_follow = is_whole or after.text in _MAY_FOLLOW_A_CONSTRAINT
        return may_follow and _bears(before.text, before.text[-1], after.text)
    if after.constraint is not None:
        return before.text in _MAY_PRECEDE_A_CONSTRAINT and _bears(after.text, after.text[0], before.text)
    return True


def _may_end(constraint: str, ending: str) -> bool:
    """May an apostrophe and this ending be glued to a constraint: is it a possessive, or completed?"""
    return ending == "s" or (ending == "t" and constraint.lower() in HALF_WORDS)


def _bears(constraint: str, edge: str, mark: str) -> bool:
    """May a mark touch this edge? Not where the two could be read as one: `.` and `..`, `:` and `)`, an accent."""
    # So is the category of emoji and the like, which stand for words.
    is_only_marks = not any(c.isalnum() or unicodedata.category(c) == "So" for c in constraint)
    return edge.isalnum() or not (is_only_marks or edge == mark or unicodedata.category(edge)[0] in "MCZ")


def _bonds(units: Sequence[Unit]) -> list[_Bond]:
    bonds: list[_Bond] = []
    quoted: set[str] = set()  # the kinds of quotation marks that are open
    for i, unit in enumerate(units):
        if not _is_mark(unit):
            bonds.append(_ALONE)
        elif unit.text in _DOUBLED and _mark(units, i - 1) == unit.text:
            bonds.append(_Bond(True, bonds[-1].right))
        elif unit.text == "'":
            bonds.append(_apostrophe(units, i) or _quote(units, i, quoted))
        elif unit.text == '"':
            bonds.append(_quote(units, i, quoted))
        elif unit.text in _RULES:
            bonds.append(_RULES[unit.text](units, i))
        else:
            bonds.append(_FIXED.get(unit.text, _ALONE))
    return bonds


_DOUBLED = frozenset('"-*=<>')
"""Marks that mean one thing when they stand twice: a dash, a line of stars."""
_FIXED = {
    **dict.fromkeys("!?;)]}%\u00b0\u2026", _LEFT),
    **dict.fromkeys("([{$#@~", _RIGHT),
    "_": _BOTH,
}


def _quote(units: Sequence[Unit], i: int, quoted: set[str]) -> _Bond:
    """Quotation marks open and close by turns; one that nothing closes opens what goes on, or is no quotation mark."""
    mark, before = units[i].text, _word(units, i - 1)
    if mark in quoted:
        quoted.remove(mark)
        return _LEFT
    is_closed = any(_mark(units, j) == mark and not _apostrophe(units, j) for j in range(i + 1, len(units)))
    if not is_closed and (all(map(_is_mark, units[i + 1 :])) or before.isdecimal()):  # the end; 14 inches
        return _LEFT
    if not is_closed and _mark(units, i - 1) and any(SAYING.fullmatch(_word(units, j)) for j in range(i + 1, i + 5)):
        return _LEFT  # the end of a speech that began earlier
    if mark == "'" and before and (before.endswith("s") or not is_closed):
        return _LEFT if before.endswith(("s", "in")) else _BOTH  # the chefs' choice, nothin' else, the po'boy
    if mark == "'" and not is_closed:
        return _ALONE
    quoted.add(mark)
    return _RIGHT


def _apostrophe(units: Sequence[Unit], i: int) -> _Bond | None:
    """The bonds of what is an apostrophe for certain; None if it may be a quotation mark."""
    before, after = _word(units, i - 1), _word(units, i + 1)
    if _mark(units, i) != "'" or not after:
        return None
    if i and units[i - 1].constraint is not None:
        return _BOTH if _may_end(units[i - 1].text, after) else _RIGHT if after in SHORT_FORMS or after == "t" else None
    if before and (after in SHORT_FORMS or (after == "t" and before.endswith("n"))):
        return _BOTH
    if after == "s" and _mark(units, i - 1) in {'"', ".", ")"}:
        return _BOTH
    if before in {"o", "d", "l", "y"} and after.isalpha():
        return _BOTH
    return _RIGHT if CLIPPED.fullmatch(after) else None


def _dot(units: Sequence[Unit], i: int) -> _Bond:
    before, after = _word(units, i - 1), _word(units, i + 1)
    if (before.isdecimal() or _mark(units, i - 1) == "$") and re.fullmatch(r"\d+[a-z]{0,2}", after):
        return _BOTH
    if len(before) == len(after) == 1 and before.isalpha() and after.isalpha() and _mark(units, i + 2) == ".":
        return _BOTH
    return _BOTH if before and after in {"com", "org", "net"} else _LEFT


def _comma(units: Sequence[Unit], i: int) -> _Bond:
    is_thousands = re.fullmatch(r"\d{1,3}", _word(units, i - 1)) and re.fullmatch(r"\d{3}", _word(units, i + 1))
    return _BOTH if is_thousands else _LEFT


def _colon(units: Sequence[Unit], i: int) -> _Bond:
    if _word(units, i - 1).isdecimal() and re.fullmatch(r"\d\d([ap]m)?", _word(units, i + 1)):
        return _BOTH
    return _RIGHT if _mark(units, i + 1) in {"(", ")"} else _LEFT  # a smile has a space before it


def _hyphen(units: Sequence[Unit], i: int) -> _Bond:
    """A hyphen joins words; before a word that opens a clause it is a dash, unless hyphens go on (out-of-the-way)."""
    before, after = _word(units, i - 1), _word(units, i + 1)
    if after in {"and", "or"} and before and _mark(units, i + 3) == "-":
        return _LEFT  # two- and four-door cars
    goes_on = before == after or "-" in (_mark(units, i - 2), _mark(units, i + 2))
    return _ALONE if OPENS_CLAUSE.fullmatch(after) and not goes_on else _joint(units, i)


def _slash(units: Sequence[Unit], i: int) -> _Bond:
    return _LEFT if _word(units, i - 1) == "w" else _joint(units, i)


def _joint(units: Sequence[Unit], i: int) -> _Bond:
    return _BOTH if _word(units, i - 1) and _word(units, i + 1) else _ALONE


def _ampersand(units: Sequence[Unit], i: int) -> _Bond:
    is_name = 1 <= len(_word(units, i - 1)) <= 2 and 1 <= len(_word(units, i + 1)) <= 2
    return _BOTH if is_name else _ALONE


def _plus(units: Sequence[Unit], i: int) -> _Bond:
    return _LEFT if _word(units, i - 1).isdecimal() and not _word(units, i + 1).isdecimal() else _ALONE


_RULES: dict[str, Callable[[Sequence[Unit], int], _Bond]] = {
    ".": _dot,
    ",": _comma,
    ":": _colon,
    "-": _hyphen,
    "\u2013": _joint,
    "/": _slash,
    "&": _ampersand,
    "+": _plus,
}


# Capitals: names by the table, then sentence starts.


def _recased(units: Sequence[Unit], bonds: Sequence[_Bond], casing: Mapping[str, Mapping[str, str]]) -> list[str]:
    texts = _named(units, bonds, casing)
    texts = [_article(texts, i) if text in {"a", "an"} and _word(units, i) else text for i, text in enumerate(texts)]
    starting = True
    for i, unit in enumerate(units):
        if not _is_mark(unit):
            if starting and not unit.glue:
                texts[i] = _capitalised(texts[i])
            starting = unit.constraint is not None and _closes(unit.text)
        elif unit.text in ".!?":
            starting = _starts_next(units, bonds, i)
        elif unit.text == '"' and bonds[i] == _RIGHT and _mark(units, i - 1) in {",", ":"}:
            starting = True  # She said, "Yes."
        else:
            starting = starting and unit.text in OPENS_SENTENCE
    return texts


def _named(units: Sequence[Unit], bonds: Sequence[_Bond], casing: Mapping[str, Mapping[str, str]]) -> list[str]:
    words, pairs = casing.get("words", {}), casing.get("pairs", {})
    texts = [unit.text for unit in units]
    for i in range(len(units)):
        word = _word(units, i)
        dotted = _dotted(units, bonds, i)
        if dotted or word == "i":
            texts[i] = word if dotted in {"am", "pm", "eg", "ie"} else word.upper()
        elif word and not _is_part(units, bonds, i, words):
            texts[i] = words.get(word, word)
    for i in range(len(units) - 1):
        pair = pairs.get(f"{_word(units, i)} {_word(units, i + 1)}")
        if pair:
            texts[i], texts[i + 1] = pair.split(" ")
    return texts


def _dotted(units: Sequence[Unit], bonds: Sequence[_Bond], i: int) -> str:
    """The letter at `i` and a neighbour that a dot joins it to, as in `L.A.` and `a.m.`; empty if there is none."""
    letter = _word(units, i)
    if len(letter) == 1 and _mark(units, i - 1) == "." and bonds[i - 1] == _BOTH:
        return _word(units, i - 2) + letter
    if len(letter) == 1 and _mark(units, i + 1) == "." and bonds[i + 1] == _BOTH:
        return letter + _word(units, i + 2)
    return ""


def _is_part(units: Sequence[Unit], bonds: Sequence[_Bond], i: int, words: Mapping[str, str]) -> bool:
    """Is a word what an apostrophe cut off, and so no name itself: the `t` of `don't`, the `o` of `o'clock`?"""
    if _mark(units, i - 1) == "'" and bonds[i - 1].right:
        is_cut = bonds[i - 1].left and len(_word(units, i - 2)) != 1
        return is_cut or units[i].text in {*SHORT_FORMS, "t"}
    return _mark(units, i + 1) == "'" and len(units[i].text) == 1 and _word(units, i + 2) not in words


def _capitalised(text: str) -> str:
    """With a capital first letter, unless it has capitals of its own, is an address, or has no plain counterpart.

    >>> [_capitalised(text) for text in ("new york", "iPhone", "www.nasa.gov", "https://nasa.gov", "me@nasa.gov")]
    ['New york', 'iPhone', 'www.nasa.gov', 'https://nasa.gov', 'me@nasa.gov']
    """
    first = text[0].upper()
    is_plain = text == text.lower() and len(first) == 1 and first.lower() == text[0] and not ADDRESS.match(text)
    return first + text[1:] if is_plain else text


# Articles. What follows one may have come later, so it is written by what follows it in the end.


def _article(texts: Sequence[str], i: int) -> str:
    """The inserted `a` or `an` at `i` as the word after it wants it; unchanged where that is hard to tell."""
    after = re.match(r"\w+", texts[i + 1]) if i + 1 < len(texts) else None
    if after is None:
        return texts[i]
    word = after[0].lower()
    if NEVER_AFTER_AN_ARTICLE.fullmatch(word) or (after[0].isupper() and len(word) > 1):
        return texts[i]  # who can tell whether NASA is spelt or spoken
    if len(word) == 1 and word.isalpha():
        return "an" if word in "aefhilmnorsx" else "a"  # a U.S. ship, an F
    has_vowel = SPOKEN_WITH_A_VOWEL.match(word) and not SPOKEN_WITH_A_CONSONANT.match(word)
    return "an" if has_vowel else "a"


def _starts_next(units: Sequence[Unit], bonds: Sequence[_Bond], i: int) -> bool:
    """Does a sentence start after the mark `i`, one of `.!?`?"""
    if units[i].text != ".":
        return True
    if bonds[i].right or "." in (_mark(units, i - 1), _mark(units, i + 1)):
        return False  # inside a number or initials; dots that trail off
    if not i or _mark(units, i - 2) == "'":  # the t of don't is no initial
        return True
    word = units[i - 1].text.split()[-1].lower()
    return word in NOT_ONLY_ABBREVIATIONS or word.isdecimal() or not ABBREVIATIONS.fullmatch(word)


def _closes(constraint: str) -> bool:
    """Does a constraint end a sentence? A phrase or a mark alone may; a name may have a mark of its own (Yahoo!)."""
    return constraint[-1] in ".!?" and (" " in constraint or not any(c.isalnum() for c in constraint))


# ---------------------------------------------------------------------------------------------------------------------
# Reading: is every constraint there?


def missing_constraints(text: str, constraints: Sequence[str]) -> list[str]:
    """The constraints that are not in a text, as whole words, in order and as often as asked; case does not matter.

    Spaces round marks do not matter either (`it ' s` holds `it's`). Where order leaves a choice, it names the fewest.

    >>> missing_constraints("Great food, friendly bartenders and cheap drinks.", ["great", "bar", "food", "great"])
    ['bar', 'great']
    """
    spans = constraint_spans(text, constraints)
    return [constraint for constraint, span in zip(constraints, spans, strict=True) if span is None]


def constraint_spans(text: str, constraints: Sequence[str]) -> list[tuple[int, int] | None]:
    """Where each constraint stands in a text, in order; None for the fewest that are missing.

    >>> constraint_spans("Great food, friendly bartenders.", ["great", "bar", "food"])
    [(0, 5), None, (6, 10)]
    """
    reached: list[tuple[int, dict[int, tuple[int, int]]]] = [(0, {})]  # for every count: the earliest end, the spans
    for number, constraint in enumerate(constraints):
        whole = _whole(constraint)
        for count, (end, found) in reversed(list(enumerate(reached))):
            place = whole.search(text, end)
            if place and count + 1 == len(reached):
                reached.append((place.end(), found | {number: place.span()}))
            elif place and place.end() < reached[count + 1][0]:
                reached[count + 1] = (place.end(), found | {number: place.span()})
    return [reached[-1][1].get(number) for number in range(len(constraints))]


def unplaced_constraints(text: str, constraints: Sequence[str]) -> list[str]:
    """The constraints that a text lacks wherever they stand, but as often as asked.

    >>> unplaced_constraints("Rice and beans, then more rice.", ["beans", "rice", "rice", "rice"])
    ['rice']
    """
    left = {word.lower(): len(_whole(word).findall(text)) for word in constraints}
    missing = []
    for constraint in constraints:
        left[constraint.lower()] -= 1
        if left[constraint.lower()] < 0:
            missing.append(constraint)
    return missing


def _whole(constraint: str) -> re.Pattern[str]:
    """What finds a constraint where no letter, digit, hyphen or apostrophe makes it a part of another word."""
    pieces = re.findall(r"\w+|[^\w\s]", constraint)
    pattern = "".join(
        (r"\s+" if i and piece[0].isalnum() and pieces[i - 1][-1].isalnum() else r"\s*" if i else "") + re.escape(piece)
        for i, piece in enumerate(pieces)
    )
    before = r"(?<![\w-])(?<!\w')" + (r"(?<!\d[.,:])" if constraint[:1].isdigit() else "")
    endings = r"(s|t)\b" if constraint.lower() in HALF_WORDS else r"s\b"
    after = rf"(?![\w-])(?!'(?!{endings})\w)" + (r"(?![.,:]\d)" if constraint[-1:].isdigit() else "")
    return re.compile(before + pattern + after, re.IGNORECASE)
