"""YAKE for single words, over many texts at once: one of the importance scores of `prepare`.

YAKE (Campos et al. 2020) finds the keywords of a text from nothing but that text: a word matters that is
frequent, comes early, is spread over the sentences, and does not keep company with every other word. The
`yake` library is the reference: for lower-cased words as BERT's basic tokenizer splits them (alphanumeric
runs, every punctuation mark a word of its own) `yake_scores` equals `KeywordExtractor(n=1, window_size=1)` on
the joined words. What a word *is* we ask the library, once a word; what the words of a batch *do* is counted
on flat arrays.

Such words leave two corners of the library unused. There is no capital letter, so its case feature is zero.
And a full stop that stands alone ends no sentence for its segmenter, unless another one follows (`. . .`):
nearly every text is one sentence.
"""

import importlib.util
import re
import string
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from importlib import resources
from itertools import chain, pairwise
from math import log
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from pointer.errors import missing_extra

__all__ = ["Yake", "ranked", "stop_words", "yake_scores"]

Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

_PUNCTUATION = frozenset(string.punctuation)
_CACHED_WORDS = 1 << 17


@cache
def stop_words(language: str = "en") -> frozenset[str]:
    """The stop words of `language`, a two-letter code.

    The English ones come with the package, as decoding needs them: the list of the SMART system (Salton and Buckley;
    Lewis et al. 2004, appendix 11) and four titles (dr, dra, mr, ms), which is what the yake library has. For other
    languages it is the library that has them. As there, only the first two letters count, and a language without a
    list has no stop words: then only words of one and two letters are passed over.

    >>> "the" in stop_words()
    True
    """
    if language[:2].lower() == "en":
        return frozenset((resources.files("pointer.english") / "stop_words.txt").read_text("utf-8").split())
    lists = _library() / "core" / "StopwordsList"
    path = lists / f"stopwords_{language[:2].lower()}.txt"
    content = (path if path.is_file() else lists / "stopwords_noLang.txt").read_bytes()
    try:
        words = content.decode("utf-8")
    except UnicodeDecodeError:
        words = content.decode("ISO-8859-1")
    return frozenset(words.replace("\r\n", "\n").lower().split("\n"))


def _library() -> Path:
    """The folder of the yake library, which takes longer to import than a model takes to write a text."""
    spec = importlib.util.find_spec("yake")
    if spec is None or not spec.submodule_search_locations:
        raise missing_extra("Finding keywords", "yake", "keywords")
    return Path(spec.submodule_search_locations[0])


def yake_scores(texts: Sequence[Sequence[str]], stop_words: frozenset[str]) -> list[dict[str, float]]:
    """YAKE's score of every candidate word of every text; a low score marks an important word.

    `texts` holds lower-cased words as BERT's basic tokenizer splits them. Candidates are the words that are
    not stop words, numbers, punctuation or shorter than three letters, in order of first occurrence.

    >>> [scores] = yake_scores([["the", "old", "harbour", "of", "the", "town", "."]], stop_words())
    >>> {word: round(score, 3) for word, score in scores.items()}
    {'harbour': 0.158, 'town': 0.096}
    """
    sentences = [_sentences(text) for text in texts]
    tokens = list(chain.from_iterable(chain.from_iterable(sentences)))
    lexicon = _Lexicon.of(list(dict.fromkeys(tokens)), stop_words)
    number = {word: i for i, word in enumerate(lexicon.words)}

    sentence_count = np.array([len(text) for text in sentences], np.int64)
    length = np.array([len(sentence) for text in sentences for sentence in text], np.int64)
    word = np.fromiter(map(number.__getitem__, tokens), np.int64, len(tokens))
    sentence = np.repeat(np.fromiter(chain.from_iterable(map(range, sentence_count)), np.int64), length)
    text = np.repeat(np.repeat(np.arange(len(texts)), sentence_count), length)

    place = np.flatnonzero(~lexicon.punctuation[word])
    word, sentence, text = word[place], sentence[place], text[place]
    plain = lexicon.plain[word]
    first, term = _number(text * len(number) + lexicon.stem[word])
    # Forms of one stem share a fate: the first in the text decides whether the term is a stop word.
    content = ~lexicon.stop[word[first]]

    same_run = (np.diff(place) == 1) & (np.diff(text) == 0) & (np.diff(sentence) == 0)
    adjacent = same_run & plain[1:] & plain[:-1]
    pairs = term[:-1][adjacent], term[1:][adjacent]
    weight = _term_weights(text[first], content, term, sentence, pairs, sentence_count)

    candidate = np.flatnonzero(plain & content[term])
    first, form = _number(text[candidate] * len(number) + word[candidate])
    first = candidate[first]
    h = weight[term[first]]
    scores = (h / ((h + 1) * np.bincount(form, minlength=len(first)))).tolist()
    names = [lexicon.words[i] for i in word[first].tolist()]
    bounds = np.searchsorted(text[first], np.arange(len(texts) + 1)).tolist()
    return [dict(zip(names[a:b], scores[a:b], strict=True)) for a, b in pairwise(bounds)]


def ranked(scores: Mapping[str, float], top: int, dedup: float = 0.9) -> list[str]:
    """The `top` best words of `scores`, best first; of equal scores the first in `scores` comes first.

    A word more similar than `dedup` to a better one is dropped, in the library's own measure of similarity;
    `dedup=1` keeps all.

    >>> ranked({"harbour": 0.1, "town": 0.4, "old": 0.3}, top=2)
    ['harbour', 'old']
    """
    similarity = _similarity()
    best: list[str] = []
    for word in sorted(scores, key=scores.__getitem__):
        if len(best) >= top:
            break
        if dedup >= 1 or all(similarity(word, better) <= dedup for better in best):
            best.append(word)
    return best


class Yake:
    """The scores of texts in any case, remembered for the latest batch: importance and keyword ranks share them."""

    def __init__(self, stop: frozenset[str]) -> None:
        _library()
        self.stop = stop
        self._latest: tuple[object, list[dict[str, float]]] = (None, [])

    def __call__(self, texts: Sequence[Sequence[str]]) -> list[dict[str, float]]:
        """Score every candidate word, lower-case, of every text."""
        if self._latest[0] is not texts:
            lowered = [[word.lower() for word in words] for words in texts]
            self._latest = texts, yake_scores(lowered, self.stop)
        return self._latest[1]


@cache
def _similarity() -> Callable[[str, str], float]:
    from yake import KeywordExtractor

    return cast(Callable[[str, str], float], KeywordExtractor(dedup_func="seqm").dedup_function)


def _sentences(words: Sequence[str]) -> list[Sequence[str]]:
    """The sentences of a text as the library sees them, each a list of its tokens."""
    from segtok.segmenter import split_multi

    line = " ".join(words)
    sentences: list[Sequence[str]] = [words]
    if _sentence_break().search(line):
        sentences = [sentence.split(" ") for sentence in split_multi(" " + line)]
    if line.isascii():
        return sentences
    return [[token for word in sentence for token in _tokens(word)] for sentence in sentences]


@cache
def _sentence_break() -> re.Pattern[str]:
    """Where the library's segmenter may see an end: two marks that stand apart."""
    from segtok.segmenter import SENTENCE_TERMINALS

    return re.compile(f"[{SENTENCE_TERMINALS}] [{SENTENCE_TERMINALS}] ")


@lru_cache(_CACHED_WORDS)
def _tokens(word: str) -> tuple[str, ...]:
    """What the library's tokenizer makes of a word: the word itself, unless it is one like `10½`."""
    from yake.data.utils import tokenize_sentences

    return tuple(chain.from_iterable(tokenize_sentences(word)))


@lru_cache(_CACHED_WORDS)
def _traits(word: str) -> tuple[str, bool, bool]:
    """The stem of a word (the library drops a final s), and whether it is punctuation or a plain word."""
    stem = word[:-1] if word.endswith("s") and len(word) > 3 else word
    from yake.data.utils import get_tag

    return stem, word in _PUNCTUATION, get_tag(word, 0, _PUNCTUATION) not in ("d", "u")


class _Lexicon(NamedTuple):
    """The distinct words of a batch and what the library holds of each."""

    words: list[str]
    stem: Integers
    punctuation: Flags  # ends a run of words and counts for nothing
    plain: Flags  # neither number nor oddity: may be a keyword and have neighbours
    stop: Flags

    @classmethod
    def of(cls, words: list[str], stop_words: frozenset[str]) -> "_Lexicon":
        stems, punctuation, plain = zip(*map(_traits, words), strict=True) if words else ((), (), ())
        number = {stem: i for i, stem in enumerate(dict.fromkeys(stems))}
        # The library asks for the word and for its stem, and takes anything of two letters for a stop word.
        short_or_listed = [
            len(stem) < 3 or stem in stop_words or word in stop_words for word, stem in zip(words, stems, strict=True)
        ]
        return cls(
            words,
            np.array([number[stem] for stem in stems], np.int64),
            np.array(punctuation, bool),
            np.array(plain, bool),
            np.array(short_or_listed, bool),
        )


def _number(keys: Integers) -> tuple[Integers, Integers]:
    """Number distinct keys by first occurrence: where each first occurs, and the number of every key."""
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[inverse]


def _term_weights(
    text: Integers,
    content: Flags,
    term: Integers,
    sentence: Integers,
    pairs: tuple[Integers, Integers],
    sentence_count: Integers,
) -> Floats:
    """YAKE's weight of each term, low if important.

    `text` and `content` describe terms, `term` and `sentence` the tokens; `pairs` are the terms of adjacent
    tokens. Sums and products keep the library's order, so that terms tie here when they tie there.
    """
    terms, texts = len(text), len(sentence_count)
    tf = np.bincount(term, minlength=terms).astype(np.float64)

    max_tf = np.zeros(texts)
    np.maximum.at(max_tf, text, tf)
    content_terms = np.maximum(np.bincount(text[content], minlength=texts), 1)
    mean = np.bincount(text[content], tf[content], minlength=texts) / content_terms
    deviation = (tf - mean[text])[content]
    std = np.sqrt(np.bincount(text[content], deviation * deviation, minlength=texts) / content_terms)

    left, right = pairs
    distinct_left, distinct_right = np.divmod(np.unique(left * terms + right), max(terms, 1))
    share = tf / max_tf[text]
    relatedness = (0.5 + _variety(distinct_right, right, terms) * share) + (
        0.5 + _variety(distinct_left, left, terms) * share
    )

    sentences = int(sentence_count.max(initial=1))
    home, sentence = np.divmod(np.unique(term * sentences + sentence), sentences)
    spread = np.bincount(home, minlength=terms)
    start = np.cumsum(spread) - spread
    median = (sentence[start + (spread - 1) // 2] + sentence[start + spread // 2]) / 2
    # math.log once for each distinct median: numpy's differs in the last bit from one processor to another.
    medians, which = np.unique(median, return_inverse=True)
    position = np.array([log(log(3.0 + m)) for m in medians.tolist()])[which]

    with np.errstate(divide="ignore", invalid="ignore"):  # a text of stop words only: its weights go unused
        frequency = tf / (mean + std)[text]
        dispersion = spread / sentence_count[text]
        return (position * relatedness) / (frequency / relatedness + dispersion / relatedness)


def _variety(distinct: Integers, total: Integers, terms: int) -> Floats:
    """How many different neighbours a term has for each neighbour it has; 0 without any."""
    return np.bincount(distinct, minlength=terms) / np.maximum(np.bincount(total, minlength=terms), 1)
