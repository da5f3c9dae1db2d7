"""Words, as far as decoding cares: how rare each is in the training texts, how it is spelt and contracted."""

import gzip
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from pointer.prepare.importance import Frequencies
from pointer.prepare.yake import stop_words
from pointer.vocabulary import Vocabulary
from pointer.writing import HALF_WORDS

_HOSTS = {
    "t": " ".join(["can", "won", *HALF_WORDS]),
    "m": "i",
    "re": "you we they who there what",
    "ve": "i you we they who could should would might must",
    "ll": "i you he she it we they who that there this",
    "d": "i you he she it we they who that there",
    "s": "it he she that there who what where here how when one other else everyone someone let",
}
CONTRACTIONS = {ending: frozenset(hosts.split()) for ending, hosts in _HOSTS.items()}
"""What English puts after an apostrophe, and the function words that it follows. `s` follows other words as well."""
_TAKE_ENDINGS = frozenset.union(*CONTRACTIONS.values())
_NO_NOUN = frozenset([
    *".,!?;:", "[SEP]", "about", "also", "although", "am", "and", "are", "as", "at", "be", "because", "been",
    "but", "by", "could", "did", "do", "does", "for", "from", "had", "has", "have", "he", "her", "here", "him",
    "his", "i", "if", "in", "into", "is", "it", "its", "me", "my", "nor", "not", "of", "on", "or", "our", "she",
    "should", "than", "that", "their", "them", "there", "these", "they", "this", "those", "though", "to", "was",
    "we", "were", "when", "where", "which", "who", "whom", "with", "would", "you", "your",
])  # fmt: skip
"""What `the` never stands before. With `a` it is not so simple: vitamin a is a name, and 9 a.m. a time."""
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


def is_function(token: str) -> bool:
    """Is a token a stop word or a mark?"""
    return token in stop_words("en") or not any(map(str.isalnum, token))


def contracts(word: str, ending: str) -> bool:
    """May an apostrophe and this ending follow a word?

    >>> contracts("don", "t"), contracts("chef", "t"), contracts("chef", "s"), contracts("the", "s")
    (True, False, True, False)
    >>> contracts("chefs", "s")  # the chefs' kitchen
    False
    """
    if ending == "s" and word not in stop_words("en"):
        return word[-1:].isalnum() and not word.endswith("s") and word not in CONTRACTIONS
    return word in CONTRACTIONS[ending]


def is_contracted(words: Sequence[str], place: int) -> bool:
    """Has what stands at `place` the word that it belongs to, if it is an apostrophe or goes after one?

    An apostrophe may wait for its ending after a word that is known to take one. Elsewhere the ending comes first: an
    apostrophe after any other word is as often half a quotation.

    >>> is_contracted(["i", "don", "'", "t"], 3), is_contracted(["i", "'", "t"], 2), is_contracted(["we", "ll"], 1)
    (True, False, True)
    >>> [is_contracted(words, 1) for words in (["it", "'", "good"], ["chef", "'", "s"], ["chef", "'", "is"])]
    [True, True, False]
    """
    word = words[place]
    if word == "'":
        before, after = words[place - 1], words[place + 1] if place + 1 < len(words) else ""
        return contracts(before, after) if after in CONTRACTIONS else before in _TAKE_ENDINGS
    if word not in CONTRACTIONS or (len(word) == 1 and "." in (words[place - 1], *words[place + 1 : place + 2])):
        return True  # the letters of U.S. and a.m. are no endings
    return contracts(words[place - 2 if words[place - 1] == "'" else place - 1], word)


def breaks_contraction(words: Sequence[str], place: int, asked: Sequence[bool]) -> bool:
    """Has the word at `place` nothing to belong to, or took it that of a neighbour that was not asked for?

    >>> breaks_contraction(["i", "really", "'", "ve"], 1, [True, False, False, False])
    True
    """
    if words[place - 1] == "'" and words[place] not in CONTRACTIONS:
        return True
    near = range(place - 1, min(place + 3, len(words)))
    return any(not asked[i] and not is_contracted(words, i) for i in near)


def lacks_noun(words: Sequence[str], place: int, asked: Sequence[bool]) -> bool:
    """Does the word at `place` leave an inserted `the` without anything to belong to?

    Nouns come before their articles, so none is still to come.

    >>> lacks_noun(["pizza", "on", "the", "is", "good"], 2, [True, True, False, True, True])
    True
    """
    return any(
        words[i] == "the" and not asked[i] and i + 1 < len(words) and words[i + 1] in _NO_NOUN
        for i in (place - 1, place)
    )


def _begun(pieces: Sequence[str]) -> Iterable[str]:
    """A word without some of the pieces after its first.

    >>> sorted(_begun(["rest", "aur", "ant"]))
    ['rest', 'restant', 'restaur']
    """
    for size in range(len(pieces) - 1 if len(pieces) <= MOST_PIECES else 0):
        for rest in combinations(pieces[1:], size):
            yield pieces[0] + "".join(rest)
