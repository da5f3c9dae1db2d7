"""Every part of the constraint language, combined at random, under hostile logits: what was promised is in the text."""

import itertools
import re
from random import Random
from typing import Any

import pytest
import tiny_causal
from scripted import HOSTILE, hostile, scripted, small_vocabulary

from pointer.decoding import generator
from pointer.decoding.demand import Demand, content_words, count_words, demand_of
from pointer.decoding.generator import Generation, Pointer
from pointer.decoding.grammar import (
    AnyForm,
    AnyOf,
    AnyOrder,
    Constraints,
    Forbid,
    InOrder,
    Joined,
    Length,
    Maybe,
    Part,
    Phrase,
    Template,
    parse,
)
from pointer.decoding.options import Options
from pointer.errors import ConstraintError
from pointer.vocabulary import Vocabulary
from pointer.writing import missing_constraints

LANGUAGE = tiny_causal.chat_language()
NOUNS = ["food", "music", "staff", "rice", "place", "dog", "park", "castle", "river", "harbour"]
FORBIDDEN = ["the", "very", "was", "new york", "a", "is", "and clean"]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    return small_vocabulary(tmp_path_factory.mktemp("vocabulary"))


# ---------------------------------------------------------------------------------------------------------------------
# Constraints at random. A plain generator: a strategy of this size takes Hypothesis longer to draw than we to decode.


@pytest.fixture(autouse=True)
def few_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is promised of a text does not depend on how many there are to pick from."""
    monkeypatch.setattr(generator, "DRAFTS", 2)


def phrase(draw: Random) -> Phrase:
    return Phrase(" ".join(draw.sample([*NOUNS, "New York", "well-known", "it's", "600"], draw.choice([1, 1, 2]))))


def simple(draw: Random) -> Phrase | AnyForm:
    return AnyForm(draw.choice(["love", "stand", "place", "clean", "dog"])) if draw.random() < 0.3 else phrase(draw)


def item(draw: Random) -> Part:
    kind = draw.random()
    found: Any = simple(draw)
    if kind < 0.15:
        found = AnyOf((Phrase("colour"), found, Phrase("new york city")))
    elif kind < 0.25:
        found = Joined((AnyForm("love"), phrase(draw)))
    return Maybe(found) if draw.random() < 0.2 else found


def part(draw: Random) -> Part:
    kind = draw.random()
    if kind < 0.5:
        return item(draw)
    chain = InOrder((item(draw), item(draw)))
    return chain if kind < 0.65 else AnyOrder((item(draw), draw.choice([chain, item(draw)]), item(draw)))


def constraints(draw: Random) -> Constraints:
    parts: list[Part] = [phrase(draw), *(part(draw) for _ in range(draw.randrange(3)))]
    draw.shuffle(parts)
    low = draw.randrange(1, 20)
    if draw.random() < 0.3:
        parts.append(Length(low, low + draw.randrange(6)))
    if draw.random() < 0.2:
        parts.append(Length(draw.choice([1, 2]), draw.choice([2, 3]), "sentences"))
    parts += [Forbid(Phrase(text)) for text in draw.sample(FORBIDDEN, draw.choice([0, 0, 1, 3]))]
    if draw.random() < 0.1:
        parts.append(Forbid(draw.choice([AnyForm("be"), AnyOf((AnyForm("serve"), Phrase("friendly staff")))])))
    return Constraints(tuple(parts))


def template(draw: Random) -> Template:
    stretches = draw.sample(["Dear", "thank you for", "last", "the big", "(see", "so:"], draw.randrange(1, 4))
    text = draw.choice([" ___ ", " ___, ", "___ ", " (___) "]).join(stretches)
    return Template(draw.choice(["", "___ "]) + text + draw.choice([" ___.", " ___"]))


DECODINGS: list[dict[str, Any]] = [
    {}, {"seed": 1}, {"decoding": "sample", "seed": 3}, {"decoding": "beam", "width": 2}, {"n": 2}, {"unordered": True},
    {"best_of": 2, "pick_by": "model"}, {"lock_start": True, "lock_end": True}, {"forbid_forms": True},
    {"decoding": "sample", "n": 2},
]  # fmt: skip


def holds(found: Generation, demand: Demand) -> None:
    """Every promise about one text, asked of the written string."""
    text = found.text
    assert not demand.forbids(text), (text, demand.forbidden)
    assert not any(re.search(rf"(?i)(?<!\w){re.escape(one)}(?!\w)", text) for one in demand.forbidden)
    assert found.asked == demand.asked and len(found.order) == len(found.spans) == len(found.constraints)
    assert len(set(found.order)) == len(found.order)
    end = 0
    for number, form, (a, b) in zip(found.order, found.constraints, found.spans, strict=True):
        item = demand.items[number]
        assert form in item.forms and text[a:b].lower() == form.lower() and a >= end
        assert not item.after & set(found.order[found.order.index(number) + 1 :]), "an order that was not allowed"
        end = b
    assert {i for i, item in enumerate(demand.items) if not item.optional} <= set(found.order)
    if not demand.verbatim:
        assert missing_constraints(text, found.constraints) == []
    if found.stopped != "length":
        assert demand.misses(text) == 0, (text, demand.words, demand.sentences)
    else:
        assert demand.misses(text) > 0 and "The length could not be reached" in found.remark
    if demand.lock_start:
        assert found.spans[0][0] == 0
    if demand.lock_end:
        assert found.spans[-1][1] == len(text)


def differ(texts: list[Generation]) -> None:
    for one, other in itertools.combinations(texts, 2):
        a, b = content_words(one.text, one.spans), content_words(other.text, other.spans)
        assert 2 * len(a & b) <= min(len(a), len(b)) and one.text != other.text


def keeps(pointer: Pointer, draw: Random, options: dict[str, Any], count: int) -> None:
    """So many demands are met; those that contradict themselves are refused, and do not count."""
    done = 0
    while done < count:
        asked = constraints(draw)
        try:
            [found] = pointer.generate_many([asked], **options)
        except ConstraintError as error:
            assert "forbid" in str(error) or "tokens" in str(error)
            continue
        demand, n = demand_of(asked, Options.of(options)), options.get("n", 1)
        assert 1 <= len(found) <= n and all((len(found) < n) == (f"found {len(found)}" in one.remark) for one in found)
        for text in found:
            holds(text, demand)
        differ(found)
        done += 1


EACH, TEMPLATES = 54, 16
"""Demands for each mood and way of decoding, and templates for each mood."""


def test_there_are_10_000_and_every_kind_is_among_them() -> None:
    moods = len(HOSTILE) + len(tiny_causal.HOSTILE)
    assert len(DECODINGS) * moods * EACH + 4 * moods * TEMPLATES > 10_000
    draw = Random(0)
    drawn = [constraints(draw) for _ in range(EACH)]
    text = "\n".join(map(str, drawn))
    for mark in ("~love", "colour|", "~love ", "?", "[", " > ", "!", "!~be", "=", " sentences"):
        assert mark in text, mark
    assert {name for options in DECODINGS for name in options} >= {"n", "unordered", "forbid_forms", "best_of"}


@pytest.mark.parametrize("options", DECODINGS, ids=str)
@pytest.mark.parametrize("mood", HOSTILE)
def test_a_parallel_model_keeps_every_part_of_the_language(
    vocabulary: Vocabulary, mood: str, options: dict[str, Any]
) -> None:
    draw = Random(f"{mood} {options}")
    for seed, preset in enumerate(("plain", "default")):
        pointer = scripted(vocabulary, hostile(vocabulary, mood, seed))
        keeps(pointer, draw, options | {"preset": preset, "max_length": 26, "max_stages": 4}, EACH // 2)


@pytest.mark.parametrize("options", DECODINGS, ids=str)
@pytest.mark.parametrize("mood", tiny_causal.HOSTILE)
def test_a_writer_keeps_every_part_of_the_language(mood: str, options: dict[str, Any]) -> None:
    draw = Random(f"{mood} {options}")
    for seed in range(2):
        scribe = tiny_causal.writer(LANGUAGE, tiny_causal.hostile(LANGUAGE, mood, seed), longest=400)
        keeps(scribe, draw, options | {"max_length": 40}, EACH // 2)


def fixed_text_is_kept(found: Generation, given: Template) -> None:
    """All of a template is there, character for character, and every gap has a word."""
    gaps = r"(\S(?:.*\S)?)".join(re.escape(stretch) for stretch in re.split(r"_{3,}", given.text))
    if given.everywhere:
        words = iter(re.findall(r"\S", found.text))
        assert all(letter in words for letter in re.findall(r"\S", given.text)), (given.text, found.text)
        return
    match = re.fullmatch(gaps, found.text)
    assert match and all(any(map(str.isalnum, gap)) for gap in match.groups()), (given.text, found.text)


@pytest.mark.parametrize(
    ("kind", "mood"), [("parallel", m) for m in HOSTILE] + [("writer", m) for m in tiny_causal.HOSTILE]
)
def test_a_template_comes_back_with_every_gap_filled_and_a_sentence_with_more_words(
    vocabulary: Vocabulary, kind: str, mood: str
) -> None:
    draw = Random(mood)
    pointer: Pointer
    if kind == "writer":
        pointer = tiny_causal.writer(LANGUAGE, tiny_causal.hostile(LANGUAGE, mood, 1), longest=400)
    else:
        pointer = scripted(vocabulary, hostile(vocabulary, mood, 1))
    for options in ({}, {"decoding": "sample"}, {"decoding": "beam", "width": 2}, {"forbid": ("the", "new")}):
        done = 0
        while done < TEMPLATES:
            given = template(draw)
            try:
                found = pointer.generate(given, max_length=60, **options)
            except ConstraintError as error:
                assert "forbid" in str(error)
                continue
            fixed_text_is_kept(found, given)
            holds(found, demand_of(parse(given), Options.of(options)))
            done += 1
        sentence = "Her (big) dog's gone, sadly."
        found = pointer.expand(sentence, max_length=60, **options)
        fixed_text_is_kept(found, Template(sentence, everywhere=True))
        assert found.stopped == "length" or 7 <= count_words(found.text) <= 10, found
