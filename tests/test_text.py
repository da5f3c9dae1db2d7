"""Normalising, splitting and casing, as a reader of the output would judge them."""

from hypothesis import given
from hypothesis import strategies as st

from pointer.text import Casing, normalise, split_sentences


@given(st.text())
def test_normalising_twice_changes_nothing_more(text: str) -> None:
    once = normalise(text)
    assert normalise(once) == once
    assert once == " ".join(once.split())


def test_typography_and_invisible_characters_become_plain_text() -> None:
    assert normalise("\ufeffIt\u2019s \u201cfine\u201d\u2026 co\u00adop\u200b\r\n") == 'It\'s "fine"... co op'


@given(st.text(st.characters(codec="utf-8")))
def test_sentences_joined_again_are_the_text(text: str) -> None:
    normal = normalise(text)
    assert " ".join(split_sentences(normal)) == normal


def test_abbreviations_numbers_and_initials_end_no_sentence() -> None:
    text = "Mr. J. R. Smith of St. Louis, e.g. the U.S. one, owes approx. 3.5 million. He pays."
    assert split_sentences(text) == [text[: -len(" He pays.")], "He pays."]


def test_quotes_stay_with_the_sentence_they_close() -> None:
    assert split_sentences('"Stop!" He ran. (Or so.) Then?') == ['"Stop!"', "He ran.", "(Or so.)", "Then?"]


def test_text_with_spaces_round_its_marks_is_split_in_lower_case_too() -> None:
    assert split_sentences("the food was good . we ' ll be back ! soon") == [
        "the food was good .",
        "we ' ll be back !",
        "soon",
    ]


def test_casing_is_learned_away_from_sentence_starts_only() -> None:
    casing = Casing()
    casing.add([["Nobody", "saw", "NASA", "."], ["Nobody", "told", "NASA", "."], ["Go", "to", "NASA", "!", "Now"]])
    assert casing.table() == {"words": {"nasa": "NASA"}, "pairs": {}}


def test_a_pair_is_kept_only_where_its_words_alone_would_be_wrong() -> None:
    casing = Casing()
    casing.add([["from", "New", "York", "to", "San", "Jose"]] * 4 + [["a", "new", "car"]] * 9)
    assert casing.table()["pairs"] == {"new york": "New York"}


def test_headings_and_shouting_make_no_pairs() -> None:
    casing = Casing()
    shouted = ["it", "was", "SO", "GOOD", "in", "Paris", "and", "in", "a", "hall", "In", "Paris", "for", "a", "day"]
    casing.add([shouted, ["the", "sign", "said", "Customer", "Service", "in", "blue", "letters"]] * 4)
    assert casing.table()["pairs"] == {}


def test_shouting_teaches_nothing() -> None:
    casing = Casing()
    casing.add([["THE", "FOOD", "WAS", "COLD", "!"]] * 9)
    assert casing.table() == {"words": {}, "pairs": {}}
