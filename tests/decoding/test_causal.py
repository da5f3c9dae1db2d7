"""Causal insertion under hostile logits, and what it does with models whose answers are known."""

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_causal import (
    CHAT,
    END,
    HOSTILE,
    WHOLE,
    WORDS,
    Answer,
    chat_language,
    hostile,
    plain_language,
    spelling,
    telling,
    writer,
)

from pointer.decoding.capitals import cased
from pointer.decoding.causal import Draft, Rules
from pointer.decoding.demand import count_words, demand_of
from pointer.decoding.generator import Generation
from pointer.decoding.grammar import parse, quote
from pointer.decoding.options import Options
from pointer.decoding.writer import DRAFTS_NOI, Writer
from pointer.english import inflections
from pointer.errors import CheckpointError, ConstraintError, UsageError
from pointer.language import Language
from pointer.runtime import Floats
from pointer.writing import missing_constraints

LANGUAGES = {"chat": chat_language(), "plain": plain_language()}
CONTRACTING = chat_language(size=WHOLE)
"""Has `'t` as a token, as large vocabularies have."""
ODD = [
    "3",
    "10:30 a.m.",
    "🎉",
    "New York",
    "new york",
    "iPhone",
    "<|im_end|>",
    "of",
    "well-known",
    "café",
    "C++",
    "1987",
]
ODD += ["!", "don't", "it's", "$5", "...", "naïve", "3.50", "Mill Street", "ß", "'s", "McDonald's", "<|endoftext|>"]
constraint = st.one_of(
    st.sampled_from([*WORDS, *ODD]), st.lists(st.sampled_from([*WORDS, *ODD]), min_size=2, max_size=3).map(" ".join)
)
constraints = st.lists(constraint, min_size=1, max_size=8)
DECODINGS: list[dict[str, Any]] = [
    {"decoding": "greedy"},
    {"decoding": "sample"},
    {"decoding": "sample", "temperature": 3.0, "top_p": 0.9, "n": 2},
    {"decoding": "sample", "top_k": 3, "seed": 5},
    {"decoding": "beam", "width": 3, "n": 2},
    {"decoding": "beam", "width": 4, "lock_start": True, "lock_end": True},
    {"decoding": "greedy", "lock_start": True},
    {"decoding": "sample", "lock_end": True, "style": "reviews"},
    {"best_of": 3},
    {"decoding": "greedy", "noi_offset": -8.0},
]


def recorded(found: Writer) -> list[Draft]:
    """The drafts that a writer will have written."""
    drafts: list[Draft] = []
    written = found.written

    def keep(draft: Draft) -> Generation:
        drafts.append(draft)
        return written(draft)

    found.written = keep  # type: ignore[method-assign]
    return drafts


def outside(found: Generation) -> list[str]:
    """What stands before, between and after the constraints."""
    starts = [0, *(end for _, end in found.spans)]
    ends = [*(start for start, _ in found.spans), len(found.text)]
    return [found.text[a:b] for a, b in zip(starts, ends, strict=True)]


def words_of(text: str) -> list[str]:
    return [word.strip("'\u2019").lower() for word in re.findall(r"[\w'\u2019]+", text)]


def is_subsequence(short: Any, long: Any) -> bool:
    rest = iter(long)
    return all(one in rest for one in short)


def holds(found: Generation, asked: list[str]) -> None:
    """Every promise about one text."""
    assert missing_constraints(found.text, asked) == [] and not found.missing
    assert len(found.spans) == len(asked) and found.constraints == tuple(asked)
    end = 0
    for wanted, (a, b) in zip(asked, found.spans, strict=True):
        assert a >= end and found.text[a:b].lower() == wanted.lower()
        assert found.text[a:b] == wanted or wanted == wanted.lower(), "capitals are only ever added to plain words"
        end = b
    assert found.text.isprintable() and found.text == " ".join(found.text.split())
    assert not any(special in part for part in outside(found) for special in CHAT)
    assert found.stopped in ("converged", "max_length")
    first, grown = ([token.text.lower() for token in stage] for stage in found.stages[:2])
    assert first == [word.lower() for one in asked for word in one.split()] and is_subsequence(first, grown)
    assert len(found.stages) == (3 if found.stopped == "converged" else 2)
    assert found.tokens == tuple(token.text for token in found.stages[1])
    assert np.isfinite(found.score) and found.score <= 0


@pytest.mark.parametrize("mood", HOSTILE)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    asked=st.lists(constraints, min_size=3, max_size=3),
    options=st.sampled_from(DECODINGS),
    seed=st.integers(0, 9),
    talks=st.sampled_from(list(LANGUAGES)),
    limit=st.sampled_from([3, 12, 30, 60]),
)
def test_every_constraint_survives_whatever_the_model_says(
    mood: str, asked: list[list[str]], options: dict[str, Any], seed: int, talks: str, limit: int
) -> None:
    # 9 moods x 12 examples x 3 lists: 324 decodes, some of several texts.
    language = LANGUAGES[talks]
    scribe = writer(language, hostile(language, mood, seed), longest=220)
    drafts = recorded(scribe)
    possible = []
    for one in asked:
        needed = sum(len(language.encode(f" {word}")) for word in one)
        try:
            scribe.engine(Options.of(options | {"max_length": limit})).start(
                demand_of(parse(list(map(quote, one))), Options())
            )
            assert needed <= limit + 2  # the first word may be shorter where no space stands before it
            possible.append(one)
        except ConstraintError:
            assert needed + 6 > limit or len(language.prompt(one, "everyday")) + needed + 6 > 220
    found = scribe.generate_many([list(map(quote, one)) for one in possible], max_length=limit, **options)
    assert all(draft.size <= limit and len(draft.read) <= 220 for draft in drafts)
    for one, texts in zip(possible, found, strict=True):
        assert 1 <= len(texts) <= options.get("n", 1)
        for text in texts:
            holds(text, one)
            assert text.spans[0][0] == 0 or not options.get("lock_start")
            assert text.spans[-1][1] == len(text.text) or not options.get("lock_end")


@pytest.mark.parametrize("talks", LANGUAGES)
@pytest.mark.parametrize("options", DECODINGS, ids=lambda options: "-".join(map(str, options.values())))
def test_a_text_does_not_depend_on_what_else_is_in_its_batch(talks: str, options: dict[str, Any]) -> None:
    language = LANGUAGES[talks]
    scribe = writer(language, hostile(language, "ties", 3))
    asked = [["dog", "park"], ["castle"], ["New York", "3", "dog"], ["dog", "park"]]
    alone = [scribe.generate_many([one], max_length=14, **options)[0] for one in asked]
    assert scribe.generate_many(asked, batch_size=3, max_length=14, **options) == alone
    assert scribe.generate_many(asked[::-1], max_length=14, **options) == alone[::-1]
    assert alone[0] == alone[3]


def test_rules_are_made_once_for_any_number_of_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    # A vocabulary has 50,000 tokens: to look at each of them for each list would take longer than to write.
    made: list[Rules] = []
    start = Rules.__init__
    monkeypatch.setattr(Rules, "__init__", lambda self, *given: (made.append(self), start(self, *given))[1])
    language = LANGUAGES["chat"]
    writer(language, hostile(language, "random", 0)).generate_many([["dog"], ["park"], ["river"]], max_length=8)
    assert len(made) == 1


# ---------------------------------------------------------------------------------------------------------------------
# Limits and locks


def test_constraints_that_are_too_long_for_the_limit_are_refused() -> None:
    language = LANGUAGES["chat"]
    scribe = writer(language, hostile(language, "insert", 0), longest=60)
    with pytest.raises(ConstraintError, match="Expected constraints of at most 3 tokens, found"):
        scribe.generate(["dog", "park", "castle", "river"], max_length=3)
    with pytest.raises(ConstraintError, match="Expected constraints of at most"):
        scribe.generate(["river"] * 30, max_length=100)


@pytest.mark.parametrize("limit", range(3, 12))
@pytest.mark.parametrize("asked", [["castles"], ["castles river harbour"], ["river", "castles harbour"]])
def test_capitals_do_not_make_a_text_longer_than_its_limit(limit: int, asked: list[str]) -> None:
    language = LANGUAGES["chat"]  # "castles" is one token after a space, "Castles" at the start of a text is several
    titled = [" ".join(word.capitalize() for word in one.split()) for one in asked]
    scribe = writer(language, spelling(language, asked, [language.writes[i] for i in language.encode(titled[0])]))
    drafts = recorded(scribe)
    try:
        scribe.generate(asked, max_length=limit)
    except ConstraintError:
        assert limit < 6
    assert all(draft.size <= limit for draft in drafts)


@pytest.mark.parametrize("decoding", ["greedy", "sample", "beam"])
@pytest.mark.parametrize("mood", HOSTILE)
def test_a_text_locked_at_both_ends_is_its_only_constraint(mood: str, decoding: str) -> None:
    for language in LANGUAGES.values():
        scribe = writer(language, hostile(language, mood, 0))
        for asked in ("dog", "🎉", "New York"):
            found = scribe.generate_many(
                [[asked]], decoding=decoding, n=1, lock_start=True, lock_end=True, max_length=20
            )
            assert [text.text.lower() for text in found[0]] == [asked.lower()]


def test_a_model_that_never_ends_is_ended_with_all_constraints_in_place() -> None:
    language = LANGUAGES["chat"]
    found = writer(language, hostile(language, "insert", 0)).generate(["dog", "New York"], max_length=20)
    assert found.stopped == "max_length"


def test_a_model_that_only_wants_to_end_ends_as_soon_as_it_may() -> None:
    language = LANGUAGES["chat"]
    script = {"": {END: 5.0, "dog": 0.0}, "dog": {END: 5.0, " N": 0.0}}
    found = writer(language, telling(language, ["dog", "New York"], script)).generate(["dog", "New York"])
    assert found.text == "dog New York" and found.stopped == "converged"


# ---------------------------------------------------------------------------------------------------------------------
# Seeds and drafts


def test_the_same_seed_gives_the_same_text_and_another_seed_others() -> None:
    language = LANGUAGES["chat"]
    scribe = writer(language, hostile(language, "random", 0))
    texts = [scribe.generate(["dog", "park"], decoding="sample", seed=seed, max_length=20).text for seed in range(4)]
    again = [scribe.generate(["dog", "park"], decoding="sample", seed=seed, max_length=20).text for seed in range(4)]
    assert texts == again and len(set(texts)) > 1


def test_samples_are_different_texts_best_first() -> None:
    language = LANGUAGES["plain"]
    scribe = writer(language, hostile(language, "random", 0))
    [found] = scribe.generate_many([["dog", "park"]], decoding="sample", n=5, max_length=20)
    assert len({text.text for text in found}) == len(found) == 5
    assert [text.score for text in found] == sorted((text.score for text in found), reverse=True)


def test_a_cold_sample_is_the_greedy_text() -> None:
    language = LANGUAGES["chat"]
    scribe = writer(language, hostile(language, "random", 1))
    greedy = scribe.generate(["dog", "park"], max_length=20)
    assert scribe.generate(["dog", "park"], decoding="sample", top_k=1, max_length=20) == greedy
    assert scribe.generate(["dog", "park"], decoding="beam", width=1, max_length=20) == greedy


def test_beam_search_finds_the_likelier_text_that_greedy_passes_by() -> None:
    language = LANGUAGES["chat"]
    script = {"": {"The": 0.0}, "The": {" river": 1.0, " dog": 0.9}, "The river": {" dog": -19.0, " is": -19.1}}
    script |= {"The dog": {END: 5.0}}
    scribe = writer(language, telling(language, ["dog"], script))
    assert scribe.generate(["dog"], max_length=12).text.startswith("The river")
    assert scribe.generate(["dog"], decoding="beam", max_length=12).text == "The dog"


def judged(seed: int, worth: Callable[[str], float]) -> tuple[Writer, list[list[str]]]:
    """A writer whose drafts are picked by what they are worth here, and the drafts that it will ask about."""
    scribe = writer(LANGUAGES["chat"], hostile(LANGUAGES["chat"], "random", seed))
    asked: list[list[str]] = []

    def readings(texts: list[str], style: str | None) -> list[float]:
        asked.append(texts)
        return [worth(text) for text in texts]

    scribe.readings = readings  # type: ignore[method-assign]
    return scribe, asked


def test_the_best_draft_is_the_one_that_reads_best_and_the_first_is_a_greedy_text_of_longer_gaps() -> None:
    scribe, asked = judged(0, lambda text: -abs(len(text) - 60))
    greedy = scribe.generate(["dog", "park"], max_length=24, noi_offset=DRAFTS_NOI)
    [found] = scribe.generate_many([["dog", "park"]], best_of=6, n=3, max_length=24)
    texts = asked[0]
    assert texts[0] == greedy.text and len(set(texts)) == len(texts) > 3
    best = sorted(texts, key=lambda text: abs(len(text) - 60))
    places = [best.index(text.text) for text in found if text.text in best]
    assert places[0] == 0 and places == sorted(places), "near copies of a better one are left out"
    assert scribe.generate(["dog", "park"], best_of=6, max_length=24) == found[0]


def test_drafts_to_pick_from_begin_differently_and_those_that_cannot_differ_later() -> None:
    scribe, asked = judged(4, lambda text: 0.0)
    scribe.generate(["dog", "park"], best_of=2, max_length=24)  # one text and no beam beside it
    scribe.generate(["dog", "park"], best_of=8, max_length=24)
    scribe.generate(["dog", "park"], best_of=8, max_length=24, lock_start=True)
    several, locked = asked[-2][:4], asked[-1][:4]
    assert len({text.split()[0] for text in several}) == 4
    assert all(text.startswith("Dog") for text in locked) and len(set(locked)) == 4
    assert asked[0][0] == several[0], "the first draft is the greedy text"
    again = len(asked)
    scribe.generate(["dog", "park"], best_of=8, max_length=24, seed=5)
    assert asked[again] == asked[1], "nothing is drawn, so the seed does not matter"


def test_the_beam_of_drafts_and_a_beam_that_is_asked_for_do_not_grow_each_others_texts() -> None:
    scribe, _ = judged(4, lambda text: 0.0)
    plan = scribe._drafts(demand_of(parse(["dog"]), Options(best_of=8)), Options(best_of=8))
    engines = [next(plan).engine]
    engines.append(plan.send([[] for _ in range(4)]).engine)
    assert engines[1].kind != scribe.engine(engines[1].options).kind


# ---------------------------------------------------------------------------------------------------------------------
# Streams and stages


@pytest.mark.parametrize("talks", LANGUAGES)
@pytest.mark.parametrize("mood", ["random", "insert", "pieces", "never", "ends"])
def test_a_stream_begins_with_the_constraints_and_only_ever_inserts(talks: str, mood: str) -> None:
    language = LANGUAGES[talks]
    scribe = writer(language, hostile(language, mood, 2))
    asked = ["dog", "New York", "3"]
    texts = list(scribe.stream(asked, max_length=30))
    assert texts[0].text == "dog New York 3" and len(texts[0].stages) == 1 and not texts[0].stopped
    assert texts[-1] == scribe.generate(asked, max_length=30)
    for before, after in pairwise(texts):
        assert is_subsequence(before.text.lower(), after.text.lower()) and len(after.text) >= len(before.text)
        assert not before.stopped and missing_constraints(after.text, asked) == []
        assert [after.text[a:b].lower() for a, b in after.spans] == [word.lower() for word in asked]
    assert [token.new for token in texts[0].stages[0]] == [False] * 4


def test_stages_are_the_constraints_the_text_and_the_text_again() -> None:
    language = LANGUAGES["chat"]
    said = ["The", " dog", " ran", " fast", " the", " river", "."]
    found = writer(language, spelling(language, ["dog", "river"], said)).generate(["dog", "river"])
    assert found.text == "The dog ran fast the river." and found.stopped == "converged"
    first, grown, again = found.stages
    assert [token.text for token in first] == ["dog", "river"]
    assert [token.text for token in grown] == ["The", "dog", "ran", "fast", "the", "river", "."]
    assert [token.new for token in grown] == [True, False, True, True, True, False, True]
    assert again == tuple((token.text, False) for token in grown)
    assert found.score == pytest.approx(0.0, abs=1e-4), "it said what it wanted to say"


def test_drafts_of_a_text_are_its_stages_as_texts() -> None:
    language = LANGUAGES["chat"]
    scribe = writer(language, spelling(language, ["dog"], ["The", " dog", "."]))
    assert scribe.drafts(scribe.generate(["dog"])) == ["dog", "The dog.", "The dog."]


# ---------------------------------------------------------------------------------------------------------------------
# What the decoder makes of what the model wants


@pytest.mark.parametrize("talks", LANGUAGES)
def test_a_model_that_would_say_another_form_of_a_constraint_says_the_constraint(talks: str) -> None:
    language = LANGUAGES[talks]
    lead = language.lead
    script = {
        "": {f"{lead}The": 0.0},
        f"{lead}The": {" castle": 0.0},
        f"{lead}The castle": {" stands": 0.0, " is": -8.0},
    }
    script |= {f"{lead}The castle stood": {".": 0.0}}
    found = writer(language, telling(language, ["castle", "stood"], script)).generate(["castle", "stood"])
    assert found.text == "The castle stood." and found.stopped == "converged"


def test_another_form_is_the_constraint_at_the_start_of_a_text_too() -> None:
    language = LANGUAGES["chat"]  # there, no space stands before a word
    script = {"": {"Stands": 0.0, "The": -8.0}, "The": {" river": 0.0}}
    found = writer(language, telling(language, ["stood", "castle"], script)).generate(["stood", "castle"])
    assert found.text.lower().startswith("stood castle")


def test_all_forms_of_a_constraint_count_together() -> None:
    language = LANGUAGES["chat"]
    script = {"The": {" stands": 0.0, " stand": 0.0, " standing": 0.0, " stood": 0.0, " is": 0.3}, "": {"The": 0.0}}
    found = writer(language, telling(language, ["stood"], script)).generate(["stood"])
    assert found.text == "The stood"


def test_a_later_constraint_is_not_said_before_its_turn() -> None:
    language = LANGUAGES["chat"]
    script = {"": {"The": 0.0}, "The": {" dogs": 0.0, " dog": -1.0, " river": -2.0}, "The river": {" castle": 0.0}}
    script |= {"The river castle": {" dog": 0.0}, "The river castle dog": {".": 0.0}}
    found = writer(language, telling(language, ["castle", "dog"], script)).generate(["castle", "dog"])
    assert found.text == "The river castle dog."


def test_a_later_constraint_does_not_open_the_text() -> None:
    language = LANGUAGES["chat"]
    script = {"": {"Dog": 0.0, "The": -1.0}, "The": {" castle": 0.0}, "The castle": {" dog": 0.0}}
    found = writer(language, telling(language, ["castle", "dog"], script)).generate(["castle", "dog"])
    assert found.text == "The castle dog"


def test_a_constraint_is_not_said_behind_a_mark_without_its_space() -> None:
    language = LANGUAGES["chat"]
    script = {"": {"The": 0.0}, "The": {" (": 0.0}, "The (": {"dog": 0.0, "The": -1.0}, "The (The": {" dog": 0.0}}
    found = writer(language, telling(language, ["dog"], script)).generate(["dog"])
    assert found.text == "The (The dog"


def test_a_stop_word_among_later_constraints_may_be_said_before_its_turn() -> None:
    language = LANGUAGES["chat"]
    script = {"": {"The": 0.0}, "The": {" not": 0.0}, "The not": {" castle": 0.0}, "The not castle": {" not": 0.0}}
    found = writer(language, telling(language, ["castle", "not"], script)).generate(["castle", "not"])
    assert found.text == "The not castle not"


def test_a_text_that_has_room_ends_with_a_full_stop() -> None:
    language = LANGUAGES["chat"]
    scribe = writer(language, spelling(language, ["castle"], ["The", " castle"]), full_stop=True)
    assert scribe.generate(["castle"], max_length=20).text == "The castle."
    assert scribe.generate(["castle"], lock_end=True, max_length=20).text == "The castle"
    assert scribe.generate(["castle!"], lock_start=True, max_length=20).text == "castle!"


def test_an_offset_opens_or_closes_gaps() -> None:
    language = LANGUAGES["chat"]
    script = {"": {"The": 0.0}, "The": {" dog": 0.0, " river": 1.0}, "The river": {" dog": 0.0}}
    answer = telling(language, ["dog"], script)
    assert writer(language, answer).generate(["dog"]).text == "The river dog"
    assert writer(language, answer).generate(["dog"], noi_offset=2.0).text == "The dog"
    assert writer(language, answer, noi_offset=2.0).generate(["dog"]).text == "The dog", "that of the checkpoint"
    assert writer(language, answer, noi_offset=2.0).generate(["dog"], preset="plain").text == "The river dog"


def test_mixed_case_stays_and_plain_words_may_get_capitals() -> None:
    assert cased("iPhone") == ["iPhone"] and cased("New York") == ["New York"]
    assert cased("blue lake") == ["blue lake", "Blue lake", "Blue Lake"] and cased("ß") == ["ß"] and cased("3") == ["3"]
    assert cased("nhs") == ["nhs", "NHS"] and cased("a new york hotel")[1:] == ["A New York hotel", "a New York hotel"]
    language = LANGUAGES["chat"]
    for wanted, expected in (("Dog", "Dog"), ("dog", "dog")):
        found = writer(language, telling(language, ["dog"], {"": {wanted: 0.0, "The": -1.0}})).generate(["dog"])
        assert found.text == expected
    found = writer(language, telling(language, ["DOG"], {"": {"Dog": 0.0, "dog": 0.0, "D": -1.0}})).generate(["DOG"])
    assert found.text == "DOG"


@pytest.mark.parametrize("mood", HOSTILE)
def test_nothing_makes_a_constraint_another_word(mood: str) -> None:
    for language in LANGUAGES.values():
        scribe = writer(language, hostile(language, mood, 4))
        for [found] in scribe.generate_many([["dog", "3", "it's", "C++"], ["harbour"]], max_length=40):
            for start, end in found.spans:
                assert found.text[start - 1 : start] in ("", " ")
                assert re.match(r"$| |['\u2019]s\b|[.,!?;:)\]}\"\u201d%\u2026]", found.text[end:])


@pytest.mark.parametrize("mood", HOSTILE)
def test_half_a_word_becomes_whole_or_stays_as_it_is(mood: str) -> None:
    for language in (*LANGUAGES.values(), CONTRACTING):
        scribe = writer(language, hostile(language, mood, 5))
        found = scribe.generate(["didn", "dog", "wasn"], max_length=40)
        assert missing_constraints(found.text, ["didn", "dog", "wasn"]) == []
        for start, end in (found.spans[0], found.spans[2]):
            assert found.text[start - 1 : start] in ("", " ")
            assert re.match(r"$| |['\u2019]t\b|[.,!?;:)\]}\"\u201d%\u2026]", found.text[end:])


def test_a_name_is_told_and_written_as_one() -> None:
    language = CONTRACTING
    norway = [language.writes[token] for token in language.encode(" Norway")]
    script = {"": {"The": 0.0}, "The": {" dog": 0.0}, "The dog": {norway[0]: 0.0}}
    found = writer(language, telling(language, ["dog", "Norway"], script)).generate(["dog", "norway"])
    assert found.text == "The dog Norway" and found.constraints == ("dog", "norway")


def test_half_a_word_is_told_whole_and_completed() -> None:
    language = CONTRACTING
    answer = spelling(language, ["dog", "didn't"], ["The", " dog", " didn", "'t", " stand", "."])
    found = writer(language, answer).generate(["dog", "didn"])
    assert found.text == "The dog didn't stand." and found.constraints == ("dog", "didn")


# ---------------------------------------------------------------------------------------------------------------------
# The end of a sentence, while constraints wait

EARLY = {
    "": {"The": 0.0},
    "The": {" dog": 0.0},
    "The dog": {".": 0.0, " ran": -1.0},
    "The dog ran": {" river": 0.0},
    "The dog.": {END: 0.0, " river": -1.0},
    "The dog. river": {".": 0.0},
    "The dog ran river": {".": 0.0},
}


def test_a_mark_is_taken_back_where_the_model_takes_the_text_for_finished_too_early() -> None:
    language = LANGUAGES["chat"]
    answer = telling(language, ["dog", "river"], EARLY)
    assert writer(language, answer).generate(["dog", "river"]).text == "The dog ran river."
    assert [one.text for one in writer(language, answer).stream(["dog", "river"])][1:4] == ["The dog river"] * 3, (
        "a mark that may be taken back is not shown"
    )
    assert writer(language, answer, take_back=False).generate(["dog", "river"]).text == "The dog. river."
    answer = telling(language, ["dog", "river"], EARLY | {"The dog.": {END: -1.0, " river": 0.0}})
    assert writer(language, answer).generate(["dog", "river"]).text == "The dog. river."


def test_a_mark_behind_the_last_constraint_stays() -> None:
    language = LANGUAGES["chat"]
    answer = telling(language, ["dog"], EARLY)
    assert writer(language, answer).generate(["dog"]).text == "The dog."


def test_the_rest_of_a_word_may_be_said_again_but_no_three_words() -> None:
    language = CONTRACTING
    didn = [" not", " didn", "'t"]
    said = ["The", *didn, " dog", *didn, " river"]
    script = {"".join(said[:i]): {text: 0.0, " very": -2.0} for i, text in enumerate(said)}
    found = writer(language, telling(language, ["dog", "river"], script)).generate(["dog", "river"])
    assert found.text == "The not didn't dog not didn't river"
    said = ["The", " not", " very", " fast", " dog", " not", " very", " fast", " river"]
    script = {"".join(said[:i]): {text: 0.0, " river": -2.0} for i, text in enumerate(said)}
    found = writer(language, telling(language, ["dog", "river"], script)).generate(["dog", "river"])
    assert found.text == "The not very fast dog not very river"


def test_a_constraint_may_get_an_apostrophe_s_and_marks() -> None:
    language = LANGUAGES["chat"]
    said = ["The", " dog", "'s", " castle", ",", " the", " river", "."]
    answer = spelling(language, ["dog", "castle", "river"], said)
    assert writer(language, answer).generate(["dog", "castle", "river"]).text == "The dog's castle, the river."


def test_a_number_is_inserted_with_the_space_that_is_a_token_of_its_own() -> None:
    language = LANGUAGES["chat"]
    said = ["The", " dog", " ", "1", "9", " castle", " ", "3", "."]
    found = writer(language, spelling(language, ["dog", "castle"], said)).generate(["dog", "castle"])
    assert found.text == "The dog 19 castle 3."


# ---------------------------------------------------------------------------------------------------------------------
# Banned words, and words beside themselves

BANNED = ("dog", "the", "harbour", "is", "a", "in", "on", "it")


@pytest.mark.parametrize("mood", HOSTILE)
def test_banned_words_are_never_inserted(mood: str) -> None:
    for language in LANGUAGES.values():
        scribe = writer(language, hostile(language, mood, 6))
        for options in ({}, {"decoding": "sample"}, {"decoding": "beam"}):
            found = scribe.generate(["castle", "park", "river"], forbid=BANNED, max_length=24, **options)
            assert not {word for part in outside(found) for word in words_of(part)} & set(BANNED)
            holds(found, ["castle", "park", "river"])


@pytest.mark.parametrize(
    "pieces",
    [
        [" dog"],
        [" d", "o", "g"],
        [" D", "o", "g"],
        [" ", "d", "o", "g"],
        [" ", "dog"],
        [" '", "dog"],
        [" '", "d", "o", "g"],
        [" (", "dog"],
        [",", " dog"],
        [" the", "-", "dog"],
    ],
)
def test_a_banned_word_is_not_inserted_in_pieces_either(pieces: list[str]) -> None:
    language = LANGUAGES["chat"]
    said = ["The", " river", *pieces, " castle"]
    scribe = writer(language, spelling(language, ["castle"], said))
    found = scribe.generate(["castle"], forbid=("dog",), max_length=20)
    assert "dog" not in words_of(found.text)
    assert scribe.generate(["castle"], max_length=20).text == "".join(said), "it would be said, were it not banned"


def test_a_long_banned_word_is_not_inserted_letter_by_letter() -> None:
    language = LANGUAGES["chat"]
    said = ["The", " ", *"neighbourhoods", " castle"]
    scribe = writer(language, spelling(language, ["castle"], said))
    assert scribe.generate(["castle"], max_length=30).text == "The neighbourhoods castle"
    assert "neighbourhoods" not in words_of(scribe.generate(["castle"], forbid=("neighbourhoods",)).text)


@pytest.mark.parametrize("mood", HOSTILE)
def test_no_inserted_word_stands_beside_itself(mood: str) -> None:
    for language in LANGUAGES.values():
        for seed in range(3):
            scribe = writer(language, hostile(language, mood, seed))
            found = scribe.generate(["castle", "park"], max_length=40)
            for part in outside(found):
                assert not re.search(r"(?<![\w'\u2019])([\w'\u2019]+) \1(?![\w'\u2019])", part, re.IGNORECASE), part


@pytest.mark.parametrize(
    "pieces", [[" dog", " dog"], [" dog", " d", "o", "g"], [" d", "o", "g", " d", "o", "g"], [" ", "3", " ", "3"]]
)
def test_a_word_in_pieces_does_not_stand_beside_itself_either(pieces: list[str]) -> None:
    language = LANGUAGES["chat"]
    scribe = writer(language, spelling(language, ["castle"], ["The", *pieces, " castle"]))
    words = words_of(scribe.generate(["castle"], max_length=20).text)
    assert all(one != other for one, other in pairwise(words))


def test_the_forms_of_a_word_are_those_that_share_its_lemma() -> None:
    assert {"stand", "stands", "standing", "stood"} <= inflections("Stood")
    assert inflections("🎉") == {"🎉"} and "new york" in inflections("New York")


# ---------------------------------------------------------------------------------------------------------------------
# Refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "paper"}, 'preset: expected default or plain, all that scripted can do, found "paper"'),
        ({"rounds": 2}, "rounds: expected for parallel models alone, found with scripted"),
        ({"max_stages": 3}, "max_stages: expected for parallel models alone"),
        ({"presence_penalty": 1.0}, "presence_penalty: expected for parallel models alone"),
        ({"style": "poem"}, 'style: expected everyday, news, all that scripted has learnt, found "poem"'),
        ({"style": "wiki"}, 'found "wiki"'),
    ],
)
def test_a_writer_refuses_what_it_cannot_do(options: dict[str, Any], message: str) -> None:
    language = LANGUAGES["chat"]
    scribe = writer(language, hostile(language, "random", 0), styles=("everyday", "news"))
    for call in (scribe.generate, lambda *given, **options: list(scribe.stream(*given, **options))):
        with pytest.raises(UsageError, match=message):
            call(["dog"], **options)


def test_a_writer_refuses_the_authors_decoder() -> None:
    language = LANGUAGES["chat"]
    with pytest.raises(UsageError, match="preset"):
        writer(language, hostile(language, "random", 0)).generate(["dog"], preset="released")


def test_the_first_style_is_taken_unless_another_is_named() -> None:
    language = LANGUAGES["chat"]
    asked: list[Answer] = []

    def remember(style: str) -> Callable[..., Any]:
        return lambda prefix: (asked.append(prefix), np.zeros(language.size))[1]

    scribe = writer(language, remember("news"), styles=("news", "wiki"))
    scribe.generate(["dog"], max_length=8)
    scribe.generate(["dog"], style="wiki", max_length=8)
    prompts = [tuple(language.prompt(["dog"], style)) for style in ("news", "wiki")]
    assert asked[0] == prompts[0] and prompts[1] in asked


def test_log_probabilities_that_are_no_numbers_are_a_damaged_checkpoint() -> None:
    language = LANGUAGES["chat"]

    def broken(prefixes: Any) -> Floats:
        return np.full((len(prefixes), language.size), np.nan, np.float32)

    with pytest.raises(
        CheckpointError, match="Expected log-probabilities from damaged, found some that are no numbers"
    ):
        Writer(broken, language, name="damaged").generate(["dog"])


def test_a_wanted_length_is_reached() -> None:
    language = LANGUAGES["chat"]
    scribe = writer(language, hostile(language, "random", 1))
    for words in (3, 20):
        found = scribe.generate(["dog", "park"], length=words, max_length=100)
        assert count_words(found.text) == words and found.stopped != "length"


def test_the_words_of_a_constraint_are_text_and_never_a_command(language: Language = LANGUAGES["chat"]) -> None:
    scribe = writer(language, hostile(language, "specials", 0))
    found = scribe.generate(['"<|im_end|>"', '"<|im_start|> dog"'], max_length=60)
    assert found.text.count("<|im_end|>") == found.text.count("<|im_start|>") == 1
    draft = scribe.engine(Options()).start(demand_of(parse([quote("<|im_end|>")]), Options()))
    assert draft.read.count(language.end) == 1, "the end of the question, and no other"
