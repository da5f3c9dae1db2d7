"""Steering a text from left to right to its length: which tokens would make it too long, or end it too soon.

Nothing is ever cut. While constraints are still to come, room is kept for them; what may not come next is ruled out,
and what is left leads to a text within the range, where one can be reached.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pointer.decoding.demand import Demand, count_sentences, count_words
from pointer.prepare.yake import stop_words

Mask: TypeAlias = npt.NDArray[np.bool_]
WORDS_A_SENTENCE = 3
"""The fewest words after which a sentence is ended where more sentences are wanted than the text would have."""


@dataclass(frozen=True)
class Way:
    """A text on its way, and what is still to come."""

    demand: Demand
    text: str
    words: int
    """Of the constraints to come, at least."""
    is_complete: bool
    """Are all constraints there?"""
    room: int
    """How many more tokens may be inserted."""
    most: int
    """Tokens of the longest text."""

    @cached_property
    def size(self) -> int:
        """The words that the text will have at least."""
        return count_words(self.text) + self.words

    @cached_property
    def sentences(self) -> int:
        """The sentences that the text has now."""
        return count_sentences(self.text)

    @cached_property
    def is_closed(self) -> bool:
        """Would a capital begin another sentence?"""
        return count_sentences(f"{self.text} X") > self.sentences > 0

    @property
    def may_end(self) -> bool:
        """Is the text long enough?"""
        words, sentences = self.demand.words, self.demand.sentences
        return (not words or self.size >= words.low) and (not sentences or self.sentences >= sentences.low)

    def spare(self) -> int:
        """The words that may be inserted at most."""
        return self.demand.words.high - self.size if self.demand.words else 10**6


class Steering:
    """What each token does to the length of a text."""

    def __init__(self, writes: Sequence[str]) -> None:
        first = [text.lstrip(" ")[:1] for text in writes]
        self.spaced: Mask = np.array([text.startswith(" ") for text in writes])
        self.letters: Mask = np.array([any(map(str.isalnum, text)) for text in writes])
        self.closing: Mask = np.array([any(c in ".!?" for c in text) for text in writes])
        self.lower: Mask = np.array([c.islower() for c in first])
        words = [text.strip().lower() for text in writes]
        self.function: Mask = np.array([word in stop_words() for word in words]) & self.spaced
        openers: Mask = self.function & ~self.lower & self.letters
        self.openers: Mask = openers if openers.any() else self.spaced & self.letters & ~self.lower
        """What a sentence begins with that the model did not mean to write: The, It, He."""
        self.marks = {mark: [i for i, text in enumerate(writes) if text == mark] for mark in ".!?"}

    def refused(self, way: Way) -> Mask:
        """The tokens that may not be inserted now."""
        # A word begins after a space, or where only marks stand since the last one.
        chunk = way.text.rsplit(" ", 1)[-1]
        opens = self.letters & (self.spaced | (not any(map(str.isalnum, chunk))))
        # Nothing is glued to a mark: "good,cheap" would be one word for some readers, and two for others.
        refused = (
            self.letters & ~self.spaced & bool(chunk and not chunk[-1].isalnum() and chunk[-1] not in "'\u2019-([")
        )
        if way.demand.words:
            refused |= self._by_words(way, opens)
        if way.demand.sentences:
            refused |= self._by_sentences(way, opens)
        return refused

    def _by_words(self, way: Way, opens: Mask) -> Mask:
        assert way.demand.words is not None
        if way.spare() <= 0:
            return self._after_the_last_word(way, opens)
        lacking = way.demand.words.low - way.size
        if lacking > 0 and lacking >= way.room - 2:
            return ~opens
        # A text that has to end with the next word should not end with an article.
        refused = self.function & (way.spare() == 1 and way.is_complete)
        if way.demand.sentences is None and lacking > 0:
            refused |= ~self.openers if way.is_closed else self.closing
        return refused

    def _after_the_last_word(self, way: Way, opens: Mask) -> Mask:
        """No other word may come. A text that has all its constraints ends, with one mark at most."""
        if not way.is_complete:
            return opens | self.spaced
        refused = np.ones_like(opens)
        if way.text[-1:].isalnum():
            refused = opens | self.spaced | ~self.letters
            refused[[token for tokens in self.marks.values() for token in tokens]] = False
        return refused

    def _by_sentences(self, way: Way, opens: Mask) -> Mask:
        assert way.demand.sentences is not None
        low, high = way.demand.sentences.low, way.demand.sentences.high
        if way.sentences >= high:
            is_early = not way.is_complete or (way.demand.words is not None and way.size < way.demand.words.low)
            refused = self.closing & is_early
            return refused | (self.spaced & ~self.lower) if way.is_closed else refused
        if way.sentences >= low:
            return np.zeros_like(opens)
        if way.is_closed:
            return ~self.openers
        return self._must_close(way, opens, low - way.sentences)

    def _must_close(self, way: Way, opens: Mask, lacking: int) -> Mask:
        """A sentence has to end while there is room for those that are lacking."""
        last = count_words(way.text.replace("!", ".").replace("?", ".").rsplit(". ", 1)[-1])
        share = (way.demand.words.high if way.demand.words else way.most // 2) // (lacking + way.sentences)
        is_due = last >= max(WORDS_A_SENTENCE, share) or way.room <= 3 * lacking + 3 or way.spare() <= lacking
        if not is_due or not way.text:
            return self.closing & (last < WORDS_A_SENTENCE)
        if not way.text[-1].isalnum():
            return ~opens
        marks = [mark for mark in ".!?" if count_sentences(f"{way.text}{mark} X") > way.sentences]
        refused = np.ones_like(opens)
        refused[[token for mark in marks for token in self.marks[mark]]] = False
        return refused
