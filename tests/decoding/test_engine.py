"""The invariants of decoding under hostile logits, and the searches on models whose best answer is known."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripted import HOSTILE, WORDS, hostile, scripted, small_vocabulary

from pointer.decoding.demand import count_words
from pointer.decoding.generator import Generation
from pointer.decoding.presets import Preset
from pointer.errors import CheckpointError, ConstraintError, UsageError
from pointer.stage import births
from pointer.vocabulary import SPECIAL, Vocabulary

ODD = ["New York", "iPhone 15", "café", "🎉", "C++", "600", "well-known", "it's", "[SEP]", "##s", "!", "Å", "naïve"]
word = st.sampled_from([*WORDS, *ODD])
constraint = st.lists(word, min_size=1, max_size=3).map(" ".join)
lists = st.lists(st.lists(constraint, min_size=1, max_size=5), min_size=20, max_size=20)
decodings = st.sampled_from(
    [
        {"decoding": "greedy"},
        {"decoding": "greedy", "rounds": 3},
        {"decoding": "sample", "rounds": 2},
        {"decoding": "sample", "temperature": 2.0},
        {"decoding": "sample", "top_k": 5, "top_p": 0.8, "n": 2},
        {"decoding": "beam", "width": 3, "rounds": 2},
        {"decoding": "greedy", "lock_start": True, "lock_end": True},
        {"decoding": "sample", "n": 2, "min_p": 0.0},
        {"decoding": "beam", "width": 3, "rounds": 0},
    ]
)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    return small_vocabulary(tmp_path_factory.mktemp("vocabulary"))


def is_subsequence(short: list[str], long: list[str]) -> bool:
    rest = iter(long)
    return all(token in rest for token in short)


def holds(generation: Generation, constraints: list[str], vocabulary: Vocabulary, longest: int) -> None:
    """Every promise of DESIGN.md about one text."""
    text = generation.text
    assert len(generation.spans) == len(constraints)
    end = 0
    for asked, (a, b) in zip(constraints, generation.spans, strict=True):
        assert a >= end and text[a:b].lower() == asked.lower()
        assert text[a:b] == asked or asked == asked.lower()
        around = text[a - 1 : a] + text[b : b + 1]
        assert not any(c.isalnum() or c in "-_" for c in around), (asked, text)
        end = b
    stages = [[token.text for token in stage] for stage in generation.stages]
    for before, after in pairwise(stages):
        assert is_subsequence(before, after)
    born = births(generation.stages).tolist()
    for before, (after, piece) in zip(born, zip(born[1:], stages[-1][1:], strict=True), strict=False):
        assert not piece.startswith("##") or before <= after, "a word is born head first"
    first = [vocabulary.tokens[i] for e in vocabulary.encode(constraints) for i in (e.ids.tolist() or [2])]
    assert stages[0] == first
    inserted = list(stages[-1])
    for token in first:
        inserted.remove(token)
    assert not set(inserted) & {*SPECIAL, ""}
    assert len(stages[-1]) + 2 <= max(longest, len(first) + 2)
    assert generation.stopped in ("converged", "max_stages", "max_length") and not generation.missing
    assert (generation.stopped == "converged") == (len(stages) > 1 and stages[-1] == stages[-2])
    assert np.isfinite(generation.score) and generation.score <= 0


@pytest.mark.parametrize("mood", HOSTILE)
@settings(max_examples=64, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    asked=lists,
    options=decodings,
    seed=st.integers(0, 9),
    preset=st.sampled_from(["plain", "paper", "default"]),
)
def test_every_constraint_survives_whatever_the_model_says(
    vocabulary: Vocabulary,
    mood: str,
    asked: list[list[str]],
    options: dict[str, object],
    seed: int,
    preset: str,
) -> None:
    # 8 moods x 64 examples x 20 lists: 10,240 decodes.
    pointer = scripted(vocabulary, hostile(vocabulary, mood, seed))
    limits = {"max_length": 48, "max_stages": 4, "preset": preset}
    found = pointer.generate_many(asked, **options, **limits)
    for constraints, generations in zip(asked, found, strict=True):
        assert len({generation.text for generation in generations}) == len(generations) >= 1
        for generation in generations:
            holds(generation, constraints, vocabulary, 48)
    alone = pointer.generate_many(asked[:1], batch_size=1, **options, **limits)
    assert alone == found[:1], "a text does not depend on its company"


def preferring(vocabulary: Vocabulary, wishes: dict[tuple[str, ...], dict[int, dict[str, float]]]) -> object:
    """A model with wishes: for a text, for a gap, the logits of some tokens; `[NOI]` everywhere else."""

    def answer(ids: list[int], position: int) -> np.ndarray:
        logits = np.full(len(vocabulary), -9.0)
        text = tuple(vocabulary.tokens[i] for i in ids if vocabulary.tokens[i] not in ("[CLS]", "[SEP]"))
        for token, logit in wishes.get(text, {}).get(position, {"[NOI]": 9.0}).items():
            logits[vocabulary.id(token)] = logit
        return logits

    return answer


CLEAN = {
    # Each gap alone likes "clean" best; together "friendly and clean" is far better than "clean and clean".
    ("and",): {0: {"clean": 2.0, "friendly": 1.8}, 1: {"clean": 2.0, "friendly": 1.0}},
    ("clean", "and"): {2: {"clean": -5.0, "friendly": -4.0, "great": -4.5, "[NOI]": -4.2}},
    ("friendly", "and"): {2: {"clean": 8.0}},
    ("and", "clean"): {0: {"clean": -5.0, "friendly": 8.0}},
}


def test_beam_search_finds_the_filling_that_greedy_misses(vocabulary: Vocabulary) -> None:
    pointer = scripted(vocabulary, preferring(vocabulary, CLEAN))
    assert pointer.generate(["and"], preset="plain").tokens == ("clean", "and", "clean")
    for rounds in (0, 2):
        found = pointer.generate(["and"], preset="plain", decoding="beam", width=4, rounds=rounds)
        assert found.tokens == ("friendly", "and", "clean")


def test_a_stage_in_two_rounds_tells_each_gap_what_its_neighbours_got(vocabulary: Vocabulary) -> None:
    told = {
        ("and",): {0: {"clean": 2.0, "great": 1.0}, 1: {"clean": 2.0}},  # the second gap is the surer one
        ("and", "clean"): {0: {"friendly": 8.0}},
    }
    pointer = scripted(vocabulary, preferring(vocabulary, told))
    assert pointer.generate(["and"], preset="plain").tokens == ("clean", "and", "clean")
    found = pointer.generate(["and"], preset="plain", rounds=2)
    assert found.tokens == ("friendly", "and", "clean") and len(found.stages) == 3  # one stage, and no more to say


def test_the_model_itself_says_which_gaps_are_the_surest(vocabulary: Vocabulary) -> None:
    wishes = {
        ("food",): {0: {"clean": 2.0, "great": 1.0}, 1: {"the": 2.0}},
        ("food", "the"): {0: {"friendly": 8.0}},
        ("clean", "food"): {2: {"music": 8.0}},
    }
    pointer = scripted(vocabulary, preferring(vocabulary, wishes), preset=Preset(delay=(-4.0,)))
    found = pointer.generate("food", rounds=2, max_stages=1)
    assert found.tokens == ("friendly", "food", "the"), "an offset makes a stop word rare, and not the model unsure"


def test_every_round_of_a_stage_inserts_something_and_gaps_that_are_sure_of_nothing_do_not_count(
    vocabulary: Vocabulary,
) -> None:
    wishes = {
        ("food", "music", "staff"): {
            0: {"[NOI]": 9.0},
            1: {"great": 2.0, "clean": 1.0},
            2: {"[NOI]": 9.0},
            3: {"great": 2.0, "clean": 1.9},
        },
        ("food", "great", "music", "staff"): {4: {"friendly": 9.0}},
    }
    asked: list[int] = []
    preferred = preferring(vocabulary, wishes)

    def answer(ids: list[int], position: int) -> np.ndarray:
        asked.append(len(ids))
        return preferred(ids, position)

    pointer = scripted(vocabulary, answer)
    words = ["food", "music", "staff"]
    found = pointer.generate(words, preset="plain", rounds=2, max_stages=1)
    assert found.tokens == ("food", "great", "music", "staff", "friendly")
    assert asked == [5, 5, 5, 5, 6], "the two that are surer want nothing, and are not asked again"
    asked.clear()
    pointer.generate("rice", preset="plain", rounds=8)
    assert asked == [3, 3], "a text in which no gap wants anything is asked about once"


@pytest.mark.parametrize("decoding", [{}, {"decoding": "beam", "width": 3}, {"decoding": "sample"}])
def test_a_model_is_never_asked_about_more_tokens_than_a_text_may_have(
    vocabulary: Vocabulary, decoding: dict[str, object]
) -> None:
    answer = hostile(vocabulary, "insert", 1)
    sizes: set[int] = set()

    def watched(ids: list[int], position: int) -> np.ndarray:
        sizes.add(len(ids))
        return answer(ids, position)

    for rounds in (0, 2, 3, 8):
        pointer = scripted(vocabulary, watched, longest=20)
        assert pointer.generate("great; food; music", rounds=rounds, **decoding).stopped == "max_length"
    assert max(sizes) <= 20


def test_a_model_that_was_trained_for_rounds_takes_them_by_default(vocabulary: Vocabulary) -> None:
    answer = hostile(vocabulary, "random", 3)
    paper, rounds = scripted(vocabulary, answer), scripted(vocabulary, answer, rounds=2)
    asked = "great; food; music"
    for decoding in ({}, {"decoding": "sample", "seed": 4}):
        assert rounds.generate(asked, **decoding) == paper.generate(asked, rounds=2, **decoding)
        assert rounds.generate(asked, **decoding) != paper.generate(asked, **decoding)
        assert rounds.generate(asked, rounds=1, **decoding) == paper.generate(asked, **decoding)
    assert rounds.generate(asked, preset="plain") == paper.generate(asked, preset="plain")


@settings(max_examples=30, deadline=None)
@given(asked=st.lists(st.sampled_from(WORDS), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_a_beam_of_width_1_is_conditional_greedy(vocabulary: Vocabulary, asked: list[str], seed: int) -> None:
    answer = hostile(vocabulary, "random", seed)
    pointer = scripted(vocabulary, answer)
    found = pointer.generate(asked, preset="plain", decoding="beam", width=1, rounds=0, max_stages=2, max_length=64)
    never = vocabulary.special
    ids = [vocabulary.id("[CLS]"), *(vocabulary.id(w) for w in asked), vocabulary.id("[SEP]")]
    mine = [False] * len(ids)
    for _ in range(2):
        position = 0
        old = list(range(len(ids)))
        for _ in old[:-1]:
            logits = answer(ids, position).astype(np.float32)
            logits[never] = -np.inf
            if not (mine[position] and vocabulary.is_word[ids[position]]):
                logits[vocabulary.continues] = -np.inf
            best = int(logits.argmax())
            closed = vocabulary.continues[ids[position + 1]]
            if best != vocabulary.noi and not closed:
                ids.insert(position + 1, best)
                mine.insert(position + 1, True)
                position += 1
            position += 1
    expected = tuple(vocabulary.tokens[i] for i in ids[1:-1])
    assert found.tokens == expected


def test_stop_words_alone_give_a_text(vocabulary: Vocabulary) -> None:
    pointer = scripted(vocabulary, hostile(vocabulary, "random", 1))
    assert len(pointer.generate("is; to; from").tokens) > 3


def test_a_phrase_stays_whole_when_every_gap_wants_a_token(vocabulary: Vocabulary) -> None:
    pointer = scripted(vocabulary, hostile(vocabulary, "insert", 0))
    found = pointer.generate(["new york", "great food"], max_length=40)
    assert "new york" in found.text.lower() and "great food" in found.text.lower()
    assert found.stopped == "max_length" and len(found.tokens) == 38


def test_the_ends_can_be_locked(vocabulary: Vocabulary) -> None:
    pointer = scripted(vocabulary, hostile(vocabulary, "insert", 0))
    found = pointer.generate(["great", "food"], preset="plain", max_stages=3, lock_start=True, lock_end=True)
    assert found.tokens[0] == "great" and found.tokens[-1] == "food" and len(found.tokens) == 9


def test_banned_words_never_come_not_even_in_pieces(vocabulary: Vocabulary) -> None:
    def wants(ids: list[int], position: int) -> np.ndarray:
        logits = np.full(len(vocabulary), -9.0)
        logits[[vocabulary.id("food"), vocabulary.id("##s")]] = 9, 10
        logits[vocabulary.id("clean")] = 7
        return logits

    def text(*banned: str) -> str:
        return scripted(vocabulary, wants).generate("great", preset="plain", max_stages=3, forbid=banned).text.lower()

    assert "foods" in text()
    assert "foods" not in text("foods").split() and "food" in text("foods")
    assert "food" not in text("food", "foods") and "clean" in text("food")


def test_sampling_depends_on_seed_and_constraints_alone(vocabulary: Vocabulary) -> None:
    pointer = scripted(vocabulary, hostile(vocabulary, "random", 3))
    options = {"decoding": "sample", "max_stages": 3}
    texts = {pointer.generate(["great", "food"], seed=seed, **options).text for seed in range(8)}
    assert len(texts) > 4
    among_others = pointer.generate_many([["music"], ["great", "food"], ["rice"]], seed=5, **options)
    assert among_others[1][0] == pointer.generate(["great", "food"], seed=5, **options)


def test_a_length_is_met(vocabulary: Vocabulary) -> None:
    random = hostile(vocabulary, "random", 3)

    def hesitant(ids: list[int], position: int) -> np.ndarray:
        """The longer the text, the less it wants to insert."""
        logits = random(ids, position).copy()
        logits[vocabulary.noi] = 0.5 * len(ids)
        return logits

    pointer = scripted(vocabulary, hesitant)
    for words in (6, 30):
        found = pointer.generate(["great", "food"], length=words)
        assert count_words(found.text) == words and found.stopped == "converged"


def test_several_beam_candidates_are_distinct_and_sorted(vocabulary: Vocabulary) -> None:
    pointer = scripted(vocabulary, hostile(vocabulary, "random", 3))
    [found] = pointer.generate_many([["great", "food"]], decoding="beam", n=4, width=4, max_stages=3)
    assert len({generation.tokens for generation in found}) == 4
    assert [g.score for g in found] == sorted((g.score for g in found), reverse=True)


def test_streaming_ends_with_what_generate_gives(vocabulary: Vocabulary) -> None:
    pointer = scripted(vocabulary, hostile(vocabulary, "random", 3))
    seen = list(pointer.stream("great; food", max_stages=4))
    assert seen[-1] == pointer.generate("great; food", max_stages=4)
    assert [len(g.stages) for g in seen] == list(range(1, len(seen) + 1))
    assert [token.text for token in seen[1].stages[1] if not token.new] == ["great", "food"]


def test_nan_is_an_error_that_names_the_checkpoint(vocabulary: Vocabulary) -> None:
    pointer = scripted(vocabulary, lambda ids, position: np.full(len(vocabulary), np.nan))
    with pytest.raises(CheckpointError, match="Expected numbers from the model scripted, found NaN"):
        pointer.generate("great")


@pytest.mark.parametrize("end", ["fixed", "inserted"])
def test_a_text_that_has_room_ends_with_a_full_stop(vocabulary: Vocabulary, end: str) -> None:
    pointer = scripted(vocabulary, hostile(vocabulary, "never", 0), end=end)
    found = pointer.generate("great; food")
    assert found.text == "Great food." and found.stopped == "converged"
    assert [token.text for token in found.stages[1] if token.new] == ["."]
    assert pointer.generate("great; food!").text == "Great food!"
    assert pointer.generate("great; food", lock_end=True).text == "Great food"
    assert pointer.generate("great; food", preset="plain").text == "Great food"
    full = pointer.generate("great; food", max_length=4 if end == "fixed" else 3)
    assert full.text == "Great food" and full.stopped == "max_length", "no room"


def test_a_model_that_inserts_the_end_itself_gets_no_other_special(vocabulary: Vocabulary) -> None:
    pointer = scripted(vocabulary, hostile(vocabulary, "specials", 1), end="inserted")
    for [found] in pointer.generate_many([["great food", "rice"], ["music"]], preset="plain", max_length=40):
        assert not set(found.tokens) & set(SPECIAL)
        assert all(c in found.text.lower() for c in found.constraints)


@pytest.mark.parametrize("asked", [[], [""], ["great", "  "], "great;;food", "\u200b"])
def test_an_empty_constraint_is_one_sentence(vocabulary: Vocabulary, asked: list[str] | str) -> None:
    with pytest.raises(ConstraintError, match="Expected"):
        scripted(vocabulary, hostile(vocabulary, "random", 1)).generate(asked)


def test_too_many_constraints_for_the_model_is_one_sentence(vocabulary: Vocabulary) -> None:
    with pytest.raises(ConstraintError, match="at most 10 tokens, found 32"):
        scripted(vocabulary, hostile(vocabulary, "random", 1)).generate(["great"] * 30, max_length=10)


@pytest.mark.parametrize(
    "wrong",
    [
        {"decoding": "magic"}, {"preset": "magic"}, {"n": 0}, {"temperature": 0}, {"widht": 3},
        {"length": "a lot"}, {"sentences": "3-2"}, {"pick_by": "magic"}, {"batch_size": 0},
    ],
)  # fmt: skip
def test_a_wrong_option_is_named(vocabulary: Vocabulary, wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="|".join(wrong)):
        scripted(vocabulary, hostile(vocabulary, "random", 1)).generate_many(["great"], **wrong)
