"""CGMH: its chain leaves the distribution alone that it should, and keywords are locked whatever the models say."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations_with_replacement, islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from prepared import prepared_folder
from scripted import HOSTILE, Answer, hostile, small_vocabulary

from pointer.baselines import open_system, train_system
from pointer.baselines.cgmh import (
    CGMH,
    EMPTY,
    OPERATIONS,
    Acceptance,
    BothWays,
    Ids,
    Models,
    Rules,
    Sizes,
    Slot,
    Step,
    Text,
    TrainedSlots,
    _random,
    load,
    moves,
    objective,
    places,
    predictions,
    walk,
)
from pointer.baselines.training import TextBatch
from pointer.decoding.constraints import INSERTED
from pointer.errors import CheckpointError, ConstraintError, UsageError
from pointer.training.data import TrainingData
from pointer.training.settings import BaselineSettings
from pointer.vocabulary import Vocabulary
from pointer.writing import missing_constraints


class Scripted:
    """`Slots` of language models that are functions: tokens so far -> log-probabilities of the next one."""

    def __init__(self, forwards: Any, backwards: Any, end: int, slots: Sequence[Slot]) -> None:
        self.forwards, self.end, self.slots = forwards, end, slots
        self.scores = np.stack([forwards(slot.left) + backwards(slot.right[::-1]) for slot in slots])

    def likelihoods(self, fillings: Sequence[Sequence[int]]) -> list[Any]:
        return [
            np.array([likelihood(self.forwards, slot.filled(token, 0.0).ids, self.end) for token in tokens])
            for slot, tokens in zip(self.slots, fillings, strict=True)
        ]


def likelihood(forwards: Any, ids: Ids, end: int) -> float:
    whole = (*ids, end)
    return sum(float(forwards(whole[:i])[whole[i]]) for i in range(len(whole)))


# ---------------------------------------------------------------------------------------------------------------------
# The stationary distribution

END, MARK, GLUE = 0, 3, 4
"""Of the toy vocabulary 0..4: what ends a text, what no piece may follow, and a piece."""
IS_PIECE = np.arange(5) == GLUE
MAY_BE_CONTINUED = np.array([False, True, True, False, True])


def table(seed: int, sharpness: float = 1.0) -> Any:
    """A language model whose answer depends on the last two tokens and the length."""
    logits = np.random.default_rng(seed).normal(0, sharpness, (6, 6, 7, 5))
    rows = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return lambda ids: rows[ids[-1] if ids else 5, ids[-2] if len(ids) > 1 else 5, len(ids)]


def toy(seed: int) -> tuple[Any, Models]:
    forwards, backwards = table(seed), table(seed + 1000)
    return forwards, lambda slots: Scripted(forwards, backwards, END, slots)


def rules(most: int, candidates: int) -> Rules:
    return Rules(np.arange(5) != END, IS_PIECE, MAY_BE_CONTINUED, most, candidates)


def all_texts(forwards: Any, phrases: list[Ids], most: int) -> list[Text]:
    """Every text that holds the phrases, from the definition: free tokens put between them in all ways."""
    found = []
    for size in range(most - sum(map(len, phrases)) + 1):
        for gaps in combinations_with_replacement(range(len(phrases) + 1), size):
            for tokens in product([1, 2, MARK, GLUE], repeat=size):
                pairs: list[tuple[int, int]] = []
                for number in range(len(phrases) + 1):
                    pairs += [(t, INSERTED) for t, gap in zip(tokens, gaps, strict=True) if gap == number]
                    pairs += [(t, number) for t in (phrases[number] if number < len(phrases) else ())]
                left = [(0, 0), *pairs]
                glued = [(a, b) for a, b in zip(left, pairs, strict=False) if b == (GLUE, INSERTED)]
                if all(whose == INSERTED and token in (1, 2, GLUE) for (token, whose), _ in glued):
                    ids, owner = tuple(t for t, _ in pairs), tuple(w for _, w in pairs)
                    found.append(Text(ids, owner, likelihood(forwards, ids, END)))
    return found


def transition_matrix(models: Models, texts: list[Text], limits: Rules) -> Any:
    number = {text[:2]: i for i, text in enumerate(texts)}
    steps, share = [], []
    for text in texts:
        for operation in OPERATIONS:
            where = places(text, operation, limits)
            steps += [Step(text, operation, place) for place in where]
            share += [1 / len(OPERATIONS) / len(where) for _ in where]
    matrix = np.zeros((len(texts), len(texts)))
    for step, weight, found in zip(steps, share, moves(models, steps, limits), strict=True):
        for text, probability in zip(*found, strict=True):
            matrix[number[step.text[:2]], number[text[:2]]] += weight * probability
    assert (matrix >= 0).all() and (matrix.sum(1) <= 1 + 1e-12).all()
    matrix[np.diag_indices(len(texts))] += 1 - matrix.sum(1)
    return matrix


def stationary(texts: list[Text]) -> Any:
    weights = np.exp([text.likelihood for text in texts])
    return weights / weights.sum()


@pytest.mark.parametrize("candidates", [1, 2, 3, 50])
@pytest.mark.parametrize(("phrases", "most"), [([(1,)], 4), ([(2, 1), (MARK,)], 5), ([(1,), (1,)], 4)])
def test_a_step_leaves_the_distribution_of_the_language_model_alone(
    phrases: list[Ids], most: int, candidates: int
) -> None:
    forwards, models = toy(len(phrases))
    texts = all_texts(forwards, phrases, most)
    matrix, expected = transition_matrix(models, texts, rules(most, candidates)), stationary(texts)
    assert np.abs(expected @ matrix - expected).max() < 1e-9
    flow = expected[:, None] * matrix
    assert np.abs(flow - flow.T).max() < 1e-12, "every move balances its reverse"
    if candidates == 50:
        forever = np.linalg.matrix_power(matrix, 2**14)
        assert np.abs(forever - expected).max() < 1e-9, "from any text every text is reached, as often as it should be"


def test_chains_are_where_the_matrix_says_after_any_number_of_steps() -> None:
    forwards, models = toy(3)
    phrases, limits, chains = [(1,)], rules(3, 3), 1500
    texts = all_texts(forwards, phrases, limits.most)
    matrix = transition_matrix(models, texts, limits)
    start = next(i for i, text in enumerate(texts) if text.ids == (1,))
    counts = {operation: Acceptance() for operation in OPERATIONS}
    randoms = [np.random.default_rng([7, i]) for i in range(chains)]
    number = {text[:2]: i for i, text in enumerate(texts)}
    for after, now in enumerate(islice(walk(models, [texts[start]] * chains, randoms, limits, counts), 5), 1):
        expected = np.linalg.matrix_power(matrix, after)[start]
        found = np.bincount([number[text[:2]] for text in now], minlength=len(texts)) / chains
        assert (np.abs(found - expected) < 5 * np.sqrt(expected * (1 - expected) / chains) + 1e-9).all()
        assert all(text.likelihood == pytest.approx(texts[number[text[:2]]].likelihood) for text in now[:50])
    assert all(one.tried >= one.accepted >= one.changed > 0 for one in counts.values())
    assert counts["insert"].accepted == counts["insert"].changed < counts["insert"].tried


# ---------------------------------------------------------------------------------------------------------------------
# The constraints


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    return small_vocabulary(tmp_path_factory.mktemp("vocabulary"))


def scripted(vocabulary: Vocabulary, forwards: Answer, backwards: Answer, **options: Any) -> CGMH:
    def probabilities(answer: Answer) -> Any:
        @cache
        def found(ids: Ids) -> Any:
            logits = np.clip(answer(list(ids), len(ids)), -100, 100)
            return logits - np.logaddexp.reduce(logits)

        return found

    both, end = (probabilities(forwards), probabilities(backwards)), vocabulary.id("[SEP]")
    return CGMH(lambda slots: Scripted(*both, end, slots), vocabulary, **options)


words = st.sampled_from(
    ["great", "food", "new york", "clean rice", "drinks", "tequila", "3", "staff.", "e-mail", "eBay", "\u65e5\u672c"]
)


@settings(deadline=None, max_examples=40)
@given(
    constraints=st.lists(words, min_size=1, max_size=4),
    moods=st.tuples(st.sampled_from(HOSTILE), st.sampled_from(HOSTILE)),
    seed=st.integers(0, 10**6),
    max_length=st.integers(3, 24),
)
def test_keywords_are_locked_whatever_the_models_say(
    vocabulary: Vocabulary, constraints: list[str], moods: tuple[str, str], seed: int, max_length: int
) -> None:
    answers = [hostile(vocabulary, mood, seed + i) for i, mood in enumerate(moods)]
    system = scripted(vocabulary, *answers, iterations=40, candidates=6)
    pieces = sum(len(one.ids) or 1 for one in vocabulary.encode([one.lower() for one in constraints]))
    if pieces > max_length - 2:
        with pytest.raises(ConstraintError, match="Expected constraints of at most"):
            system.generate_many([constraints], seed=seed, max_length=max_length)
        return
    [[found]] = system.generate_many([constraints], seed=seed, max_length=max_length)
    assert found.missing == () and len(found.tokens) <= max_length - 2
    assert [found.text[a:b].lower() for a, b in found.spans] == [constraint.lower() for constraint in constraints]
    assert list(found.spans) == sorted(found.spans) and missing_constraints(found.text, constraints) == []
    banned = {*vocabulary.special.tolist(), vocabulary.noi}
    stage = [(vocabulary.id(token), new) for token, new in found.stages[0]]
    assert not {token for token, new in stage if new} & banned
    for (left, left_is_new), (token, new) in zip([(vocabulary.noi, True), *stage], stage, strict=False):
        assert not (new and vocabulary.continues[token]) or (left_is_new and vocabulary.is_word[left])
    assert found.score < 0 and math.isfinite(found.score)


def test_a_phrase_stays_whole_and_words_come_around_it(vocabulary: Vocabulary) -> None:
    system = scripted(vocabulary, hostile(vocabulary, "insert", 1), hostile(vocabulary, "insert", 2), candidates=8)
    assert system.iterations == 500
    system.iterations = 120
    [[found]] = system.generate_many([["new york", "clean rice"]], max_length=20)
    tokens = " ".join(found.tokens)
    assert "new york" in tokens and "clean rice" in tokens and len(found.tokens) > 4
    assert [token.text for token in found.stages[0] if not token.new] == ["new", "york", "clean", "rice"]
    assert set(system.acceptance) == set(OPERATIONS)
    assert 0 < sum(one.tried for one in system.acceptance.values()) <= 120


def test_nothing_may_be_put_into_a_phrase_or_glued_to_a_constraint() -> None:
    limits = rules(9, 50)
    text = Text((2, 1, 1, GLUE, GLUE), (0, 0, INSERTED, INSERTED, INSERTED), 0.0)
    assert text.gaps == [0, 2, 3, 4, 5] and text.free == [2, 3, 4]
    assert places(text, "insert", rules(5, 50)) == [], "the text is full"

    def fillings(operation: str, place: int) -> list[int]:
        return np.flatnonzero(limits.fillings(Step(text, operation, place).slot)).tolist()

    assert fillings("insert", 2) == [1, 2, MARK] and fillings("insert", 3) == [1, 2, GLUE]
    assert fillings("replace", 2) == [1, 2] and fillings("insert", 5) == [1, 2, MARK, GLUE]
    assert fillings("insert", 0) == [1, 2, MARK]
    assert [limits.may_be_empty(Step(text, "delete", place).slot) for place in text.free] == [False, True, True]


# ---------------------------------------------------------------------------------------------------------------------
# Training

LEARNS = BaselineSettings(
    learning_rate=1e-2, warmup_steps=5, steps=75, batch_tokens=512, evaluate_every=25, log_every=5, validation_rows=8
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared_folder(tmp_path_factory.mktemp("prepared"), 50)


@pytest.fixture(scope="module")
def data(folder: Path) -> TrainingData:
    return TrainingData.open(folder, None, LEARNS)


@pytest.fixture(scope="module")
def trained(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "small"
    train_system("cgmh", folder, out, LEARNS, validation=folder, show=False, hidden=32)
    return out


def test_it_learns_more_than_how_often_each_token_comes(trained: Path, data: TrainingData) -> None:
    lines = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    losses = [line["validation"]["loss"] for line in lines if "validation" in line]
    ids = np.concatenate([data.texts.ids, data.held_out.ids, np.full(50, data.vocabulary.id("[SEP]"))])
    share = np.unique(ids, return_counts=True)[1] / len(ids)
    assert losses == sorted(losses, reverse=True) and losses[-1] < -(share * np.log(share)).sum() - 0.3


def by_hand(model: Any, tokens: list[int]) -> Any:
    """The log-probabilities after some tokens, read alone and from the beginning."""
    with torch.no_grad():
        hidden, _ = model.lstm(model.embedding(torch.tensor([tokens])))
        return model.logits(hidden[0, -1]).double().log_softmax(-1).numpy()


def test_the_loss_is_that_of_every_token_read_both_ways(data: TrainingData) -> None:
    torch.manual_seed(0)
    model, ids = BothWays(len(data.vocabulary), Sizes(16)), np.array([3, 8, 20])
    batch = TextBatch(data.texts.take(ids), data.vocabulary, np.random.default_rng(0), 0.0, torch.device("cpu"))
    total = objective(model, batch)
    begin, end = data.vocabulary.id("[CLS]"), data.vocabulary.id("[SEP]")
    expected, count = 0.0, 0
    for text in batch.sequences():
        framed = [begin, *text.tolist(), end]
        for reader, read in ((model.forwards, framed), (model.backwards, framed[::-1])):
            expected -= sum(by_hand(reader, read[:i])[read[i]] for i in range(1, len(read)))
            count += len(read) - 1
    assert float(total.detach()) == pytest.approx(expected, rel=1e-4)
    assert predictions(np.diff(batch.texts.offsets)).sum() == count


def test_slots_that_are_read_together_get_the_answers_of_texts_read_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pointer.baselines.cgmh.ROWS", 3)
    monkeypatch.setattr("pointer.baselines.cgmh.POSITIONS", 4)
    torch.manual_seed(1)
    model = BothWays(12, Sizes(8, 2))
    slots = [Slot(left, right, (), ()) for left, right in [((), (5, 6, 7)), ((4, 4), ()), ((), ()), ((9, 3, 2), (8,))]]
    fillings = [[3, 4, EMPTY], [EMPTY, 7], [EMPTY], [5, 6, 7, 8]]
    view = TrainedSlots(model, 0, 1, slots)
    for slot, tokens, scores, found in zip(slots, fillings, view.scores, view.likelihoods(fillings), strict=True):
        forwards = by_hand(model.forwards, [0, *slot.left])
        np.testing.assert_allclose(scores, forwards + by_hand(model.backwards, [1, *slot.right[::-1]]), atol=1e-5)
        expected = [
            likelihood(lambda ids: by_hand(model.forwards, [0, *ids]), slot.filled(token, 0.0).ids, 1)
            for token in tokens
        ]
        np.testing.assert_allclose(found, expected, atol=1e-5)
    assert [len(found) for found in view.likelihoods([[], [], [], []])] == [0, 0, 0, 0]


def test_what_was_trained_opens_again_and_writes_more_likely_texts_than_the_keywords(trained: Path) -> None:
    system = open_system("cgmh", trained)
    assert isinstance(system, CGMH) and system.name == f"cgmh:{trained}"
    assert (system.iterations, system.candidates) == (500, 50)
    assert "300 hidden units" in (trained / "best" / "README.md").read_text()
    system = load(trained, iterations=60, candidates=10)
    [[found]] = system.generate_many([["harbour", "boats"]], max_length=20)
    start = system._start(("harbour", "boats"), system._rules(18))
    [[alone]] = system.models([start]).likelihoods([[EMPTY]])
    assert found.missing == () and found.stopped == "end" and len(found.tokens) > len(start.right)
    assert found.score > alone / (len(start.right) + 1)


def test_a_text_depends_on_its_seed_and_constraints_and_not_on_its_batch(vocabulary: Vocabulary, trained: Path) -> None:
    lists = [["great", "food"], ["new york"], ["love", "rice", "back", "place"], ["great", "food"]]
    answers = hostile(vocabulary, "random", 4), hostile(vocabulary, "random", 5)
    for system in (scripted(vocabulary, *answers, iterations=30, candidates=6), load(trained, None, 20, 6)):

        def texts(seed: int, batch_size: int, system: CGMH = system) -> list[str]:
            found = system.generate_many(lists, batch_size=batch_size, seed=seed, max_length=16)
            return [best.text for [best] in found]

        together = texts(3, 64)
        assert together == texts(3, 1) == texts(3, 3) != texts(4, 64) and together[0] == together[3]


def test_the_text_is_the_best_of_the_second_half_of_the_chain(vocabulary: Vocabulary) -> None:
    answers = hostile(vocabulary, "random", 8), hostile(vocabulary, "random", 9)
    system = scripted(vocabulary, *answers, iterations=21, candidates=6)
    limits, counts = system._rules(14), {operation: Acceptance() for operation in OPERATIONS}
    slot = system._start(("great", "food"), limits)
    [[known]] = system.models([slot]).likelihoods([[EMPTY]])
    chain = walk(system.models, [slot.filled(EMPTY, known)], [_random(5, ("great", "food"))], limits, counts)
    seen = [text for [text] in islice(chain, 21)][10:]
    [[found]] = system.generate_many([["great", "food"]], seed=5, max_length=16)
    best = max(seen, key=lambda text: text.likelihood / (len(text.ids) + 1))
    assert found.tokens == tuple(vocabulary.tokens[i] for i in best.ids) and found.score == pytest.approx(best.score)
    assert len({text.ids for text in seen}) > 1 and system.acceptance == counts


# ---------------------------------------------------------------------------------------------------------------------
# Bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decoding": "beam"}, 'decoding: expected greedy, sample, all that cgmh can do, found "beam"'),
        ({"n": 3, "decoding": "sample"}, "n: expected 1, all that cgmh can do, found 3"),
        ({"top_k": 5}, "top_k: expected 0, all that cgmh can do, found 5"),
        ({"colour": "red"}, 'found "colour"'),
        ({"batch_size": 0}, "batch_size: expected at least 1, found 0"),
    ],
)
def test_an_option_that_makes_no_sense_is_named(vocabulary: Vocabulary, options: dict[str, Any], message: str) -> None:
    answer = hostile(vocabulary, "random", 0)
    with pytest.raises(UsageError, match=message):
        scripted(vocabulary, answer, answer).generate_many([["food"]], **options)


def test_bad_input_gets_a_sentence(vocabulary: Vocabulary, folder: Path, trained: Path, tmp_path: Path) -> None:
    answer = hostile(vocabulary, "random", 0)
    system = scripted(vocabulary, answer, answer)
    with pytest.raises(ConstraintError, match="Expected at least one constraint"):
        system.generate_many([["food"], []])
    with pytest.raises(ConstraintError, match="Expected constraints of at most 3 tokens, found 4"):
        system.generate_many([["food"], ["food"] * 4], max_length=5)
    assert system.generate_many([]) == []
    with pytest.raises(CheckpointError, match=r"Expected a folder with a trained cgmh, found no .*nowhere"):
        open_system("cgmh", tmp_path / "nowhere")
    with pytest.raises(UsageError, match="iterations: expected at least 1, found 0"):
        load(trained, iterations=0)
    with pytest.raises(UsageError, match="candidates: expected at least 1, found -1"):
        load(trained, candidates=-1)
    for sizes, message in (({"hidden": 0}, "hidden: expected at least 1, found 0"), ({"depth": 2}, 'found "depth"')):
        with pytest.raises(UsageError, match=message):
            train_system("cgmh", folder, tmp_path / "out", replace(LEARNS, steps=1), **sizes)
    damaged = CGMH(
        lambda slots: Scripted(lambda _: np.full(len(vocabulary), np.nan), lambda _: 0.0, 0, slots), vocabulary
    )
    with pytest.raises(CheckpointError, match="Expected probabilities from the language models, found NaN"):
        damaged.generate_many([["food"]])
