"""Importance scores worked out by hand, and what holds for every text."""

import gzip
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointer.errors import DataError, UsageError
from pointer.prepare.importance import Frequencies, Scorer, paper_scorer, tfidf
from pointer.prepare.rows import RowMaker, RowSettings
from pointer.prepare.yake import Yake, stop_words
from pointer.vocabulary import Vocabulary

FREQUENCIES = Frequencies(99, {"the": 99, "cat": 9, "sat": 4})
SCORER = paper_scorer(FREQUENCIES, Yake(stop_words("en")))


def test_three_words_score_as_worked_out_by_hand() -> None:
    [scores] = SCORER([["The", "cat", "sat"]])
    # idf = ln(100 / (df + 1)): 0, ln 10, ln 20; rescaled by the largest
    assert scores.parts["tfidf"] == pytest.approx([0, math.log(10) / math.log(20), 1])
    # determiner, noun, verb
    assert scores.parts["pos"].tolist() == [0, 1, 1]
    # YAKE by hand: "cat" has a neighbour on both sides (relatedness 3), "sat" on one (2); all else is equal, so
    # H = p * r / (1 / r + 1 / r) with p = ln ln 3, and the score is H / (H + 1)
    p = math.log(math.log(3))
    cat, sat = (h / (h + 1) for h in (p * 3 / (2 / 3), p * 2 / (2 / 2)))
    # turned round between the two: "cat" becomes sat's score and "sat" becomes cat's; "the" has none
    assert scores.parts["yake"] == pytest.approx([0, sat / cat, 1])
    assert scores.factor == pytest.approx([0.1, 1, 1])
    assert scores.alpha == pytest.approx([0, math.log(10) / math.log(20) + 1 + sat / cat, 3])


def test_stop_words_and_marks_are_low_and_repeats_decay() -> None:
    [scores] = SCORER([["cat", ",", "the", "cat", "and", "the", "CAT", "!"]])
    assert scores.factor == pytest.approx([1, 0.1, 0.1, 0.5, 0.1, 0.05, 0.25, 0.1])
    assert scores.alpha[0] > scores.alpha[3] > scores.alpha[6] > max(scores.alpha[[1, 2, 4, 5, 7]])


def test_a_component_that_is_the_same_everywhere_counts_nothing() -> None:
    [scores] = SCORER([["cats", "dogs"]])
    assert scores.parts["pos"].tolist() == [0, 0]


@settings(deadline=None)
@given(st.lists(st.sampled_from(["the", "cat", "sat", ".", ",", "New", "York", "1987", "naïve", "🎉"]), max_size=30))
def test_every_component_stays_between_0_and_1(words: list[str]) -> None:
    [scores] = SCORER([words])
    for part in scores.parts.values():
        assert len(part) == len(words) and ((part >= 0) & (part <= 1)).all()
    assert ((scores.alpha >= 0) & (scores.alpha <= 3)).all()


def test_the_pieces_of_a_word_share_its_score() -> None:
    vocabulary = Vocabulary.open("english")
    [row] = RowMaker(vocabulary, FREQUENCIES, RowSettings())(["an archaeologists' find"])
    pieces = np.flatnonzero(vocabulary.continues[row.ids])
    assert len(pieces) and (row.importance[pieces] == row.importance[pieces - 1]).all()


def test_a_component_can_be_replaced() -> None:
    length = Scorer({"length": lambda texts: [np.array([float(len(w)) for w in t]) for t in texts]}, frozenset())
    assert length([["a", "bbb", "cc"]])[0].alpha.tolist() == [0, 1, 0.5]


def test_french_is_scored_with_tfidf_alone() -> None:
    settings = RowSettings(importance=("tfidf",), language="fr")
    maker = RowMaker(Vocabulary.open("english"), Frequencies(9, {"le": 9, "chat": 2}), settings)
    [row], [encoding], [scores] = maker.scored_rows(["le chat dort"])
    assert list(scores.parts) == ["tfidf"]
    assert scores.factor.tolist() == [0.1, 1, 1]
    assert encoding.words == ["le", "chat", "dort"] and row.stage.max() == 1


def test_frequencies_come_back_from_their_file(tmp_path: Path) -> None:
    path = tmp_path / "frequencies.json.gz"
    path.write_bytes(FREQUENCIES.to_bytes())
    assert Frequencies.open(path) == FREQUENCIES
    assert path.read_bytes() == FREQUENCIES.to_bytes()


@pytest.mark.parametrize("table", ["", "not json", "[1]", '{"texts": 1}'])
def test_a_file_that_is_no_frequencies_is_one_sentence(tmp_path: Path, table: str) -> None:
    path = tmp_path / "frequencies.json.gz"
    path.write_bytes(gzip.compress(table.encode()) if table else b"not gzip")
    with pytest.raises(DataError, match="Expected document frequencies"):
        Frequencies.open(path)


def test_a_rare_word_scores_above_a_common_one() -> None:
    [scores] = tfidf(FREQUENCIES)([["the", "cat", "unheard"]])
    assert scores[0] < scores[1] < scores[2]


@pytest.mark.parametrize(
    "wrong", [{"importance": ("tfidf", "magic")}, {"tagger": "brill"}, {"skeleton": "bones"}, {"keywords": 99}]
)
def test_a_wrong_setting_is_named(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        RowSettings(**wrong)  # type: ignore[arg-type]
