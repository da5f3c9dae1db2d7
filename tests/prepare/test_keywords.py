"""Keywords as the paper draws them for testing."""

import os
import subprocess
import sys

import pytest

from pointer.errors import UsageError
from pointer.prepare.explain import explain
from pointer.prepare.keywords import keywords, keywords_of_many
from pointer.prepare.rows import RowSettings

TEXT = "Great food, great drinks and great music in 1987: the harbour café served 20 dishes of fresh fish."


def test_keywords_stand_in_text_order_without_stop_words_and_numbers() -> None:
    found = keywords(TEXT, most=16)
    remaining = iter(TEXT.lower().replace(",", " ").replace(":", " ").replace(".", " ").split())
    assert all(word in remaining for word in found)
    assert not {"and", "in", "the", "of", "1987", "20"} & set(found)


def test_a_repeated_word_comes_as_often_as_it_stands_there() -> None:
    assert keywords(TEXT, most=16).count("great") == 3


@pytest.mark.parametrize("most", [1, 3, 7])
def test_there_are_never_more_than_asked_for(most: int) -> None:
    assert len(keywords(TEXT, most)) == most


def test_seeds_draw_differently_and_each_always_the_same() -> None:
    draws = {tuple(keywords(TEXT, 3, seed)) for seed in range(20)}
    assert len(draws) > 1
    assert keywords(TEXT, 3, seed=5) == keywords(TEXT, 3, seed=5)


def test_the_hash_seed_changes_nothing() -> None:
    program = f"from pointer.prepare.keywords import keywords; print(keywords({TEXT!r}, 4))"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(outputs) == 1


def test_a_text_without_keywords_gives_none() -> None:
    assert keywords("it is to be") == keywords("") == keywords("12 , 34 !") == []


def test_an_impossible_number_is_one_sentence() -> None:
    with pytest.raises(UsageError, match="max: expected a number from 1 to 16, found 0"):
        keywords(TEXT, 0)


def test_a_keywords_skeleton_keeps_what_pointer_keywords_draws() -> None:
    skeleton = explain(TEXT, settings=RowSettings(skeleton="keywords", keywords=4, seed=3)).stages[0]
    pieces = "".join(token.text if token.text.startswith("##") else f" {token.text}" for token in skeleton)
    assert pieces.replace("##", "").split() == keywords(TEXT, 4, seed=3)


def test_many_texts_get_what_each_gets_alone(sentences: list[str]) -> None:
    assert list(keywords_of_many(sentences, 5, 3)) == [keywords(text, 5, 3) for text in sentences]
