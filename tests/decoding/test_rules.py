"""The rules of the preset `default`: no words in a row twice, no word beside itself, nothing said too often."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripted import HOSTILE, WORDS, Answer, hostile, scripted, small_vocabulary

from pointer.decoding.generator import Generation
from pointer.decoding.lexicon import is_contracted
from pointer.decoding.revision import births
from pointer.decoding.schedule import ARTICLES, PRESETS, Preset
from pointer.evaluation.metrics import canonical
from pointer.prepare.importance import Frequencies
from pointer.vocabulary import Vocabulary

RULES = replace(PRESETS["default"], distinct=True, repeat_ngram=3)
constraint = st.lists(st.sampled_from([*WORDS, "🎉", "foods", "it's", "600"]), min_size=1, max_size=3).map(" ".join)
decodings = st.sampled_from(
    [
        {"decoding": "greedy"},
        {"decoding": "greedy", "blocks": 2},
        {"decoding": "sample", "temperature": 2.0},
        {"decoding": "beam", "width": 3, "blocks": 2},
        {"decoding": "beam", "width": 2, "blocks": 0, "n": 2},
        {"decoding": "greedy", "revisions": 2, "noi_offset": 6.0},
        {"decoding": "sample", "revisions": 1, "noi_offset": 6.0},
    ]
)


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
    """One or two words and articles beside themselves, three words that stand twice, unless all were asked for."""
    text = words(generation)
    beside = [(a, b) for (a, asked), (b, also) in pairwise(text) if not (asked and also)]
    doubled = [(a, b) for a, b in beside if a == b or {a, b} <= ARTICLES]
    for four in zip(text, text[1:], text[2:], text[3:], strict=False):
        a, b, c, d = (word for word, _ in four)
        doubled += [(a, b)] if (a, b) == (c, d) and not all(asked for _, asked in four) else []
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
    pointer = scripted(vocabulary, hostile(vocabulary, mood, seed), calibrated=RULES)
    for generations in pointer.generate_many(asked, **options, max_length=30, max_stages=6):
        for generation in generations:
            assert not repetitions(generation), generation.text


def test_nothing_is_said_twice_where_few_words_are_all_that_a_model_knows(vocabulary: Vocabulary) -> None:
    wishes = {"the": 9.0, "is": 8.5, "a": 8.0, "to": 7.5, "food": 7.0, "##s": 7.0, "[NOI]": -9.0}
    pointer = scripted(vocabulary, wanting(vocabulary, wishes), calibrated=RULES)
    found = pointer.generate(["great", "music", "great"], max_length=60, max_stages=8)
    assert len(found.tokens) > 20 and not repetitions(found)
    text = canonical(found.text).split()
    rows = list(zip(text, text[1:], text[2:], strict=False))
    assert len(set(rows)) == len(rows), "in the words that are measured"


def test_a_text_does_not_begin_with_a_sentence_mark_unless_that_was_asked_for(vocabulary: Vocabulary) -> None:
    model = wanting(vocabulary, {",": 9.0, "the": 5.0, "[NOI]": 0.0})
    pointer = scripted(vocabulary, model, calibrated=Preset(distinct=True))
    assert pointer.generate("food", max_stages=1).tokens == ("the", "food", ",")
    assert pointer.generate(", food", max_stages=1, lock_start=True).tokens == (",", "food", ",")


def test_constraints_may_repeat_each_other(vocabulary: Vocabulary) -> None:
    pointer = scripted(vocabulary, hostile(vocabulary, "insert", 1), calibrated=RULES)
    found = pointer.generate(["very very clean", "very very clean"], max_stages=2)
    assert found.text.lower().count("very very clean") == 2 and not repetitions(found)


def test_a_gap_takes_the_next_candidate_where_the_best_would_repeat_three_words(vocabulary: Vocabulary) -> None:
    model = wanting(vocabulary, {"is": 9.0, "was": 5.0, "[NOI]": 0.0})
    pointer = scripted(vocabulary, model, calibrated=Preset(repeat_ngram=3))
    found = pointer.generate("food; great; food; great", max_stages=1, lock_start=True, lock_end=True)
    assert found.tokens == ("food", "is", "great", "is", "food", "was", "great")


def test_a_word_of_pieces_does_not_become_its_neighbour(vocabulary: Vocabulary) -> None:
    def plural(ids: list[int], position: int) -> np.ndarray:
        logits = np.full(len(vocabulary), -9.0)
        first = len(ids) == 4
        logits[vocabulary.id("food" if first else "##s")] = 9.0 if position == 2 or not first else -20.0
        logits[vocabulary.noi] = 0.0
        return logits

    for rules, text in ((Preset(), "foods foods"), (Preset(distinct=True), "foods food")):
        found = scripted(vocabulary, plural, calibrated=rules).generate("foods", max_stages=2)
        assert found.text.lower() == text


def test_a_draw_that_is_refused_leaves_its_gap_empty_and_not_the_text(vocabulary: Vocabulary) -> None:
    pointer = scripted(vocabulary, wanting(vocabulary, {"food": 90.0}), calibrated=Preset(distinct=True))
    found = pointer.generate("great; music; rice", decoding="sample", max_stages=1)
    assert found.tokens.count("food") == 1 and found.stopped == "max_stages"


def test_stop_words_cost_more_the_more_of_them_there_are(vocabulary: Vocabulary) -> None:
    model = wanting(vocabulary, {"the": 9.0, "a": 8.0, "is": 7.0, "[NOI]": 5.5})
    often = scripted(vocabulary, model, calibrated=Preset()).generate("food; great; music", max_stages=1)
    assert often.tokens.count("the") == 4
    seldom = scripted(vocabulary, model, calibrated=Preset(stop_penalty=1.2)).generate(
        "food; great; music", max_stages=1
    )
    assert sorted(set(seldom.tokens) - {"food", "great", "music"}) == ["a", "is", "the"]
    assert seldom.tokens.count("the") == 2, "9, 8, 7.8 (the again), 7"


def test_an_apostrophe_costs_nothing_however_many_there_are(vocabulary: Vocabulary) -> None:
    model = wanting(vocabulary, {"'": 9.0, "[NOI]": 5.0})
    found = scripted(vocabulary, model, calibrated=Preset(stop_penalty=9.0)).generate("food; great", max_stages=1)
    assert found.tokens.count("'") == 3


def test_a_word_that_is_common_everywhere_loses_to_one_that_belongs_here(vocabulary: Vocabulary) -> None:
    model = wanting(vocabulary, {"food": 9.0, "rice": 8.0})
    frequencies = Frequencies(10_000, {"food": 3000, "the": 9000, "rice": 2}).to_bytes()
    for weight, word in ((0.0, "food"), (0.1, "food"), (0.5, "rice")):
        pointer = scripted(vocabulary, model, calibrated=Preset(common=(weight,)), frequencies=frequencies)
        assert pointer.generate("great", max_stages=1).tokens == (word, "great", word)
    stops = scripted(
        vocabulary,
        wanting(vocabulary, {"the": 9.0, "a": 8.0}),
        calibrated=Preset(common=(9.0,)),
        frequencies=frequencies,
    )
    assert stops.generate("great", max_stages=1).tokens == ("the", "great", "the"), "stop words have their own penalty"


@pytest.mark.parametrize(("plausible", "chosen"), [(0.0, "york"), (0.01, "york"), (0.1, "rice"), (0.9, "food")])
@pytest.mark.parametrize("decoding", [{}, {"blocks": 2}, {"decoding": "beam"}])
def test_a_rare_word_has_to_be_plausible(
    vocabulary: Vocabulary, decoding: dict[str, object], plausible: float, chosen: str
) -> None:
    """By rarity alone it would always be York; that nothing at all is likelier still does not count."""
    model = wanting(vocabulary, {"food": 9.0, "rice": 8.0, "york": 5.0, "[NOI]": 15.0})
    table = Frequencies(10_000, {"food": 3000, "rice": 1000, "york": 2}).to_bytes()
    preset = Preset(noi=(-99.0, 0.0), common=(9.0,), plausible=plausible)
    found = scripted(vocabulary, model, calibrated=preset, frequencies=table).generate("great", **decoding)
    assert found.tokens == (chosen, "great", chosen), "and then nothing goes in, as [NOI] is always plausible"


def test_samples_are_drawn_from_what_is_plausible(vocabulary: Vocabulary) -> None:
    model = wanting(vocabulary, {"food": 9.0, "rice": 8.0, "york": 5.0})
    for plausible, drawn in ((0.0, {"food", "rice", "york"}), (0.1, {"food", "rice"})):
        pointer = scripted(vocabulary, model, calibrated=Preset(plausible=plausible))
        texts = [
            pointer.generate("great", decoding="sample", temperature=3.0, top_k=3, max_stages=1, seed=seed)
            for seed in range(40)
        ]
        assert {token for text in texts for token in text.tokens} - {"great"} == drawn


def test_draws_do_not_make_a_text_longer_because_there_are_many_words(vocabulary: Vocabulary) -> None:
    """Every word is less likely than nothing, but all of them together are likelier."""
    model = wanting(
        vocabulary, dict.fromkeys(["food", "rice", "music", "staff", "place", "great"], 1.0) | {"[NOI]": 2.0}
    )
    lengths = {}
    for drawn in (0.0, 3.0):
        pointer = scripted(vocabulary, model, calibrated=Preset(drawn=drawn))
        assert pointer.generate("clean").tokens == ("clean",)
        texts = [pointer.generate("clean", decoding="sample", max_stages=1, seed=seed) for seed in range(60)]
        lengths[drawn] = sum(len(text.tokens) - 1 for text in texts)
    assert lengths[0.0] > 60 and lengths[3.0] < 30, "69 % and 10 % of 120 gaps"


def test_the_beginning_of_common_words_is_as_common_as_they_are(vocabulary: Vocabulary) -> None:
    frequencies = Frequencies(10_000, {"cleanly": 3000, "cleaner": 1000, "rice": 4000, "back": 2}).to_bytes()
    lexicon = scripted(vocabulary, wanting(vocabulary, {}), frequencies=frequencies).lexicon
    assert lexicon is not None
    idf = lexicon.idf
    assert idf[vocabulary.id("clean")] == idf[vocabulary.id("rice")] < idf[vocabulary.id("back")]


def test_the_gap_before_the_first_word_has_its_own_offsets(vocabulary: Vocabulary) -> None:
    model = wanting(vocabulary, {"the": 9.0, "[NOI]": 12.0})
    pushed = scripted(vocabulary, model, calibrated=Preset(noi=(-6.0,)))
    assert pushed.generate("food; great", max_stages=1).tokens == ("the", "food", "the", "great", "the")
    free = scripted(vocabulary, model, calibrated=Preset(noi=(-6.0,), start=(-6.0, 0.0)))
    assert free.generate("food; great", max_stages=1).tokens == ("the", "food", "the", "great", "the")
    [stage] = free.generate("food; great", max_stages=2).stages[2:]
    assert stage[0].text == "the" and not stage[0].new and sum(token.new for token in stage) == 5


@pytest.mark.parametrize("decoding", [{}, {"blocks": 2}, {"decoding": "sample"}, {"decoding": "beam"}])
def test_two_constraints_that_are_the_same_get_something_between_them(
    vocabulary: Vocabulary, decoding: dict[str, object]
) -> None:
    model = wanting(vocabulary, {"[NOI]": 99.0, "food": 1.0})
    for schedule in ("eager", "paper"):
        pointer = scripted(vocabulary, model, schedule=schedule)
        tokens = pointer.generate("great; great", **decoding).tokens
        assert not any(a == b for a, b in pairwise(tokens)) and tokens.count("great") >= 2
    assert scripted(vocabulary, model).generate("great; great", preset="plain").tokens == ("great", "great")


def test_whether_anything_is_missing_may_be_decided_before_what_it_is(vocabulary: Vocabulary) -> None:
    """Nothing has 0.4 here, and ten words have 0.06 each."""
    some = ["great", "food", "music", "clean", "staff", "friendly", "love", "rice", "back", "place"]
    model = wanting(vocabulary, {"[NOI]": 9 + np.log(0.4)} | {word: 9 + np.log(0.06) for word in some})
    ask = {"constraints": "drinks", "max_stages": 1}
    best, first = (scripted(vocabulary, model, calibrated=Preset(gap_first=is_first)) for is_first in (False, True))
    assert best.generate(**ask).tokens == ("drinks",)  # 0.4 is more than 0.06
    assert len(first.generate(**ask).tokens) == 3  # but less than 0.6
    likelier = scripted(vocabulary, model, calibrated=Preset(gap_first=True, noi=(0.5,)))
    assert likelier.generate(**ask).tokens == ("drinks",)
    # Draws are among all words anyway: the same texts, and offsets of words do not change how many there are.
    for preset in (Preset(gap_first=True), Preset(gap_first=True, stop=(-20.0,), common=(1.0,))):
        drawn = scripted(vocabulary, model, calibrated=preset)
        texts = [drawn.generate(**ask, decoding="sample", seed=seed).tokens for seed in range(200)]
        assert np.mean([len(tokens) - 1 for tokens in texts]) / 2 == pytest.approx(0.6, abs=0.07)


def test_default_has_offsets_for_stages_that_are_filled_at_once_and_for_those_in_rounds(
    vocabulary: Vocabulary,
) -> None:
    """From the second stage on this model is against more words by 7, which is more than 6 and less than 8."""
    model = wanting(vocabulary, {"[NOI]": 16.0, "staff": 9.0, "music": 8.9, "rice": 8.8, "place": 8.7})
    sizes = [len(scripted(vocabulary, model).generate("great", blocks=blocks).tokens) for blocks in (1, 2, 3)]
    assert sizes[0] == 3 and min(sizes[1:]) > 3


def test_a_contraction_is_not_spelt_on(vocabulary: Vocabulary) -> None:
    model = between(vocabulary, {"rice food": {"ve": 9.0, "[NOI]": 0.0}, "ve food": {"##er": 9.0, "[NOI]": 8.0}})
    table = Frequencies(100, {"veer": 9, "ve": 9, "rice": 9, "food": 9}).to_bytes()
    for spelling, expected in ((False, ("rice", "ve", "##er", "food")), (True, ("rice", "ve", "food"))):
        found = scripted(vocabulary, model, calibrated=Preset(spelling=spelling), frequencies=table)
        assert found.generate("rice; food").tokens == expected


@whatever_the_model_says
def test_an_apostrophe_and_what_goes_after_it_have_a_word_to_belong_to(
    vocabulary: Vocabulary, mood: str, asked: list[list[str]], options: dict[str, object], seed: int
) -> None:
    answer = fond(vocabulary, hostile(vocabulary, mood, seed), ("'", "ve", "s", "t", "i", "don"), 4.0)
    pointer = scripted(vocabulary, answer, calibrated=RULES)
    for [generation, *_] in pointer.generate_many(asked, **options, max_length=30, max_stages=6):
        said = [("[CLS]", True), *words(generation)]
        for i, (_, was_asked) in enumerate(said):
            assert was_asked or is_contracted([word for word, _ in said], i), generation.tokens


@pytest.mark.parametrize("decoding", [{}, {"blocks": 2}, {"decoding": "sample"}, {"decoding": "beam"}])
def test_a_contraction_is_made_whole_whichever_part_comes_first(
    vocabulary: Vocabulary, decoding: dict[str, object]
) -> None:
    ending_first = {"don food": {"t": 90.0}, "don t": {"[NOI]": 99.0, "very": 95.0, "'": 40.0}}
    mark_first = {"don food": {"'": 90.0}, "' food": {"[NOI]": 99.0, "very": 95.0, "s": 44.0, "t": 40.0}}
    for wishes, half in ((ending_first, "Don t food"), (mark_first, "Don' food")):
        model = between(vocabulary, wishes | {"[CLS] food": {"don": 99.0}})
        strict = scripted(vocabulary, model, calibrated=Preset(contractions=True))
        assert strict.generate("food", **decoding).text in ("Don't food", "Don's food")
        free = scripted(vocabulary, model, calibrated=Preset())
        assert free.generate("food", **decoding).text == half


def test_a_constraint_gets_its_ending_as_often_as_it_was_asked_for(vocabulary: Vocabulary) -> None:
    wishes = {"don food": {"t": 9.0}, "don rice": {"t": 9.0}, "don t": {"'": 9.0}}
    pointer = scripted(vocabulary, between(vocabulary, wishes), calibrated=RULES)
    assert pointer.generate("don; food; don; rice").text == "Don't food don't rice"


@whatever_the_model_says
def test_the_has_something_to_belong_to(
    vocabulary: Vocabulary, mood: str, asked: list[list[str]], options: dict[str, object], seed: int
) -> None:
    answer = fond(vocabulary, hostile(vocabulary, mood, seed), ("the", "is", "."), 6.0)
    pointer = scripted(vocabulary, answer, calibrated=RULES, end="fixed")
    for [generation, *_] in pointer.generate_many(asked, **options, max_length=30, max_stages=6):
        said = [*words(generation), ("[SEP]", True)]
        for (word, was_asked), (after, _) in pairwise(said):
            assert was_asked or word != "the" or after not in {"is", "was", "to", "and", ".", ",", "[SEP]"}


def test_the_goes_where_a_noun_is_and_nothing_comes_between_them(vocabulary: Vocabulary) -> None:
    wishes = {"rice is": {"the": 9.0, "a": 8.0}, "is food": {"the": 9.0}, "the food": {"is": 9.0, "new": 8.0}}
    model = between(vocabulary, wishes)
    free = scripted(vocabulary, model, calibrated=Preset()).generate("rice; is; food", max_stages=2)
    assert free.text == "Rice the is the is food"
    strict = scripted(vocabulary, model, calibrated=Preset(nouns=True)).generate("rice; is; food", max_stages=2)
    assert strict.text == "Rice a is the new food"


def test_two_words_do_not_stand_beside_themselves(vocabulary: Vocabulary) -> None:
    model = between(vocabulary, {"to rice": {"love": 9.0, "back": 8.0}})
    pointer = scripted(vocabulary, model, calibrated=Preset(distinct=True))
    assert pointer.generate("to; love; to; rice", max_stages=1).text == "To love to back rice"
    assert pointer.generate("to love to love rice", max_stages=1).text == "To love to love rice", "unless asked for"


@whatever_the_model_says
def test_a_hyphen_stands_between_words_that_it_can_join(
    vocabulary: Vocabulary, mood: str, asked: list[list[str]], options: dict[str, object], seed: int
) -> None:
    pointer = scripted(vocabulary, fond(vocabulary, hostile(vocabulary, mood, seed), "-", 9.0), calibrated=RULES)
    for [generation, *_] in pointer.generate_many(asked, **options, max_length=30, max_stages=6):
        said = [("[CLS]", True), *words(generation), ("[SEP]", True)]
        for before, (word, was_asked), after in zip(said, said[1:], said[2:], strict=False):
            assert was_asked or word != "-" or not (before[1] or after[1]), generation.tokens
        for (word, asked_for), _, (other, _) in zip(said, said[1:], said[2:], strict=False):
            assert asked_for or not word == other == "-", "it joins two words, and no chain of them"


def test_an_ending_waits_for_its_word(vocabulary: Vocabulary) -> None:
    model = between(vocabulary, {"rice food": {"ve": 9.0, "'": 8.0, "a": 7.0, "[NOI]": 0.0}, "' food": {"t": 9.0}})
    for strict, text in ((False, "Rice ve food"), (True, "Rice a food")):
        preset = Preset(contractions=strict, marks="." if strict else None)
        assert scripted(vocabulary, model, calibrated=preset).generate("rice; food").text == text


SPELLING = Frequencies(100, {"cleaning": 9, "cleanly": 9, "cleaners": 9, "great": 9, "food": 9, "rice": 9}).to_bytes()


def between(vocabulary: Vocabulary, wishes: dict[str, dict[str, float]]) -> Answer:
    """A model whose wishes depend on the two tokens beside a gap; elsewhere it wants nothing."""

    def answer(ids: list[int], position: int) -> np.ndarray:
        beside = " ".join(vocabulary.tokens[i] for i in ids[position : position + 2])
        return wanting(vocabulary, wishes.get(beside, {"[NOI]": 99.0}))(ids, position)

    return answer


def test_pieces_make_only_words_of_the_training_texts(vocabulary: Vocabulary) -> None:
    model = between(
        vocabulary, {"[CLS] food": {"rice": 9.0}, "rice food": {"##ly": 9.0, "##ing": 8.0, "a": 7.0, "[NOI]": 6.0}}
    )
    free = scripted(vocabulary, model, calibrated=Preset(), frequencies=SPELLING)
    assert free.generate("food").tokens == ("rice", "##ly", "food")
    strict = scripted(vocabulary, model, calibrated=Preset(spelling=True), frequencies=SPELLING)
    assert strict.generate("food").tokens == ("rice", "a", "food")
    unknown = scripted(vocabulary, model, calibrated=Preset(spelling=True))
    assert unknown.generate("food").tokens == ("rice", "##ly", "food"), "without a table nothing is known to be wrong"


@pytest.mark.parametrize("decoding", [{}, {"decoding": "sample"}, {"decoding": "beam"}])
def test_a_word_is_not_left_half_spelt(vocabulary: Vocabulary, decoding: dict[str, str]) -> None:
    """`clean` is no word of the texts, but they have words that begin with it."""
    model = between(
        vocabulary,
        {
            "[CLS] food": {"clean": 99.0},
            "clean food": {"[NOI]": 99.0, "a": 98.0, "##er": 40.0},
            "##er food": {"[NOI]": 99.0, "##s": 50.0},
        },
    )
    free = scripted(vocabulary, model, calibrated=Preset(), frequencies=SPELLING)
    assert free.generate("food", **decoding).tokens == ("clean", "food")
    strict = scripted(vocabulary, model, calibrated=Preset(spelling=True), frequencies=SPELLING)
    assert strict.generate("food", **decoding).tokens == ("clean", "##er", "##s", "food"), "clean, cleaner, cleaners"
    asked = strict.generate("clean; food", lock_start=True, **decoding)
    assert asked.tokens == ("clean", "food"), "to what was asked for nothing is added"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    constraints=st.lists(constraint, min_size=1, max_size=4),
    how=decodings,
    mood=st.sampled_from(HOSTILE),
    seed=st.integers(0, 9),
)
def test_whatever_the_model_says_it_spells_words_and_leaves_out_other_marks(
    vocabulary: Vocabulary, constraints: list[str], how: dict[str, object], mood: str, seed: int
) -> None:
    pointer = scripted(
        vocabulary, hostile(vocabulary, mood, seed), calibrated=Preset(spelling=True, marks=".,"), frequencies=SPELLING
    )
    assert pointer.lexicon is not None
    for generation in pointer.generate_many([constraints], max_length=40, **how)[0]:
        for word, was_asked_for in words(generation):
            if not was_asked_for:
                assert word in vocabulary.tokens or pointer.lexicon.is_spelt(word)
                assert word.isalnum() or word in ".,"
