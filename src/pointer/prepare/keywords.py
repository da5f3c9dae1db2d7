"""Lexical constraints as the paper draws them from a text: YAKE's best words, some of their occurrences, in text order.

The same words form the `keywords` skeleton of training data, so that a model starts from what users type.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt

from pointer.checkpoint import EMBEDDED
from pointer.errors import UsageError
from pointer.prepare.yake import Yake, ranked, stop_words
from pointer.text import normalise
from pointer.vocabulary import Vocabulary

MOST_KEYWORDS = 16
"""The most keywords that are ever drawn from a text."""
TOGETHER = 1000
"""Texts that are scored together."""
SPARE = 2
"""The paper takes the best N + 2 words and then draws N occurrences."""


def keyword_ranks(texts: Sequence[Sequence[str]], yake: Yake) -> list[npt.NDArray[np.uint8]]:
    """For every word of every text its place in YAKE's ranking, 1 being the best, or 0 if it is no keyword."""
    ranks = []
    for words, scores in zip(texts, yake(texts), strict=True):
        usable = {w: s for w, s in scores.items() if w not in yake.stop and any(map(str.isalpha, w))}
        place = {word: i + 1 for i, word in enumerate(ranked(usable, top=MOST_KEYWORDS + SPARE))}
        ranks.append(np.array([place.get(word.lower(), 0) for word in words], np.uint8))
    return ranks


def draw(ranks: npt.NDArray[np.uint8], most: int, random: np.random.Generator) -> npt.NDArray[np.int64]:
    """At most `most` positions out of those of the `most + 2` best words, in text order."""
    places = np.flatnonzero((ranks > 0) & (ranks <= most + SPARE))
    return np.sort(random.choice(places, min(most, len(places)), replace=False))


def random_for(text: str, seed: int) -> np.random.Generator:
    """A generator that depends on the seed and the text alone, not on what was drawn before."""
    return np.random.default_rng(list(hashlib.sha256(f"{seed}\0{text}".encode()).digest()))


def keywords(text: str, most: int = 4, seed: int = 0, language: str = "en") -> list[str]:
    """At most `most` keywords of a text, lower-case, in text order; a repeated word may come twice.

    >>> keywords("My sources have suggested the company sees no reason to change its tax structure.")
    ['suggested', 'company', 'reason', 'structure']
    """
    return next(keywords_of_many([text], most, seed, language))


def keywords_of_many(texts: Iterable[str], most: int = 4, seed: int = 0, language: str = "en") -> Iterator[list[str]]:
    """The keywords of every text, in order; many texts are scored together, which is far faster than one by one."""
    if not 1 <= most <= MOST_KEYWORDS:
        raise UsageError(f"max: expected a number from 1 to {MOST_KEYWORDS}, found {most}.", "Ask for fewer.")
    vocabulary, yake = Vocabulary.open(EMBEDDED), Yake(stop_words(language))
    rest = iter(texts)
    while lowered := [normalise(text).lower() for text in islice(rest, TOGETHER)]:
        words = [encoding.words for encoding in vocabulary.encode(lowered)]
        for text, its_words, ranks in zip(lowered, words, keyword_ranks(words, yake), strict=True):
            yield [its_words[i] for i in draw(ranks, most, random_for(text, seed))]
