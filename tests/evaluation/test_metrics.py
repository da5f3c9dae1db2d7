"""Metrics against values worked out by hand, against each other's tools, and intervals against exact small cases."""

import math
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.translate.bleu_score import corpus_bleu
from nltk.translate.nist_score import corpus_nist
from sacrebleu.metrics.bleu import BLEU

from pointer.errors import DataError, UsageError
from pointer.evaluation.metrics import Array, Evaluation, Evaluator, Metric, Result, interval, p_value, resamples
from pointer.evaluation.outputs import System
from pointer.evaluation.perplexity import Loss

REFERENCES = (
    "The harbour is quiet in the morning , and the gulls are asleep .",
    "A small boat leaves the harbour before the sun is up .",
    "Nobody in the town knows who painted the old lighthouse red .",
    "the cook buys fish at the harbour and bread in the town .",
)
TEXTS = (
    "The harbour is quiet, and the gulls sleep in the morning.",
    "a small boat left the harbour before the sun came up .",
    "Nobody knows who painted the lighthouse.",
    "The cook buys bread and fish in the town, the town is small.",
)


class Counting:
    """A scorer that charges a nat for every letter."""

    name = signature = "letters"
    form = "canonical"

    def losses(self, texts: list[str], progress: object = None) -> list[Loss]:
        return [Loss(float(len(text.replace(" ", ""))), len(text.split())) for text in texts]


def evaluated(texts: tuple[str, ...] = TEXTS, references: tuple[str, ...] = REFERENCES, **more: object) -> Evaluation:
    constraints = tuple((text.split()[0],) for text in texts)
    return Evaluator(references, replications=200, **more).evaluate(System("a", texts, constraints))  # type: ignore[arg-type]


def value(evaluation: Evaluation, name: str) -> float:
    return evaluation.results[name].metric.value


def words(texts: tuple[str, ...]) -> list[list[str]]:
    return Evaluator(REFERENCES).words(texts)


def test_entropy_and_dist_are_what_the_hand_finds() -> None:
    found = evaluated(("a a b", "a b"), ("x", "y"))
    # Words: a 3, b 2. Bigrams: aa 1, ab 2.
    assert value(found, "Entropy-1") == pytest.approx(-(0.6 * math.log(0.6) + 0.4 * math.log(0.4)))
    assert value(found, "Entropy-2") == pytest.approx(-(math.log(1 / 3) + 2 * math.log(2 / 3)) / 3)
    assert value(found, "Dist-1") == pytest.approx(40)
    assert value(found, "Dist-2") == pytest.approx(200 / 3)
    assert value(found, "Length") == 2.5
    assert value(found, "Entropy-4") == 0  # no text is that long
    assert value(found, "Doubled word") == 50


def test_bleu_is_what_the_hand_finds() -> None:
    # 5 of 6 words, 3 of 5 bigrams, as long as the reference: 100 * sqrt(5/6 * 3/5).
    found = evaluated(("the cat sat on a mat",), ("the cat sat on the mat",))
    assert value(found, "BLEU-1") == pytest.approx(100 * 5 / 6)
    assert value(found, "BLEU-2") == pytest.approx(100 * math.sqrt(5 / 6 * 3 / 5))
    # Half as long: brevity penalty exp(1 - 2).
    assert value(evaluated(("the cat sat",), ("the cat sat on the mat",)), "BLEU-2") == pytest.approx(100 / math.e)


def test_nist_is_what_the_hand_finds() -> None:
    # Of four different words each tells log2(4) bits; after a word its only successor tells nothing.
    found = evaluated(("a b c d",), ("a b c d",))
    assert value(found, "NIST-1") == pytest.approx(2) and value(found, "NIST-4") == pytest.approx(2)
    # Two thirds of the words: the penalty is one half.
    assert value(evaluated(("a b",), ("a b c",)), "NIST-1") == pytest.approx(math.log2(3) / 2)


def test_bleu_and_nist_agree_with_the_other_tool() -> None:
    found = evaluated()
    listed = [[reference] for reference in words(REFERENCES)]
    joined = [" ".join(text) for text in words(TEXTS)]
    for n in (1, 2, 3, 4):
        weights = tuple([1 / n] * n)
        assert value(found, f"BLEU-{n}") == pytest.approx(100 * corpus_bleu(listed, words(TEXTS), weights))
        sacre = BLEU(tokenize="none", smooth_method="none", max_ngram_order=n)
        whole = sacre.corpus_score(joined, [[" ".join(reference) for [reference] in listed]])
        assert value(found, f"BLEU-{n}") == pytest.approx(whole.score)
        assert value(found, f"NIST-{n}") == pytest.approx(corpus_nist(listed, words(TEXTS), n))


def test_case_and_spacing_cost_nothing_unless_lines_are_taken_raw() -> None:
    loud = tuple(text.upper().replace(" ,", ",").replace(" .", ".") for text in REFERENCES)
    assert value(evaluated(loud), "BLEU-4") == pytest.approx(100)
    assert value(evaluated(loud, raw=True), "BLEU-4") < 1


def test_every_formula_on_whole_sums_gives_the_value_of_its_tool() -> None:
    found = evaluated(scorers=(Counting(),))
    for result in found.results.values():
        if result.metric.of is not None:
            assert result.metric.of(np.ones((1, 4)))[0] == pytest.approx(result.metric.value), result.metric.name


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=4, max_size=4).filter(sum))
def test_a_weight_counts_like_a_repeated_text(weights: list[int]) -> None:
    """Bootstrap values equal those of the corpus that the sample stands for."""
    repeated = tuple(text for text, times in zip(TEXTS, weights, strict=True) for _ in range(times))
    references = tuple(text for text, times in zip(REFERENCES, weights, strict=True) for _ in range(times))
    of_sample = Evaluator(references, replications=0, scorers=(Counting(),)).evaluate(System("b", repeated))  # type: ignore[arg-type]
    for name, result in evaluated(scorers=(Counting(),)).results.items():
        if name in of_sample.results and result.metric.of is not None and not name.startswith("NIST"):
            got = result.metric.of(np.array([weights], float))[0]
            assert got == pytest.approx(value(of_sample, name)), name


def test_perplexity_is_also_a_ratio_to_that_of_people() -> None:
    found = evaluated(("aa b",), ("aaa b",), scorers=(Counting(),))
    assert value(found, "PPL") == pytest.approx(math.exp(3 / 2))
    assert value(found, "PPL ratio") == pytest.approx(math.exp(3 / 2 - 4 / 2))
    assert found.results["PPL"].metric.signature.startswith("PPL|letters|")
    assert found.results["PPL ratio"].metric.signature.startswith("PPL ratio|letters|")


@pytest.mark.parametrize(
    ("form", "raw", "read"),
    [
        ("canonical", False, ["it ' s 1 , 600 .", "it ' s 1 , 600 ."]),
        ("written", False, ["It's 1,600.", "It's 1,600."]),
        ("written", True, ["It ' s 1 , 600 .", "It's 1,600."]),
    ],
)
def test_a_scorer_reads_texts_and_references_in_its_own_form(form: str, raw: bool, read: list[str]) -> None:
    seen = []

    class Reading(Counting):
        def losses(self, texts: list[str], progress: object = None) -> list[Loss]:
            seen.extend(texts)
            return super().losses(texts)

    scorer = Reading()
    scorer.form = form
    found = evaluated(("It's 1,600.",), ("It ' s 1 , 600 .",), scorers=(scorer,), raw=raw)
    assert sorted(seen) == sorted(read)
    assert f"|form:{'raw' if raw else form}|" in found.results["PPL"].metric.signature


def test_a_scorer_that_has_nothing_to_say_is_one_sentence() -> None:
    class Silent(Counting):
        def losses(self, texts: list[str], progress: object = None) -> list[Loss]:
            return [Loss(0.0, 0) for _ in texts]

    with pytest.raises(DataError, match="Expected texts with at least one token to scorer, found none"):
        evaluated(scorers=(Silent(),))


def test_coverage_asks_for_order_and_number() -> None:
    evaluator = Evaluator(("x", "y"), replications=0)
    system = System("a", ("rice and beans", "rice, rice"), (("beans", "rice"), ("rice", "rice")))
    found = evaluator.evaluate(system)
    assert value(found, "Coverage") == 75 and value(found, "Coverage, any order") == 100


def test_an_interval_is_the_exact_one_where_all_samples_can_be_counted() -> None:
    """Three texts have 27 samples: the bootstrap's quantiles approach those of all of them."""
    lengths = np.array([1.0, 4.0, 7.0])
    all_samples = np.array([lengths[list(drawn)].mean() for drawn in product(range(3), repeat=3)])
    drawn = np.concatenate(list(resamples(3, 20_000, 0))) @ lengths / 3
    assert drawn.mean() == pytest.approx(all_samples.mean(), abs=0.03)
    assert drawn.std() == pytest.approx(all_samples.std(), abs=0.03)
    # Value 4; the outermost 2.5 % of 27 equally likely samples: the minimum 1 and the maximum 7 have 1/27 each.
    assert interval(4.0, drawn) == pytest.approx((1.0, 7.0), abs=0.05)


def test_an_interval_contains_its_value_also_where_samples_are_biased() -> None:
    """A sample repeats texts, so that all its Dist values are lower than that of the corpus."""
    result = evaluated().results["Dist-2"]
    assert result.samples is not None and result.samples.mean() < result.metric.value
    assert result.low is not None and result.high is not None and result.low < result.metric.value < result.high


def test_an_interval_stays_within_what_is_possible() -> None:
    # No word comes twice, but samples have words twice by different numbers: their spread alone would pass 100 %.
    result = Evaluator(REFERENCES, replications=200).evaluate(System("a", ("a", "b", "c", "d"))).results["Dist-1"]
    assert result.samples is not None and interval(100, result.samples)[1] > 100
    assert result.low is not None and 0 <= result.low < 100 and result.high == 100


def result_of(value: float, samples: Array) -> Result:
    return Result(Metric("m", value, "m", 1, False), None, None, samples)


def test_the_paired_test_is_exact_where_all_samples_can_be_counted() -> None:
    """Differences -1, 0.3, 4: of the 27 samples' means, those as far from the mean 1.1 as 1.1 is from 0 are counted."""
    differences = np.array([-1.0, 0.3, 4.0])
    means = np.array([differences[list(drawn)].mean() for drawn in product(range(3), repeat=3)])
    exact = (np.abs(means - means.mean()) >= 1.1).mean()
    weights = np.concatenate(list(resamples(3, 20_000, 0)))
    found = p_value(result_of(1.1, weights @ differences / 3), result_of(0.0, np.zeros(20_000)))
    assert found == pytest.approx(exact, abs=0.02)


def test_a_system_does_not_differ_from_itself_and_differs_from_a_worse_one() -> None:
    many, references = TEXTS * 30, REFERENCES * 30
    good, same = evaluated(many, references), evaluated(many, references)
    bad = evaluated(tuple(text[::-1] for text in many), references)
    assert p_value(good.results["BLEU-1"], same.results["BLEU-1"]) == 1
    assert p_value(good.results["BLEU-1"], bad.results["BLEU-1"]) == pytest.approx(1 / 201)


def test_numbers_do_not_change_from_run_to_run_and_say_what_made_them() -> None:
    one, two = evaluated(), evaluated()
    for name in one.results:
        assert one.results[name][1:3] == two.results[name][1:3]
    assert one.results["BLEU-4"].metric.signature.endswith("|bs:200|seed:0")


def test_files_that_do_not_belong_together_are_one_sentence() -> None:
    with pytest.raises(DataError, match="a text for each of 4 references, found 1 of a"):
        evaluated(("one",))
    with pytest.raises(UsageError, match="bootstrap: expected 0 or more"):
        Evaluator(REFERENCES, replications=-1)


JAVA = """#!/bin/sh
# Answers as METEOR 1.5 does: a line of statistics for each text, then a score for each and one for all.
while read -r line; do
  case $line in
    SCORE*) echo "1 1" ;;
    EVAL*) printf '0.5\\n0.25\\n0.375\\n' ;;
  esac
done
"""


def test_meteors_own_program_is_asked_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "java").write_text(JAVA)
    (tmp_path / "java").chmod(0o755)
    (tmp_path / "meteor-1.5.jar").touch()
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    evaluator = Evaluator(("a dog barks", "it rains"), replications=0, meteor_jar=tmp_path / "meteor-1.5.jar")
    found = evaluator.evaluate(System("ours", ("a dog", "rain"))).results
    assert found["METEOR 1.5"].metric.value == 37.5 and found["METEOR"].metric.value != 37.5
    assert found["METEOR 1.5"].metric.signature.startswith("METEOR 1.5|jar|")
    with pytest.raises(UsageError, match=r"expected a file, found none at .*other\.jar"):
        replace(evaluator, meteor_jar=tmp_path / "other.jar").evaluate(System("ours", ("a dog", "rain")))
