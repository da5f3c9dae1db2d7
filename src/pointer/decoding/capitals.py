"""How a causal model is told a constraint, and may copy it: as people write it, not as somebody typed it.

A model that is told `norway` and `didn` writes so; told `Norway` and `didn't`, it writes as it has read.
"""

import re
from functools import cache, lru_cache

from pointer.checkpoint import casing_of, embedded_folder
from pointer.english import HALF_WORDS, NOT, is_word

WITNESSES = ("wiki", "news")
"""The embedded models whose corpora tell what is a name: an encyclopedia writes `Mark`, a newspaper `Labour`."""
SEEN = 4096
"""Constraints that are remembered; a server sees any number."""


@lru_cache(SEEN)
def cased(constraint: str) -> list[str]:
    """How a constraint may be written: as it was given, and with capitals if it has none.

    >>> cased("blue lake"), cased("nhs"), cased("iPhone")
    (['blue lake', 'Blue lake', 'Blue Lake'], ['nhs', 'NHS'], ['iPhone'])
    """
    if constraint != constraint.lower():
        return [constraint]
    name = named(constraint)
    titled = re.sub(r"(?<![\w'\u2019])\w", lambda found: found[0].upper(), constraint) if name == constraint else name
    ways = dict.fromkeys([constraint, name[:1].upper() + name[1:], titled])
    return [form for form in ways if form.lower() == constraint]  # "ß" has no capital of its own


@lru_cache(SEEN)
def named(constraint: str) -> str:
    """With the capitals of words that are names and nothing else; as it was given if it has any.

    >>> named("norway"), named("a new york hotel"), named("turkey"), named("NATO allies")
    ('Norway', 'a New York hotel', 'turkey', 'NATO allies')
    """
    if constraint != constraint.lower():
        return constraint
    words = constraint.split(" ")
    pairs = {at: _names("pairs").get(" ".join(words[at : at + 2]), "") for at in range(len(words) - 1)}
    for at, word in enumerate(words):
        if not is_word(word):  # what the dictionary has may be meant: turkey, march
            words[at] = _names("words").get(word, word)
    for at, pair in pairs.items():
        words[at : at + 2] = pair.split() or words[at : at + 2]
    return " ".join(words)


def as_told(constraint: str, completes: bool) -> str:
    """How a model is told a constraint; `completes`: a half word as the word that it is of.

    >>> as_told("norway", True), as_told("didn", True), as_told("didn", False), as_told("Don", True)
    ('Norway', "didn't", 'didn', 'Don')
    """
    if completes and constraint in HALF_WORDS:
        return constraint + NOT[0]
    return named(constraint)


@cache
def _names(size: str) -> dict[str, str]:
    """The `words` or `pairs` that all witnesses write with the same capitals in the middle of sentences."""
    first, *others = [_casing(name)[size] for name in WITNESSES]
    return {word: form for word, form in first.items() if all(other.get(word) == form for other in others)}


@cache
def _casing(name: str) -> dict[str, dict[str, str]]:
    folder = embedded_folder(name)
    assert folder is not None
    return casing_of((folder / "casing.json.gz").read_bytes())
