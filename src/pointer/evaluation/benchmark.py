"""CommonGen: from a set of concepts, in any form and any order, to a sentence, measured against several references.

BLEU-4 is sacrebleu's. CIDEr-D (Vedantam et al. 2015) and ROUGE-L (Lin 2004) are as the field's own scorer for captions
has them, which a test compares with; both are read over words and marks in lower case. Coverage counts every form of a
concept.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pointer.english import inflections
from pointer.errors import DataError, missing_extra
from pointer.evaluation.meteor import meteor_by_jar
from pointer.evaluation.outputs import System, canonical
from pointer.prepare.corpus import open_bytes

ORDERS = 4
SIGMA = 6.0
"""How fast CIDEr-D forgives a difference of length."""
BETA = 1.2
"""How much more recall counts than precision in ROUGE-L."""


class ConceptSet(NamedTuple):
    """What was asked for, and what people wrote."""

    concepts: tuple[str, ...]
    references: tuple[str, ...]


def read_concept_sets(path: str) -> list[ConceptSet]:
    """The sets of a jsonl file, a line each: `{"concepts": [...], "texts": [...]}`."""
    found = []
    with open_bytes(path) as file:
        for number, line in enumerate(file, 1):
            try:
                record = json.loads(line)
                concepts, texts = tuple(map(str, record["concepts"])), tuple(map(str, record["texts"]))
            except (ValueError, KeyError, TypeError):
                raise DataError(
                    f'{path}, line {number}: expected {{"concepts": [...], "texts": [...]}}, found something else.',
                    "Name a file of CommonGen sets, a set a line.",
                ) from None
            if not concepts or not texts:
                raise DataError(f"{path}, line {number}: expected concepts and texts, found none.", "Remove the line.")
            found.append(ConceptSet(concepts, texts))
    if not found:
        raise DataError(f"{path}: expected concept sets, found none.", "Name a file of CommonGen sets.")
    return found


class Figure(NamedTuple):
    """A number, and what somebody needs to get the same."""

    name: str
    value: float
    signature: str


@dataclass(frozen=True)
class Benchmark:
    """The texts of a system beside the concept sets they were written for."""

    system: System
    sets: Sequence[ConceptSet]

    def __post_init__(self) -> None:
        if len(self.system.texts) != len(self.sets):
            raise DataError(
                f"Expected a text for each of {len(self.sets):,} sets, found {len(self.system.texts):,} texts.",
                "Write one for every line of the benchmark.",
            )

    @cached_property
    def words(self) -> list[list[str]]:
        """The words and marks of every text."""
        return [canonical(text).split() for text in self.system.texts]

    @cached_property
    def references(self) -> list[list[list[str]]]:
        """The words and marks of every reference of every set."""
        return [[canonical(text).split() for text in one.references] for one in self.sets]

    def figures(self, meteor_jar: Path | None = None) -> list[Figure]:
        """All that is measured."""
        covered, asked = self._covered()
        lengths = [len(re.findall(r"[^\W_][\w'\u2019-]*", text)) for text in self.system.texts]
        again = [any(a == b and a.isalnum() for a, b in pairwise(text)) for text in self.words]
        ours = f"canonical|references:all|n:{len(self.sets)}"
        forms = f"forms:lemminflect-{version('lemminflect')}"
        found = [
            Figure("Coverage", 100 * covered / asked, f"concepts|{forms}"),
            Figure("Covered whole", 100 * self._covered_whole(), f"sets|{forms}"),
            Figure("BLEU-4", *self._bleu()),
            Figure("CIDEr", 100 * cider(self.words, self.references), f"CIDEr-D|x100|df:references|{ours}"),
            Figure("ROUGE-L", 100 * rouge_l(self.words, self.references), f"beta:{BETA}|{ours}"),
            Figure("Length", sum(lengths) / len(lengths), "words a text"),
            Figure("Repeated word", 100 * sum(again) / len(again), "texts with a word beside itself, %"),
        ]
        if meteor_jar is not None:
            found.append(
                Figure("METEOR", 100 * meteor_by_jar(self.words, self.references, meteor_jar), f"1.5|jar|{ours}")
            )
        return found

    def _missing(self, line: int) -> list[str]:
        said = set(re.findall(r"\w+", self.system.texts[line].lower()))
        return [concept for concept in self.sets[line].concepts if not inflections(concept) & said]

    def _covered(self) -> tuple[int, int]:
        asked = sum(len(one.concepts) for one in self.sets)
        return asked - sum(len(self._missing(line)) for line in range(len(self.sets))), asked

    def _covered_whole(self) -> float:
        return sum(not self._missing(line) for line in range(len(self.sets))) / len(self.sets)

    def _bleu(self) -> tuple[float, str]:
        try:
            from sacrebleu.metrics.bleu import BLEU
        except ImportError as missing:
            raise missing_extra("BLEU", "sacrebleu", "eval") from missing
        most = max(len(one.references) for one in self.sets)
        columns: Any = [
            [one.references[i] if i < len(one.references) else None for one in self.sets] for i in range(most)
        ]
        metric = BLEU(lowercase=True)
        score = float(metric.corpus_score(list(self.system.texts), columns).score)
        return score, str(metric.get_signature())


Words = Sequence[str]


def cider(texts: Sequence[Words], references: Sequence[Sequence[Words]]) -> float:
    """CIDEr-D: how alike texts and their references are in the n-grams that tell sets apart, by TF-IDF; 0 to 1.

    Caption scorers show ten times this, and CommonGen's tables a hundred times.
    """
    documents: Counter[tuple[str, ...]] = Counter()
    for some in references:
        documents.update({gram for words in some for gram in _ngrams(words)})
    total = math.log(max(1, len(references)))

    def vector(words: Words) -> tuple[list[dict[tuple[str, ...], float]], list[float], int]:
        weights: list[dict[tuple[str, ...], float]] = [{} for _ in range(ORDERS)]
        for gram, count in _ngrams(words).items():
            weights[len(gram) - 1][gram] = count * (total - math.log(max(1.0, documents[gram])))
        norms = [math.sqrt(sum(value * value for value in order.values())) for order in weights]
        return weights, norms, max(0, len(words) - 1)

    scores = []
    for words, some in zip(texts, references, strict=True):
        mine, my_norms, my_length = vector(words)
        likeness = []
        for reference in some:
            theirs, their_norms, length = vector(reference)
            penalty = math.exp(-((my_length - length) ** 2) / (2 * SIGMA**2))
            for order in range(ORDERS):
                shared = sum(
                    min(value, theirs[order].get(gram, 0.0)) * theirs[order].get(gram, 0.0)
                    for gram, value in mine[order].items()
                )
                norm = my_norms[order] * their_norms[order]
                likeness.append(penalty * (shared / norm if norm else shared))
        scores.append(sum(likeness) / len(likeness))
    return float(np.mean(scores))


def _ngrams(words: Words) -> Counter[tuple[str, ...]]:
    return Counter(
        tuple(words[start : start + order]) for order in range(1, ORDERS + 1) for start in range(len(words) - order + 1)
    )


def rouge_l(texts: Sequence[Words], references: Sequence[Sequence[Words]]) -> float:
    """ROUGE-L: the longest common subsequence, as an F-score of the best precision and the best recall; 0 to 1."""
    scores = []
    for words, some in zip(texts, references, strict=True):
        common = [_common(words, reference) for reference in some]
        precision = max(size / max(1, len(words)) for size in common)
        recall = max(size / max(1, len(reference)) for size, reference in zip(common, some, strict=True))
        weighed = (1 + BETA**2) * precision * recall
        scores.append(weighed / (recall + BETA**2 * precision) if precision and recall else 0.0)
    return float(np.mean(scores))


def _common(one: Words, other: Words) -> int:
    """The length of the longest common subsequence."""
    row = [0] * (len(other) + 1)
    for word in one:
        before = 0
        for place, theirs in enumerate(other, 1):
            above = row[place]
            row[place] = before + 1 if word == theirs else max(above, row[place - 1])
            before = above
    return row[-1]
