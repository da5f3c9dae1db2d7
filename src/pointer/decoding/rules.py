"""Rules: what an insertion must not do to a text. Each is one predicate, and there is no other place that knows of it.

A predicate is asked about a word in the text that it would stand in, candidate after candidate, the likeliest first;
the first that no rule refuses goes in, and a gap whose candidates are all refused stays empty. So the rules hold after
every stage, for greedy decoding, samples and beams. They never touch what the user gave: `asked` words are not refused.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pointer.decoding.presets import Preset
from pointer.english import HALF_WORDS, SENTENCE_MARKS

NGRAM = 3
"""So many words in a row do not come twice."""


class Insertion(NamedTuple):
    """A word that is about to be inserted, in its text."""

    words: Sequence[str]
    """All words of the text, pieces joined, between `[CLS]` and, where it is there already, `[SEP]`."""
    place: int
    """Where the new word stands among them; never first."""
    asked: Sequence[bool]
    """For every word: is it the user's, or of the frame?"""

    @property
    def word(self) -> str:
        """The new word."""
        return self.words[self.place]

    @property
    def left(self) -> str:
        """What stands before it."""
        return self.words[self.place - 1]

    @property
    def right(self) -> str:
        """What stands after it; empty at the end."""
        return self.words[self.place + 1] if self.place + 1 < len(self.words) else ""


def no_repeat(new: Insertion) -> bool:
    """No word beside itself."""
    return new.word in (new.left, new.right)


def no_repeat_ngram(new: Insertion) -> bool:
    """No three words in a row twice (no-repeat-n-gram, Paulus et al. 2018)."""
    rows = list(zip(*(new.words[i:] for i in range(NGRAM)), strict=False))
    near = range(max(0, new.place - NGRAM + 1), min(new.place + 1, len(rows)))
    # A constraint like `didn` gets its ending as often as it was asked for.
    needed = [new.asked[i] and new.words[i] in HALF_WORDS and new.words[i + 1] == "'" for i in near]
    return any(rows.count(rows[i]) > 1 for i, is_needed in zip(near, needed, strict=True) if not is_needed)


def marks_apart(new: Insertion) -> bool:
    """No sentence mark beside another or at the start."""
    bars = SENTENCE_MARKS | {"[CLS]"}
    return new.word in SENTENCE_MARKS and (new.left in bars or new.right in bars)


def hyphens(new: Insertion) -> bool:
    """A hyphen joins two inserted words: nothing is glued to a constraint, so beside one it would stand alone."""
    return new.word == "-" and (new.asked[new.place - 1] or new.place + 1 == len(new.words) or new.asked[new.place + 1])


def numbers_apart(new: Insertion) -> bool:
    """No digits beside a number of the user's, not even behind a mark: `50` would be read as 50,000."""
    if not new.word.isdigit():
        return False
    for step in (-1, 1):
        beside = new.place + step
        while 0 < beside < len(new.words) - 1 and not new.asked[beside] and new.words[beside] in ".,:":
            beside += step
        if 0 <= beside < len(new.words) and new.asked[beside] and any(map(str.isdigit, new.words[beside])):
            return True
    return False


Rule = Callable[[Insertion], bool]
"""Is the insertion refused?"""
RULES: dict[str, Rule] = {
    rule.__name__: rule for rule in (no_repeat, no_repeat_ngram, marks_apart, hyphens, numbers_apart)
}


class Rules:
    """The rules of a preset."""

    def __init__(self, preset: Preset) -> None:
        self.rules = [RULES[name] for name in sorted(preset.rules)]

    def __bool__(self) -> bool:
        return bool(self.rules)

    def refuse(self, new: Insertion) -> bool:
        """Is the insertion against a rule?"""
        return any(rule(new) for rule in self.rules)
