"""The rules of the preset `default`, each by itself and all under hostile logits; what every preset does."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripted import HOSTILE, WORDS, Answer, hostile, scripted, small_vocabulary

from pointer.checkpoint import TABLES
from pointer.decoding.generator import Generation
from pointer.decoding.presets import PRESETS, Preset
from pointer.decoding.rules import RULES, Insertion
from pointer.english import SENTENCE_MARKS
from pointer.evaluation.metrics import canonical
from pointer.prepare.importance import Frequencies
from pointer.stage import births
from pointer.vocabulary import Vocabulary

STRICT = replace(PRESETS["default"], full_stop=False)
constraint = st.lists(st.sampled_from([*WORDS, "🎉", "foods", "it's", "600"]), min_size=1, max_size=3).map(" ".join)
decodings = st.sampled_from(
    [
        {"decoding": "greedy"},
        {"decoding": "greedy", "rounds": 2},
        {"decoding": "sample", "temperature": 2.0},
        {"decoding": "beam", "width": 3, "rounds": 2},
        {"decoding": "beam", "width": 2, "rounds": 0, "n": 2},
    ]
)


def only(*rules: str) -> Preset:
    """A preset that does nothing but keep these rules."""
    return Preset(rules=frozenset(rules))


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    return small_vocabulary(tmp_path_factory.mktemp("vocabulary"))


def words(generation: Generation) -> list[tuple[str, bool]]:
    """The words of a text, and whether each was asked for."""
    found: list[tuple[str, bool]] = []
    for token, born in zip(generation.tokens, births(generation.stages).tolist(), strict=True):
        if token.startswith("##"):
            found[-1] = (found[-1][0] + token[2:], found[-1][1])
        else:
            found.append((token, born == 0))
    return found


def repetitions(generation: Generation) -> list[tuple[str, ...]]:
    """Words beside themselves and three words that stand twice, unless all were asked for."""
    text = words(generation)
    doubled = [(a, b) for (a, asked), (b, also) in pairwise(text) if a == b and not (asked and also)]
    rows = list(zip(text, text[1:], text[2:], strict=False))
    spelt = [tuple(word for word, _ in row) for row in rows]
    return doubled + [
        said for said, row in zip(spelt, rows, strict=True) if spelt.count(said) > 1 and not all(a for _, a in row)
    ]


def wanting(vocabulary: Vocabulary, wishes: dict[str, float]) -> Answer:
    """A model that wants the same in every gap."""
    logits = np.full(len(vocabulary), -9.0)
    logits[[vocabulary.id(token) for token in wishes]] = list(wishes.values())
    return lambda ids, position: logits


def fond(vocabulary: Vocabulary, answer: Answer, tokens: Sequence[str], how_much: float) -> Answer:
    """The same model, but that it likes some tokens better."""
    liked = [vocabulary.id(token) for token in tokens]

    def fonder(ids: list[int], position: int) -> np.ndarray:
        logits = answer(ids, position).copy()
        logits[liked] += how_much
        return logits

    return fonder


def whatever_the_model_says(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test for every mood of a model, with lists, options and seeds of all kinds."""
    drawn = given(
        asked=st.lists(st.lists(constraint, min_size=1, max_size=4), min_size=8, max_size=8),
        options=decodings,
        seed=st.integers(0, 9),
    )(test)
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    often = settings(max_examples=16, deadline=None, suppress_health_check=slow)(drawn)
    return pytest.mark.parametrize("mood", HOSTILE)(often)


@whatever_the_model_says
def test_nothing_is_said_twice_whatever_the_model_says(
    vocabulary: Vocabulary, mood: str, asked: list[list[str]], options: dict[str, object], seed: int
) -> None:
    pointer = scripted(vocabulary, hostile(vocabulary, mood, seed), preset=STRICT)
    for generations in pointer.generate_many(asked, **options, max_length=30, max_stages=6):
        for generation in generations:
            assert not repetitions(generation), generation.text


def test_nothing_is_said_twice_where_few_words_are_all_that_a_model_knows(vocabulary: Vocabulary) -> None:
    wishes = {"the": 9.0, "is": 8.5, "a": 8.0, "to": 7.5, "food": 7.0, "##s": 7.0, "[NOI]": -9.0}
    pointer = scripted(vocabulary, wanting(vocabulary, wishes), preset=STRICT)
    found = pointer.generate(["great", "music", "great"], max_length=60, max_stages=8)
    assert len(found.tokens) > 20 and not repetitions(found)
    text = canonical(found.text).split()
    rows = list(zip(text, text[1:], text[2:], strict=False))
    assert len(set(rows)) == len(rows), "in the words that are measured"


def test_constraints_may_repeat_each_other(vocabulary: Vocabulary) -> None:
    pointer = scripted(vocabulary, hostile(vocabulary, "insert", 1), preset=STRICT)
    found = pointer.generate(["very very clean", "very very clean"], max_stages=2)
    assert found.text.lower().count("very very clean") == 2 and not repetitions(found)


def test_a_gap_takes_the_next_candidate_where_the_best_would_repeat_three_words(vocabulary: Vocabulary) -> None:
    model = wanting(vocabulary, {"is": 9.0, "was": 5.0, "[NOI]": 0.0})
    pointer = scripted(vocabulary, model, preset=only("no_repeat_ngram"))
    found = pointer.generate("food; great; food; great", max_stages=1, lock_start=True, lock_end=True)
    assert found.tokens == ("food", "is", "great", "is", "food", "was", "great")


def test_a_word_of_pieces_does_not_become_its_neighbour(vocabulary: Vocabulary) -> None:
    def plural(ids: list[int], position: int) -> np.ndarray:
        logits = np.full(len(vocabulary), -9.0)
        first = len(ids) == 4
        logits[vocabulary.id("food" if first else "##s")] = 9.0 if position == 2 or not first else -20.0
        logits[vocabulary.noi] = 0.0
        return logits

    for rules, text in ((Preset(), "foods foods"), (only("no_repeat"), "foods food")):
        found = scripted(vocabulary, plural, preset=rules).generate("foods", max_stages=2)
        assert found.text.lower() == text


def test_a_draw_that_is_refused_leaves_its_gap_empty_and_not_the_text(vocabulary: Vocabulary) -> None:
    pointer = scripted(vocabulary, wanting(vocabulary, {"food": 90.0}), preset=only("no_repeat"))
    found = pointer.generate("food; food; rice", decoding="sample", max_stages=1)
    assert found.tokens == ("food", "food", "rice", "food"), "beside itself it does not go"


def between(vocabulary: Vocabulary, wishes: dict[str, dict[str, float]]) -> Answer:
    """A model whose wishes depend on the two tokens beside a gap; elsewhere it wants nothing."""

    def answer(ids: list[int], position: int) -> np.ndarray:
        beside = " ".join(vocabulary.tokens[i] for i in ids[position : position + 2])
        return wanting(vocabulary, wishes.get(beside, {"[NOI]": 99.0}))(ids, position)

    return answer


@whatever_the_model_says
def test_a_hyphen_stands_between_words_that_it_can_join_and_marks_stand_apart(
    vocabulary: Vocabulary, mood: str, asked: list[list[str]], options: dict[str, object], seed: int
) -> None:
    answer = fond(vocabulary, hostile(vocabulary, mood, seed), (".", ",", "!", "-"), 9.0)
    pointer = scripted(vocabulary, answer, preset=STRICT)
    for [generation, *_] in pointer.generate_many(asked, **options, max_length=30, max_stages=6):
        said = [("[CLS]", True), *words(generation), ("[SEP]", True)]
        for (before, first), (word, was_asked), (after, last) in zip(said, said[1:], said[2:], strict=False):
            assert was_asked or word != "-" or not (first or last), generation.tokens
            bars = {*SENTENCE_MARKS, "[CLS]"}
            assert was_asked or word not in SENTENCE_MARKS or not {before, after} & bars, generation.tokens


@pytest.mark.parametrize("decoding", [{}, {"rounds": 2}, {"decoding": "sample"}, {"decoding": "beam"}])
def test_no_digits_are_put_beside_a_number_of_the_user(vocabulary: Vocabulary, decoding: dict[str, object]) -> None:
    model = wanting(vocabulary, {"0": 9.0, ",": 8.5, "7": 8.0, "food": 1.0})
    free = scripted(vocabulary, model, preset=Preset()).generate("5; rice", max_stages=2, **decoding)
    assert "0" in free.tokens
    found = scripted(vocabulary, model, preset=only("numbers_apart")).generate("5", max_stages=3, **decoding)
    start, end = found.spans[0]
    around = found.text[:start].rstrip(" .,:")[-1:] + found.text[end:].lstrip(" .,:")[:1]
    assert not any(map(str.isdigit, around)), found.text


FREQUENCIES = Frequencies(100, {"cleaning": 9, "great": 9, "food": 9, "rice": 9, "music": 9}).to_bytes()


@whatever_the_model_says
def test_only_words_of_the_training_texts_and_the_marks_of_the_preset_are_inserted(
    vocabulary: Vocabulary, mood: str, asked: list[list[str]], options: dict[str, object], seed: int
) -> None:
    preset = Preset(whole_words=True, marks=".,")
    pointer = scripted(vocabulary, hostile(vocabulary, mood, seed), preset=preset, files={TABLES[1]: FREQUENCIES})
    for generations in pointer.generate_many(asked, max_length=40, **options):
        for generation in generations:
            inserted = [word for word, was_asked in words(generation) if not was_asked]
            assert all(word in {"great", "food", "rice", "music", ".", ","} or word.isdigit() for word in inserted)


def test_without_a_table_of_words_all_whole_tokens_are_words(vocabulary: Vocabulary) -> None:
    model = wanting(vocabulary, {"clean": 9.0, "##s": 99.0})
    found = scripted(vocabulary, model, preset=Preset(whole_words=True)).generate("food", max_stages=1)
    assert found.tokens == ("clean", "food", "clean")


def test_samples_are_drawn_from_what_is_likely_enough(vocabulary: Vocabulary) -> None:
    model = wanting(vocabulary, {"food": 9.0, "rice": 8.0, "york": 5.0})
    pointer = scripted(vocabulary, model)
    for min_p, drawn in ((0.0, {"food", "rice", "york"}), (0.4, {"food", "rice"}), (1.0, {"food"})):
        options = {"preset": "plain", "decoding": "sample", "temperature": 3.0, "top_k": 3, "max_stages": 1}
        texts = [pointer.generate("great", min_p=min_p, seed=seed, **options) for seed in range(40)]
        assert {token for text in texts for token in text.tokens} - {"great"} == drawn


def test_a_word_that_is_there_already_costs_the_presence_penalty(vocabulary: Vocabulary) -> None:
    pointer = scripted(vocabulary, wanting(vocabulary, {"great": 9.0, "food": 8.0, "the": 7.5}))
    for penalty, word in ((0.0, "great"), (0.9, "great"), (1.1, "food")):
        found = pointer.generate("great", preset="plain", presence_penalty=penalty, max_stages=1)
        assert found.tokens == (word, "great", word)
    stops = pointer.generate("the; great; food", preset="plain", presence_penalty=5.0, max_stages=1)
    assert set(stops.tokens) == {"the", "great", "food"} and stops.tokens.count("the") == 5, "stop words cost nothing"


def test_whether_anything_is_missing_may_be_decided_before_what_it_is(vocabulary: Vocabulary) -> None:
    """Nothing has 0.4 here, and ten words have 0.06 each."""
    some = ["great", "food", "music", "clean", "staff", "friendly", "love", "rice", "back", "place"]
    model = wanting(vocabulary, {"[NOI]": 9 + np.log(0.4)} | {word: 9 + np.log(0.06) for word in some})
    ask = {"constraints": "drinks", "max_stages": 1}
    best, first = (scripted(vocabulary, model, preset=Preset(gap_first=is_first)) for is_first in (False, True))
    assert best.generate(**ask).tokens == ("drinks",)  # 0.4 is more than 0.06
    assert len(first.generate(**ask).tokens) == 3  # but less than 0.6
    likelier = scripted(vocabulary, model, preset=Preset(gap_first=True, noi=0.5))
    assert likelier.generate(**ask).tokens == ("drinks",)
    # Draws are among all words anyway: the same texts, and offsets of words do not change how many there are.
    for preset in (Preset(gap_first=True), Preset(gap_first=True, delay=(-20.0,))):
        drawn = scripted(vocabulary, model, preset=preset)
        texts = [drawn.generate(**ask, decoding="sample", min_p=0.0, seed=seed).tokens for seed in range(200)]
        assert np.mean([len(tokens) - 1 for tokens in texts]) / 2 == pytest.approx(0.6, abs=0.07)


def test_every_preset_does_to_probabilities_what_it_says(vocabulary: Vocabulary) -> None:
    """By stage: `the` against `food` against nothing, on a model whose answer is always the same."""

    def first(preset: str, wishes: dict[str, float], stages: int = 1) -> tuple[str, ...]:
        return (
            scripted(vocabulary, wanting(vocabulary, wishes)).generate("great", preset=preset, max_stages=stages).tokens
        )

    # The paper multiplies the logits of stop words and [NOI] by 0.5 at the first stage and by 1 from then on.
    assert first("paper", {"the": 9.0, "food": 5.0}) == ("food", "great", "food")
    assert first("paper", {"the": 9.0, "food": 4.0}) == ("the", "great", "the")
    assert first("paper", {"[NOI]": 9.0, "food": 5.0}, 2) == ("food", "great", "food"), "and then nothing more"
    assert first("plain", {"the": 9.0, "food": 5.0}) == ("the", "great", "the")
    assert first("plain", {"[NOI]": 9.0, "food": 5.0}, 2) == ("great",)
    # `default` lets stop words wait: 2 off their log-probability at the first stage, 1 at the second.
    assert first("default", {"the": 9.0, "food": 7.5})[0] == "food"
    assert first("default", {"the": 9.0, "food": 6.5})[0] == "the"
    # And it takes 4 off that of [NOI], which stands against all words together.
    assert first("default", {"[NOI]": 9.0, "food": 5.5})[0] == "food"
    assert first("default", {"[NOI]": 9.0, "food": 4.5}) == ("great", "."), "but for the full stop"


def test_the_beam_search_of_the_paper_goes_gap_by_gap(vocabulary: Vocabulary) -> None:
    seen: list[int] = []

    def answer(ids: list[int], position: int) -> np.ndarray:
        seen.append(position)
        return wanting(vocabulary, {"[NOI]": 9.0})(ids, position)

    scripted(vocabulary, answer).generate("great; food", preset="paper", decoding="beam", width=1, max_stages=1)
    assert len(seen) == 3, "one question for each gap, left to right"


@pytest.mark.parametrize(
    ("rule", "text", "place", "is_refused"),
    [
        ("no_repeat", "[CLS] the food food", 2, True),
        ("no_repeat", "[CLS] the food", 1, False),
        ("no_repeat_ngram", "[CLS] food is great , food is great", 3, True),
        ("no_repeat_ngram", "[CLS] food is great , food is good", 3, False),
        ("marks_apart", "[CLS] , food", 1, True),
        ("marks_apart", "[CLS] food , .", 2, True),
        ("marks_apart", "[CLS] food , rice", 2, False),
        ("hyphens", "[CLS] a well - known", 3, False),
        ("hyphens", "[CLS] - known", 1, True),
        ("hyphens", "[CLS] well -", 2, True),
        ("numbers_apart", "[CLS] 7 rice", 1, False),
        ("numbers_apart", "[CLS] rice 7", 2, False),
    ],
)
def test_a_rule_refuses_what_it_says(rule: str, text: str, place: int, is_refused: bool) -> None:
    said = text.split()
    assert RULES[rule](Insertion(said, place, [i == 0 for i in range(len(said))])) == is_refused
