"""The paper's automatic metrics, each with a signature and a bootstrap interval.

Every metric is a function of how often each text counts: once for the value itself, as often as it was drawn for a
bootstrap sample. So intervals, and tests between systems on the same samples, need no second pass over the texts.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pointer.errors import DataError, UsageError, missing_extra
from pointer.evaluation.outputs import System, canonical
from pointer.text import normalise
from pointer.writing import as_written, missing_constraints, unplaced_constraints

if TYPE_CHECKING:
    from pointer.evaluation.perplexity import Loss, Scorer
    from pointer.progress import Progress

Array = NDArray[np.float64]
ORDERS = (1, 2, 3, 4)
_CHUNK = 50
"""Bootstrap samples at a time: counts of all n-grams for each of them fit into memory."""


@dataclass(frozen=True)
class Metric:
    """One number about the texts of a system."""

    name: str
    value: float
    signature: str
    """Tool, version, tokenisation and settings: what somebody needs to get the same number."""
    better: int
    """1 if higher is better, -1 if lower is, 0 if neither."""
    percent: bool
    of: Callable[[Array], Array] | None = None
    """The value for each row of weights, B N -> B: how often each text counts. None: the texts do not say."""


class Result(NamedTuple):
    """A metric's value with its interval, and its value on every bootstrap sample."""

    metric: Metric
    low: float | None
    high: float | None
    samples: Array | None


@dataclass(frozen=True)
class Evaluation:
    """All that was measured about one system."""

    system: System
    results: dict[str, Result]


@dataclass(frozen=True)
class Evaluator:
    """What systems are measured against, and how; one for all systems, so that their numbers can be compared."""

    references: tuple[str, ...]
    raw: bool = False
    """Take the lines as they are, split at blanks, in the place of `canonical`."""
    scorers: "tuple[Scorer, ...]" = ()
    """The language models that measure perplexity; metrics of those behind the first have their name."""
    replications: int = 1000
    """Bootstrap samples; 0 for no intervals."""
    seed: int = 0
    progress: "Progress | None" = None
    """Told how far a scorer is."""
    meteor_jar: Path | None = None
    """Where METEOR 1.5 is, to be asked too."""

    def __post_init__(self) -> None:
        if self.replications < 0:
            raise UsageError(f"bootstrap: expected 0 or more samples, found {self.replications}.", "0: no intervals.")

    @property
    def form(self) -> str:
        """How texts are read, for signatures."""
        return "raw" if self.raw else "canonical"

    def words(self, texts: Iterable[str]) -> list[list[str]]:
        """The words that are counted."""
        return [(text if self.raw else canonical(text)).split() for text in texts]

    @cached_property
    def _expected(self) -> list[list[str]]:
        return self.words(self.references)

    @cached_property
    def _expected_losses(self) -> "list[list[Loss]]":
        return [self._losses(scorer, self.references) for scorer in self.scorers]

    def _losses(self, scorer: "Scorer", texts: Iterable[str]) -> "list[Loss]":
        if self._form_for(scorer) == "written":
            return scorer.losses([as_written(normalise(text)) for text in texts], self.progress)
        return scorer.losses([" ".join(words) for words in self.words(texts)], self.progress)

    def _form_for(self, scorer: "Scorer") -> str:
        """How a scorer reads texts: language models as people write them, for so they have learnt to."""
        return "raw" if self.raw else scorer.form

    def evaluate(self, system: System) -> Evaluation:
        """Measure a system's texts beside the references."""
        self._check(system)
        words = self.words(system.texts)
        metrics = [
            *_nist(words, self._expected, self.form),
            *_bleu(words, self._expected, self.form),
            *self._meteor(words),
            *self._alone(words),
            *self._perplexity(system.texts),
            *_coverage(system),
            *_decoding(system),
        ]
        return self._with_intervals(system, metrics)

    def human(self) -> Evaluation:
        """Measure the references themselves, as far as that needs no reference."""
        scored = zip(self._ppl_names, self.scorers, self._expected_losses, strict=True)
        perplexities = [self._ppl(name, scorer, losses) for name, scorer, losses in scored]
        metrics = [*self._alone(self._expected), *perplexities]
        return self._with_intervals(System("human", self.references), metrics)

    @property
    def _ppl_names(self) -> list[str]:
        """What the perplexity by each scorer is called."""
        return ["PPL" if scorer is self.scorers[0] else f"PPL ({scorer.name})" for scorer in self.scorers]

    def _check(self, system: System) -> None:
        if len(system.texts) != len(self.references):
            raise DataError(
                f"Expected a text for each of {len(self.references):,} references, found {len(system.texts):,} of "
                f"{system.name}.",
                "Give the files that belong together.",
            )

    def _alone(self, words: list[list[str]]) -> list[Metric]:
        return [*_diversity(words, self.form), *_repetition(words, self.form), _length(words, self.form)]

    def _meteor(self, words: list[list[str]]) -> list[Metric]:
        _needs("nltk")
        from pointer.evaluation.meteor import meteor, meteor_by_jar, signature

        scores = [100 * score for score in meteor(words, self._expected)]
        ours = _mean("METEOR", scores, f"{signature()}|form:{self.form}|mean of texts", 1, percent=True)
        if self.meteor_jar is None:
            return [ours]
        theirs = 100 * meteor_by_jar(words, [[one] for one in self._expected], self.meteor_jar)
        return [ours, Metric("METEOR 1.5", theirs, f"METEOR 1.5|jar|-l en -norm|form:{self.form}|corpus", 1, True)]

    def _perplexity(self, texts: Iterable[str]) -> list[Metric]:
        found = []
        for name, scorer, expected in zip(self._ppl_names, self.scorers, self._expected_losses, strict=True):
            losses = self._losses(scorer, texts)
            one = self._ppl(name, scorer, losses)
            found += [one, _ppl_ratio(one, losses, expected)]
        return found

    def _ppl(self, name: str, scorer: "Scorer", losses: "Sequence[Loss]") -> Metric:
        from pointer.evaluation.perplexity import perplexity

        return _additive(
            name,
            np.array(losses, float),
            lambda sums: np.exp(sums[:, 0] / sums[:, 1]),
            f"PPL|{scorer.signature}|form:{self._form_for(scorer)}|corpus",
            -1,
            value=perplexity(losses),
        )

    def _with_intervals(self, system: System, metrics: list[Metric]) -> Evaluation:
        samples: dict[str, list[Array]] = {metric.name: [] for metric in metrics}
        for weights in resamples(len(system.texts), self.replications, self.seed):
            for metric in metrics:
                if metric.of is not None:
                    samples[metric.name].append(metric.of(weights))
        settings = f"|bs:{self.replications}|seed:{self.seed}"
        return Evaluation(system, {m.name: _with_interval(m, samples[m.name], settings) for m in metrics})


def _with_interval(metric: Metric, parts: list[Array], settings: str) -> Result:
    if not parts:
        return Result(metric, None, None, None)
    samples = np.concatenate(parts)
    # No number here can be negative, and no percentage above 100, but value and spread together may say so.
    low, high = np.clip(interval(metric.value, samples), 0, 100 if metric.percent else None)
    low, high = min(float(low), metric.value), max(float(high), metric.value)  # also where rounding has its say
    return Result(replace(metric, signature=metric.signature + settings), low, high, samples)


def resamples(texts: int, replications: int, seed: int) -> Iterator[Array]:
    """How often each text is drawn in each bootstrap sample, some samples at a time; the same for all systems."""
    generator = np.random.default_rng(seed)
    for start in range(0, replications, _CHUNK):
        size = min(_CHUNK, replications - start)
        yield generator.multinomial(texts, np.full(texts, 1 / texts), size=size).astype(float)


def interval(value: float, samples: Array, confidence: float = 0.95) -> tuple[float, float]:
    """The value with the spread of its bootstrap samples round their mean.

    Not the samples' own quantiles: a sample has texts twice, so that its n-grams are less diverse than the text's, and
    plain quantiles of Dist or Entropy would not even contain the value.
    """
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(samples - samples.mean(), [tail, 100 - tail])
    return float(value + low), float(value + high)


def p_value(one: Result, other: Result) -> float | None:
    """Two-sided paired bootstrap: how often chance alone moves two systems as far apart as they are."""
    if one.samples is None or other.samples is None:
        return None
    difference = one.samples - other.samples
    extreme = np.abs(difference - difference.mean()) >= abs(one.metric.value - other.metric.value) - 1e-12
    return float((extreme.sum() + 1) / (len(difference) + 1))


def _additive(
    name: str,
    statistics: Array,
    formula: Callable[[Array], Array],
    signature: str,
    better: int,
    percent: bool = False,
    value: float | None = None,
) -> Metric:
    """A metric of sums over texts: statistics N K, and a formula from sums B K to values B."""
    if value is None:
        value = float(formula(statistics.sum(axis=0, keepdims=True))[0])
    return Metric(name, value, signature, better, percent, lambda weights: formula(weights @ statistics))


def _mean(name: str, values: Iterable[float], signature: str, better: int, percent: bool = False) -> Metric:
    column = np.array(list(values), float)[:, None]
    return _additive(
        name,
        np.hstack([column, np.ones_like(column)]),
        lambda sums: sums[:, 0] / sums[:, 1],
        signature,
        better,
        percent,
    )


def _needs(package: str) -> None:
    """Say which part of the package is missing, before something else fails."""
    try:
        __import__(package)
    except ImportError as error:
        raise missing_extra("Evaluation", package, "eval") from error


def _bleu(words: list[list[str]], expected: list[list[str]], form: str) -> list[Metric]:
    """Corpus BLEU of orders 1 to 4, cumulative: sacrebleu counts and scores."""
    _needs("sacrebleu")
    from sacrebleu.metrics.bleu import BLEU

    counter = BLEU(tokenize="none", smooth_method="none", effective_order=True)
    scores = [
        counter.sentence_score(" ".join(text), [" ".join(reference)])
        for text, reference in zip(words, expected, strict=True)
    ]
    # N K: words, reference words, matches of each order, n-grams of each order.
    statistics = np.array([[s.sys_len, s.ref_len, *s.counts, *s.totals] for s in scores], float)
    sums = statistics.sum(axis=0).astype(int).tolist()

    def formula(order: int) -> Callable[[Array], Array]:
        def bleu(sums: Array) -> Array:
            with np.errstate(divide="ignore", invalid="ignore"):
                precision = np.nan_to_num(sums[:, 2 : 2 + order] / sums[:, 6 : 6 + order])
                brevity = np.minimum(0, 1 - sums[:, 1] / sums[:, 0])
                scores: Array = 100 * np.exp(np.log(precision).mean(axis=1) + brevity)
            return scores

        return bleu

    return [
        _additive(
            f"BLEU-{n}",
            statistics,
            formula(n),
            f"BLEU-{n}|sacrebleu:{version('sacrebleu')}|form:{form}|tok:none|smooth:none|corpus|cumulative",
            1,
            True,
            BLEU.compute_bleu(sums[2 : 2 + n], sums[6 : 6 + n], sums[0], sums[1], max_ngram_order=n).score,
        )
        for n in ORDERS
    ]


def _nist(words: list[list[str]], expected: list[list[str]], form: str) -> list[Metric]:
    """Corpus NIST of orders 1 to 4: NLTK scores; the samples keep the information weights of all references."""
    _needs("nltk")
    from nltk.translate.nist_score import corpus_nist

    information = _information(expected)
    statistics = np.array(
        [_nist_statistics(text, reference, information) for text, reference in zip(words, expected, strict=True)]
    )

    def formula(order: int) -> Callable[[Array], Array]:
        def nist(sums: Array) -> Array:
            with np.errstate(divide="ignore", invalid="ignore"):
                gained = np.nan_to_num(sums[:, 2 : 2 + order] / sums[:, 6 : 6 + order]).sum(axis=1)
                ratio = np.minimum(1, sums[:, 0] / sums[:, 1])
                # Half as good where the text has two thirds of the words.
                scores: Array = gained * np.exp(np.log(0.5) / np.log(1.5) ** 2 * np.log(ratio) ** 2)
            return scores

        return nist

    longest = max(map(len, words))  # NLTK divides by zero where no text has an n-gram
    return [
        _additive(
            f"NIST-{n}",
            statistics,
            formula(n),
            f"NIST-{n}|nltk:{version('nltk')}|form:{form}|tok:none|corpus",
            1,
            value=float(corpus_nist([[reference] for reference in expected], words, n)) if longest >= n else None,
        )
        for n in ORDERS
    ]


def _ngrams(words: Sequence[str], n: int) -> list[tuple[str, ...]]:
    return list(zip(*(words[i:] for i in range(n)), strict=False))


def _information(expected: list[list[str]]) -> dict[tuple[str, ...], float]:
    """What an n-gram tells beyond its beginning, in bits, over all references."""
    counts: Counter[tuple[str, ...]] = Counter({(): sum(map(len, expected))})
    for words in expected:
        for n in ORDERS:
            counts.update(_ngrams(words, n))
    return {ngram: float(np.log2(counts[ngram[:-1]] / count)) for ngram, count in counts.items() if ngram}


def _nist_statistics(words: list[str], expected: list[str], information: dict[tuple[str, ...], float]) -> list[float]:
    """Words, reference words, information of the matches of each order, n-grams of each order."""
    gained, possible = [], []
    for n in ORDERS:
        matches = Counter(_ngrams(words, n)) & Counter(_ngrams(expected, n))
        gained.append(sum(information[ngram] * count for ngram, count in matches.items()))
        possible.append(max(0, len(words) - n + 1))
    return [len(words), len(expected), *gained, *possible]


def _diversity(words: list[list[str]], form: str) -> list[Metric]:
    """Entropy-1 to 4 (nats) and the share of distinct words and bigrams, over the whole corpus."""
    entropy, distinct = [], []
    for n in ORDERS:
        counts = _ngram_counts(words, n)
        signature = f"form:{form}|split:blanks|corpus"
        entropy.append(_of_counts(f"Entropy-{n}", counts, _entropy, f"Entropy-{n}|{signature}|nats", False))
        if n <= 2:
            distinct.append(_of_counts(f"Dist-{n}", counts, _distinct, f"Dist-{n}|{signature}", True))
    return entropy + distinct


def _ngram_counts(words: list[list[str]], n: int) -> Any:
    """How often each n-gram stands in each text, N V, sparse."""
    _needs("scipy")
    from scipy.sparse import csr_matrix

    columns: dict[tuple[str, ...], int] = {}
    rows, places = [], []
    for row, text in enumerate(words):
        for ngram in _ngrams(text, n):
            rows.append(row)
            places.append(columns.setdefault(ngram, len(columns)))
    return csr_matrix((np.ones(len(rows)), (rows, places)), shape=(len(words), max(1, len(columns))))


def _of_counts(name: str, counts: Any, formula: Callable[[Array], Array], signature: str, percent: bool) -> Metric:
    def of(weights: Array) -> Array:
        # In slices, since every sample counts every n-gram of the corpus.
        most = max(1, 10_000_000 // counts.shape[1])
        parts = [formula((counts.T @ weights[i : i + most].T).T) for i in range(0, len(weights), most)]
        return np.concatenate(parts)

    return Metric(name, float(of(np.ones((1, counts.shape[0])))[0]), signature, 1, percent, of)


def _entropy(counts: Array) -> Array:
    total = counts.sum(axis=1)
    spread = np.where(counts > 0, counts * np.log(np.maximum(counts, 1)), 0).sum(axis=1)
    return np.where(total > 0, np.log(np.maximum(total, 1)) - spread / np.maximum(total, 1), 0)


def _distinct(counts: Array) -> Array:
    return np.asarray(100 * (counts > 0).sum(axis=1) / np.maximum(counts.sum(axis=1), 1))


def _repetition(words: list[list[str]], form: str) -> list[Metric]:
    """Shares of texts with a word beside itself, and with the same three words twice."""
    doubled = [100.0 * any(a == b for a, b in pairwise(text)) for text in words]
    thrice = [100.0 * (len(set(found := _ngrams(text, 3))) < len(found)) for text in words]
    return [
        _mean("Doubled word", doubled, f"Doubled word|form:{form}|share of texts", -1, percent=True),
        _mean("Repeated 3-gram", thrice, f"Repeated 3-gram|form:{form}|share of texts", -1, percent=True),
    ]


def _length(words: list[list[str]], form: str) -> Metric:
    return _mean("Length", map(len, words), f"Length|form:{form}|split:blanks|mean of texts", 0)


def _ppl_ratio(one: Metric, losses: "Sequence[Loss]", expected: "Sequence[Loss]") -> Metric:
    """A perplexity divided by that of the references."""

    def ratio(sums: Array) -> Array:
        return np.exp(sums[:, 0] / sums[:, 1] - sums[:, 2] / sums[:, 3])

    name, signature = (text.replace("PPL", "PPL ratio", 1) for text in (one.name, one.signature))
    both = np.hstack([np.array(losses, float), np.array(expected, float)])
    return _additive(name, both, ratio, signature + "|over:references", 0)


def _coverage(system: System) -> list[Metric]:
    """Shares of constraints that the texts contain: in order and as often as asked, and anywhere."""
    if system.constraints is None:
        return []
    asked = np.array([len(constraints) for constraints in system.constraints], float)
    measures = []
    for name, missing in (("Coverage", missing_constraints), ("Coverage, any order", unplaced_constraints)):
        lost = [len(missing(text, words)) for text, words in zip(system.texts, system.constraints, strict=True)]
        found = np.stack([asked - lost, asked], axis=1)
        signature = f"{name}|whole words|any case|with multiplicity|share of constraints"
        measures.append(_additive(name, found, lambda sums: 100 * sums[:, 0] / sums[:, 1], signature, 1, True))
    return measures


def _decoding(system: System) -> list[Metric]:
    """Stages and time, for files that say so."""
    found = []
    if system.stages is not None:
        within = [100.0 * (stages <= 4) for stages in system.stages]
        found.append(_mean("Stages", system.stages, "Stages|that inserted something|mean of texts", 0))
        found.append(_mean("Within 4 stages", within, "Within 4 stages|share of texts", 0, percent=True))
    if system.seconds is not None:
        found.append(Metric("Seconds", system.seconds, "Seconds|decoding|as the file says|sum", -1, False))
    return found
