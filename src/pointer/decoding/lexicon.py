"""The words of the training texts, as far as decoding cares: how rare each is, and how each is spelt."""

import gzip
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from pointer.prepare.importance import Frequencies
from pointer.vocabulary import Vocabulary

MOST_PIECES = 5
"""Words of more pieces are strings of letters rather than words; they count as known, but not as begun."""


@dataclass(frozen=True)
class Lexicon:
    """What a checkpoint's document frequencies tell."""

    idf: npt.NDArray[np.float32]
    """How rare each vocabulary entry is; one that begins words counts for all of them."""
    words: frozenset[str]
    begun: frozenset[str]
    """What a word may look like while some of its pieces are still to come."""
    may_be_unfinished: npt.NDArray[np.bool_]
    """Is an entry one that a half-spelt word can end with?"""

    @classmethod
    def of(cls, table: bytes, vocabulary: Vocabulary) -> "Lexicon":
        """Read the file of a checkpoint; all words of the table have to be split into pieces, which takes a moment."""
        known = Frequencies(**json.loads(gzip.decompress(table)))
        words = list(known.counts)
        split = vocabulary.tokenizer.encode_batch(words, add_special_tokens=False)
        first: Counter[str] = Counter()
        begun: set[str] = set()
        for word, encoded in zip(words, split, strict=True):
            if encoded.ids:
                first[vocabulary.tokens[encoded.ids[0]]] += known.counts[word]
            begun.update(_begun([vocabulary.tokens[i].removeprefix("##") for i in encoded.ids]))
        frequencies = Frequencies(known.texts, first)
        idf = np.array([max(0.0, frequencies.idf(token)) for token in vocabulary.tokens], np.float32)
        half = begun.difference(words)
        ends = vocabulary.continues | np.array([token in half for token in vocabulary.tokens])
        return cls(idf, frozenset(words), frozenset(begun), ends)

    def is_spelt(self, word: str) -> bool:
        """Is this a word, or can it become one?"""
        return word in self.words or word in self.begun

    def is_unfinished(self, word: str) -> bool:
        """Is this no word before more pieces have come?"""
        return word in self.begun and word not in self.words


def _begun(pieces: Sequence[str]) -> Iterable[str]:
    """A word without some of the pieces after its first.

    >>> sorted(_begun(["rest", "aur", "ant"]))
    ['rest', 'restant', 'restaur']
    """
    for size in range(len(pieces) - 1 if len(pieces) <= MOST_PIECES else 0):
        for rest in combinations(pieces[1:], size):
            yield pieces[0] + "".join(rest)
