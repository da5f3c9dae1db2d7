"""Token importance (paper 3.2): `alpha = tf-idf + part of speech + YAKE`, one score per word.

Every part is a component: a function from texts (lists of words as written) to one raw score per word. Components are
rescaled to [0, 1] within a text, added up, and the sum is lowered for stop words and for repeated words. A component
can be left out or replaced, for another language or an ablation.
"""

import gzip
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pointer.errors import DataError
from pointer.integrity import unpacked
from pointer.prepare.tagging import spacy_tagger, tag
from pointer.prepare.yake import Yake

Scores = npt.NDArray[np.float64]
Texts = Sequence[Sequence[str]]
Component = Callable[[Texts], list[Scores]]

PARTS = ("tfidf", "pos", "yake")
STOP_WORD_FACTOR = 0.1
"""What is left of the importance of a stop word or a punctuation mark."""
REPEAT_FACTOR = 0.5
"""What is left of a word's importance at each further occurrence in a text."""


@dataclass(frozen=True)
class Frequencies:
    """In how many of `texts` texts each word stands: what tf-idf knows about a corpus."""

    texts: int
    counts: Mapping[str, int]

    def idf(self, word: str) -> float:
        """How surprising a word is; an unseen one is the most surprising."""
        return math.log((self.texts + 1) / (self.counts.get(word, 0) + 1))

    def to_bytes(self, least: int = 2) -> bytes:
        """The file form; words of fewer than `least` texts are left out, for unseen words score the same."""
        counts = {word: count for word, count in sorted(self.counts.items()) if count >= least}
        table = json.dumps({"texts": self.texts, "counts": counts}, ensure_ascii=False, separators=(",", ":"))
        return gzip.compress(table.encode(), mtime=0)

    @classmethod
    def open(cls, path: Path) -> "Frequencies":
        """Read what `to_bytes` wrote."""
        try:
            table = unpacked(path.read_bytes())
            texts, counts = table["texts"], table["counts"]
            if type(texts) is not int or not all(type(count) is int for count in counts.values()):
                raise ValueError("other types")
            return cls(texts, counts)
        except FileNotFoundError as error:
            raise DataError(
                f"Expected document frequencies at {path}, found no such file.",
                "Name a folder that `pointer prepare` wrote, or a checkpoint.",
            ) from error
        except (OSError, ValueError, KeyError, AttributeError) as error:
            raise DataError(
                f"Expected document frequencies at {path}, found something else.",
                "Name a folder that `pointer prepare` wrote, or a checkpoint.",
            ) from error


def tfidf(frequencies: Frequencies) -> Component:
    """How often a word stands in the text, times how rare it is in the corpus."""
    cache: dict[str, float] = {}

    def score(texts: Texts) -> list[Scores]:
        scores = []
        for words in texts:
            lowered = [word.lower() for word in words]
            count = Counter(lowered)
            for word in count:
                if word not in cache:
                    cache[word] = frequencies.idf(word)
            scores.append(np.array([count[word] * cache[word] for word in lowered]))
        if len(cache) > 500_000:  # rare words never end; memory must
            cache.clear()
        return scores

    return score


def part_of_speech(tagger: Callable[[Texts], list[list[str]]] = tag) -> Component:
    """1 for nouns and verbs, 0 for everything else (Penn Treebank tags)."""

    def score(texts: Texts) -> list[Scores]:
        return [np.array([t[:2] in ("NN", "VB") for t in tags], np.float64) for tags in tagger(texts)]

    return score


def yake_keyness(yake: Yake) -> Component:
    """YAKE upside down: its best word highest, its worst still above 0, a word that it does not name 0."""

    def score(texts: Texts) -> list[Scores]:
        return [
            np.array([turned.get(word.lower(), 0.0) for word in words])
            for words, turned in zip(texts, map(_inverted, yake(texts)), strict=True)
        ]

    return score


def _inverted(scores: Mapping[str, float]) -> dict[str, float]:
    if not scores:
        return {}
    ends = min(scores.values()) + max(scores.values())
    return {word: ends - score for word, score in scores.items()}


def rescale(raw: Scores) -> Scores:
    """To [0, 1] within the text; a component that is the same everywhere says nothing and counts 0.

    >>> rescale(np.array([1.0, 3.0, 2.0])).tolist()
    [0.0, 1.0, 0.5]
    """
    low, high = raw.min(initial=np.inf), raw.max(initial=-np.inf)
    return (raw - low) / (high - low) if high > low else np.zeros_like(raw)


@dataclass(frozen=True)
class Importance:
    """What the words of one text are worth: every component, the factor for stop words and repeats, and alpha."""

    parts: dict[str, Scores]
    factor: Scores
    alpha: Scores


class Scorer:
    """Scores the words of texts with the chosen components.

    >>> scorer = Scorer({"length": lambda texts: [np.array([float(len(w)) for w in words]) for words in texts]},
    ...                 stop=frozenset(["the"]))
    >>> scorer([["the", "red", "barn", "barn"]])[0].alpha.tolist()
    [0.0, 0.0, 1.0, 0.5]
    """

    def __init__(self, components: Mapping[str, Component], stop: frozenset[str]) -> None:
        self.components = dict(components)
        self.stop = stop

    def __call__(self, texts: Texts) -> list[Importance]:
        """Score a batch of texts, each a list of words as written."""
        raw = {name: component(texts) for name, component in self.components.items()}
        scored = []
        for i, words in enumerate(texts):
            parts = {name: rescale(scores[i]) for name, scores in raw.items()}
            factor = self._factor(words)
            alpha = sum(parts.values(), np.zeros(len(words))) * factor
            scored.append(Importance(parts, factor, alpha))
        return scored

    def _factor(self, words: Sequence[str]) -> Scores:
        factors, seen = [], Counter[str]()
        for word in map(str.lower, words):
            low = word in self.stop or not any(map(str.isalnum, word))
            factors.append((STOP_WORD_FACTOR if low else 1.0) * REPEAT_FACTOR ** seen[word])
            seen[word] += 1
        return np.array(factors)


def paper_scorer(
    frequencies: Frequencies, yake: Yake, parts: Iterable[str] = PARTS, tagger: str = "perceptron"
) -> Scorer:
    """The scorer of the paper, or the part of it that is asked for; no parts at all give interleaved masking."""
    known: dict[str, Callable[[], Component]] = {
        "tfidf": lambda: tfidf(frequencies),
        "pos": lambda: part_of_speech(tag if tagger == "perceptron" else spacy_tagger(tagger.removeprefix("spacy:"))),
        "yake": lambda: yake_keyness(yake),
    }
    return Scorer({part: known[part]() for part in parts}, yake.stop)
