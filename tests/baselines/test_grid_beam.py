"""Grid beam search: it finds the best text there is, and its constraints hold whatever the model says."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scripted import HOSTILE, Answer, hostile, small_vocabulary

from pointer.baselines import train_system
from pointer.baselines.grid_beam import GridBeam, Problem, Rules, allocate, search
from pointer.errors import CheckpointError, ConstraintError, UsageError
from pointer.runtime import NextToken, Prefix
from pointer.vocabulary import Vocabulary
from pointer.writing import missing_constraints, unplaced_constraints

END, GLUE = 0, 4
"""Of the toy vocabulary 0..4: what ends a text, and what continues a word."""
CONTINUES = np.arange(5) == GLUE


def toy(seed: int) -> NextToken:
    """A model whose answer depends on the last two tokens and the length."""
    logits = np.random.default_rng(seed).normal(0, 2, (5, 6, 8, 5))
    table = logits - np.log(np.exp(logits).sum(-1, keepdims=True))

    def answer(prefixes: Sequence[Prefix]) -> Any:
        places = [(p[-1], p[-2] if len(p) > 1 else 5, len(p)) for p in prefixes]
        return np.stack([table[place] for place in places])

    return answer


def likelihood(model: NextToken, prompt: Prefix, text: Prefix) -> float:
    whole = (*prompt, *text, END)
    return sum(float(model([whole[:i]])[0][whole[i]]) for i in range(len(prompt), len(whole)))


def holds(text: Prefix, constraints: tuple[Prefix, ...], ordered: bool, start: int = 0) -> bool:
    """Can every constraint be found whole, at a place of its own?"""
    if not constraints:
        return True
    for i in range(len(constraints) if not ordered else 1):
        phrase, rest = constraints[i], constraints[:i] + constraints[i + 1 :]
        for place in range(start, len(text) - len(phrase) + 1):
            end = place + len(phrase)
            is_whole = end == len(text) or text[end] != GLUE
            if text[place:end] == phrase and is_whole and holds(text, rest, ordered, end):
                return True
    return False


phrases = st.lists(st.sampled_from([(1,), (2,), (3,), (1, 2), (1, 1), (2, GLUE), (1, 2, 1)]), min_size=1, max_size=3)


@settings(deadline=None, max_examples=60)
@example(927233, [(3,)], False, 0.0)  # texts that have a constraint twice once counted twice
@given(st.integers(0, 10**6), phrases, st.booleans(), st.sampled_from([0.0, 0.5, 1.0]))
def test_a_wide_beam_finds_the_best_of_all_texts(
    seed: int, phrases: list[Prefix], ordered: bool, length_penalty: float
) -> None:
    model, prompt, most, constraints = toy(seed), (3,), 5, tuple(phrases)
    texts = [text for size in range(1, most) for text in product(range(1, 5), repeat=size)]
    scores = {
        text: likelihood(model, prompt, text) / (len(text) + 1) ** length_penalty
        for text in texts
        if holds(text, constraints, ordered)
    }
    rules = Rules(END, CONTINUES, ordered, 5000, length_penalty, patience=None, n=3)
    if sum(map(len, phrases)) > most:
        with pytest.raises(ConstraintError, match="Expected constraints of at most 5 tokens"):
            search(model, [Problem(prompt, constraints, most)], rules)
        return
    [found] = search(model, [Problem(prompt, constraints, most)], rules)
    ended = [one for one in found if one.stopped == "end"]
    best = sorted(scores.values(), reverse=True)[:3]
    assert [one.score(length_penalty) for one in ended] == pytest.approx(best)
    assert [scores[one.text] for one in ended] == pytest.approx(best), "and these are the texts with those scores"


def test_a_wide_beam_finds_the_best_of_unordered_constraints_in_the_other_order() -> None:
    follows = np.log(np.array([[0.02, 0.49, 0.49], [0.9, 0.05, 0.05], [0.05, 0.9, 0.05]]))  # 2 likes 1, 1 likes the end
    problem = [Problem((0,), ((1,), (2,)), 6)]

    def model(prefixes: Sequence[Prefix]) -> Any:
        return follows[[prefix[-1] for prefix in prefixes]]

    assert search(model, problem, Rules(END, ordered=False, length_penalty=0))[0][0].text == (2, 1)
    assert search(model, problem, Rules(END, ordered=True, length_penalty=0))[0][0].text == (1, 2, 1)


def test_a_chance_bar_may_become_bartender_and_a_constraint_may_not() -> None:
    answer = np.full((9, 5), -20.0)
    answer[1], answer[2], answer[3], answer[4] = [-20, -0.1, -9, -9, -9], [-20, -9, -9, -9, -0.1], -0.1, -0.1

    def model(prefixes: Sequence[Prefix]) -> Any:  # wants 1, then glue, then anything
        return answer[[len(prefix) for prefix in prefixes]]

    [[best]] = search(model, [Problem((3,), ((1,),), 5)], Rules(END, CONTINUES, width=50, patience=None))
    assert best.text[:2] == (1, GLUE) and best.owner[:2] == (-1, -1)
    assert best.owner.index(0) >= 2 and best.text[best.owner.index(0)] == 1


def test_patience_ends_a_search_that_brings_nothing_better() -> None:
    asked = []

    def model(prefixes: Sequence[Prefix]) -> Any:  # the longer the worse
        asked.append(len(prefixes[0]))
        return np.log(np.array([[0.4, 0.3, 0.3]] * len(prefixes)))

    search(model, [Problem((2,), ((1,),), 60)], Rules(END, patience=3))
    assert max(asked) < 10
    asked.clear()
    search(model, [Problem((2,), ((1,),), 60)], Rules(END, patience=None))
    assert max(asked) > 30


def test_a_search_does_not_know_what_is_searched_beside_it() -> None:
    problems = [Problem((3,), ((1,), (2, 1)), 6), Problem((1, 2), ((3,),), 4), Problem((2,), ((1, 2),), 5)]
    together = search(toy(7), problems, Rules(END, CONTINUES))
    assert together == [search(toy(7), [problem], Rules(END, CONTINUES))[0] for problem in problems]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(6, 20))
def test_no_bank_with_texts_is_left_out_and_no_slot_is_wasted(waiting: list[int], width: int) -> None:
    slots = allocate(waiting, width)
    assert sum(slots) == min(width, sum(waiting))
    assert all(0 < slot <= size if size else slot == 0 for slot, size in zip(slots, waiting, strict=True))


# ---------------------------------------------------------------------------------------------------------------------
# The system


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    return small_vocabulary(tmp_path_factory.mktemp("vocabulary"))


def scripted(vocabulary: Vocabulary, answer: Answer, **options: Any) -> GridBeam:
    def model(prefixes: Sequence[Prefix]) -> Any:
        logits = np.clip(np.stack([answer(list(prefix), len(prefix)) for prefix in prefixes]), -1e4, 1e4)
        logits -= logits.max(-1, keepdims=True)
        return (logits - np.log(np.exp(logits).sum(-1, keepdims=True))).astype(np.float32)

    return GridBeam(lambda: model, vocabulary, **options)


words = st.sampled_from(
    ["great", "food", "new york", "clean rice", "drinks", "tequila", "3", "staff.", "e-mail", "eBay", "\u65e5\u672c"]
)


@settings(deadline=None, max_examples=60)
@given(
    constraints=st.lists(words, min_size=1, max_size=4),
    mood=st.sampled_from(HOSTILE),
    seed=st.integers(0, 10**6),
    width=st.integers(1, 6),
    max_length=st.integers(3, 30),
    ordered=st.booleans(),
)
def test_constraints_hold_whatever_the_model_says(
    vocabulary: Vocabulary, constraints: list[str], mood: str, seed: int, width: int, max_length: int, ordered: bool
) -> None:
    system = scripted(vocabulary, hostile(vocabulary, mood, seed), ordered=ordered)
    pieces = len(system.tokens(tuple(constraints)))
    if pieces > max_length - 2:
        with pytest.raises(ConstraintError, match="Expected constraints of at most"):
            system.generate_many([constraints], width=width, max_length=max_length)
        return
    [[found]] = system.generate_many([constraints], width=width, max_length=max_length)
    assert found.missing == () and len(found.tokens) <= max_length - 2
    assert [found.text[a:b].lower() for a, b in found.spans] == [constraint.lower() for constraint in constraints]
    assert (missing_constraints if ordered else unplaced_constraints)(found.text, constraints) == []
    assert ordered is False or list(found.spans) == sorted(found.spans)
    chosen = [token.text for token in found.stages[0] if token.new]
    assert not {vocabulary.id(token) for token in chosen} & {*vocabulary.special.tolist(), vocabulary.noi}
    assert found.stopped == ("max_length" if len(found.tokens) == max_length - 2 else "end")


def test_a_list_does_not_depend_on_its_neighbours_or_on_the_batch_size(vocabulary: Vocabulary) -> None:
    system = scripted(vocabulary, hostile(vocabulary, "random", 5))
    lists = [["great", "food"], ["new york"], ["love", "rice", "back", "place"], ["the"]] * 2
    together = system.generate_many(lists, max_length=20)
    assert together == [system.generate_many([one], max_length=20)[0] for one in lists]
    assert together == system.generate_many(lists, batch_size=3, max_length=20)


def test_several_texts_are_different_and_the_best_comes_first(vocabulary: Vocabulary) -> None:
    system = scripted(vocabulary, hostile(vocabulary, "random", 6))
    [found] = system.generate_many([["great", "food"]], decoding="beam", width=8, n=5, max_length=20)
    assert len({one.text for one in found}) == 5
    ranks = [(one.stopped == "end", one.score) for one in found]
    assert ranks == sorted(ranks, reverse=True), "a text that ends is better than one that was stopped"


def test_bad_input_gets_a_sentence(vocabulary: Vocabulary, tmp_path: Path) -> None:
    system = scripted(vocabulary, hostile(vocabulary, "random", 1))
    with pytest.raises(ConstraintError, match="Expected at least one constraint"):
        system.generate_many([[]])
    with pytest.raises(ConstraintError, match=r"constraint 2 .* is empty"):
        system.generate_many([["great", " "]])
    with pytest.raises(UsageError, match='decoding: expected greedy, beam, all that grid-beam can do, found "sample"'):
        system.generate_many([["great"]], decoding="sample")
    with pytest.raises(UsageError, match=r"temperature: expected 1\.0, all that grid-beam can do"):
        system.generate_many([["great"]], temperature=0.5)
    with pytest.raises(ConstraintError, match="within the 256 positions of the model"):
        system.generate_many([["great"] * 150])
    with pytest.raises(UsageError, match="expected one that is trained, found grid-beam"):
        train_system("grid-beam", tmp_path, tmp_path, None)  # type: ignore[arg-type]
    with pytest.raises(ConstraintError, match="constraint 1 is empty"):
        search(toy(0), [Problem((1,), ((),), 5)], Rules(END))
    with pytest.raises(ConstraintError, match="constraint 1 begins with a token that continues a word"):
        search(toy(0), [Problem((1,), ((GLUE,),), 5)], Rules(END, CONTINUES))
    with pytest.raises(UsageError, match="width: expected at least 1, found 0"):
        Rules(END, width=0)
    with pytest.raises(CheckpointError, match="found NaN"):
        search(lambda prefixes: np.full((len(prefixes), 5), np.nan), [Problem((1,), ((2,),), 5)], Rules(END))
