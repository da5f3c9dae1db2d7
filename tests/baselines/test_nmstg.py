"""NMSTG: its training trees are the text and nothing else, and its own trees hold the constraints whatever it says."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import HOSTILE, Answer, hostile, small_vocabulary

from pointer.baselines import open_system, train_system
from pointer.baselines.autoregressive import Prefix
from pointer.baselines.nmstg import (
    NONE,
    NonMonotonic,
    Policy,
    RememberingPolicy,
    Sizes,
    Texts,
    Tree,
    Trees,
    complete_tree,
    load,
    objective,
    oracle,
    oracle_texts,
    predictions,
    roll_in,
)
from pointer.baselines.training import TextBatch
from pointer.decoding.generator import Generation
from pointer.errors import CheckpointError, ConstraintError, DataError, UsageError
from pointer.prepare.corpus import Corpus
from pointer.prepare.shards import Preparation, prepare
from pointer.training.data import TrainingData
from pointer.training.settings import BaselineSettings
from pointer.vocabulary import Vocabulary, shrink, word_counts
from pointer.writing import missing_constraints

SENTENCES = ["The old dog slept.", "Fresh bread costs money.", "Our captain sold ropes.", "Rain woke everyone early."]
SMALL = {"hidden": 64, "width": 32}
LEARNS = BaselineSettings(
    learning_rate=0.02, warmup_steps=10, steps=150, batch_tokens=1024, evaluate_every=50, log_every=10, patience=None
)
START, END = 1, 0
"""Of the toy vocabulary 0..9."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four short sentences, each sixteen times: a step sees many trees of every one."""
    home = tmp_path_factory.mktemp("prepared")
    (home / "texts.txt").write_text("\n".join(SENTENCES * 16) + "\n")
    english = Vocabulary.open("english")
    shrink(english, word_counts(SENTENCES, english), 300)[0].save(home / "vocabulary")
    prepare(Preparation(Corpus((str(home / "texts.txt"),)), vocabulary=str(home / "vocabulary")), home / "data")
    return home / "data"


@pytest.fixture(scope="module")
def data(folder: Path) -> TrainingData:
    return TrainingData.open(folder, folder, LEARNS)


@pytest.fixture(scope="module")
def trained(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "small"
    train_system("nmstg", folder, out, LEARNS, validation=folder, about="Harbours.", show=False, **SMALL)
    return out


def batch_of(data: TrainingData, which: list[int], used: float = 0.0, seed: int = 0) -> TextBatch:
    random = np.random.default_rng(seed)
    return TextBatch(data.texts.take(np.array(which)), data.vocabulary, random, used, torch.device("cpu"))


def toy_policy(seed: int) -> Policy:
    torch.manual_seed(seed)
    policy = Policy(Sizes(8, 1, 6), 10)
    torch.nn.init.normal_(policy.embedding.weight, std=2.0)
    return policy


def toy_texts(sequences: list[list[tuple[int, bool]]]) -> Texts:
    longest = max(map(len, sequences))
    ids = [[i for i, _ in text] + [2] * (longest - len(text)) for text in sequences]
    continues = [[glued for _, glued in text] + [False] * (longest - len(text)) for text in sequences]
    return Texts(torch.tensor(ids), torch.tensor([len(text) for text in sequences]), torch.tensor(continues))


def in_order(trees: Trees, row: int) -> list[int]:
    """The positions of the text by a walk through a tree that knows of its shape alone, not of spans."""
    chosen = trees.chosen[row, : int(trees.is_node[row].sum())].tolist()
    first_child = [2 * sum(place != NONE for place in chosen[:node]) + 1 for node in range(len(chosen))]

    def walk(node: int) -> list[int]:
        if chosen[node] == NONE:
            return []
        return [*walk(first_child[node]), chosen[node], *walk(first_child[node] + 1)]

    return walk(0)


# ---------------------------------------------------------------------------------------------------------------------
# The oracle and its trees

glued_tokens = st.tuples(st.integers(2, 9), st.booleans())


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.lists(glued_tokens, min_size=1, max_size=8), min_size=1, max_size=4),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.integers(0, 10**6),
)
def test_every_tree_of_the_oracle_is_its_text_in_order(
    sequences: list[list[tuple[int, bool]]], annealing: float, seed: int
) -> None:
    texts = toy_texts(sequences)
    trees = roll_in(toy_policy(seed), texts, START, END, annealing, np.random.default_rng(seed))
    for row, text in enumerate(sequences):
        assert int(trees.is_node[row].sum()) == 2 * len(text) + 1
        assert in_order(trees, row) == list(range(len(text)))
        for (low, high), place in zip(trees.spans[row].tolist(), trees.chosen[row].tolist(), strict=True):
            assert (place == NONE and low >= high) or low <= place < high
            assert place in (NONE, low) or not text[place][1], "a piece comes after what it continues"


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.tuples(st.floats(-30, 30), st.booleans()), min_size=1, max_size=10),
    st.tuples(st.integers(0, 10), st.integers(0, 10)),
    st.floats(0, 1),
)
def test_the_oracle_is_a_distribution_over_the_span(
    tokens: list[tuple[float, bool]], ends: tuple[int, int], annealing: float
) -> None:
    low, high = sorted(min(end, len(tokens)) for end in ends)
    scores = torch.tensor([[score for score, _ in tokens]])
    continues = torch.tensor([[glued for _, glued in tokens]])
    found = oracle(torch.tensor([[low, high]]), continues, scores, annealing)[0]
    valid = [i for i in range(low, high) if i == low or not tokens[i][1]]
    assert not found[[i for i in range(len(tokens)) if i not in valid]].any()
    assert float(found.sum()) == pytest.approx(1.0 if valid else 0.0, abs=1e-5)
    if valid:
        uniform = oracle(torch.tensor([[low, high]]), continues, scores, 0.0)[0, valid]
        coached = oracle(torch.tensor([[low, high]]), continues, scores, 1.0)[0, valid]
        assert uniform.tolist() == pytest.approx([1 / len(valid)] * len(valid))
        assert coached.tolist() == pytest.approx(scores[0, valid].softmax(-1).tolist(), abs=1e-6)
        torch.testing.assert_close(found[valid], (1 - annealing) * uniform + annealing * coached)


def test_trees_are_drawn_as_often_as_the_oracle_says() -> None:
    texts = toy_texts([[(3, False), (4, False), (5, False)]] * 4000)
    policy = toy_policy(5)
    features, _ = policy(torch.tensor([[START]]))
    coached = policy.logits(features)[0, 0, [3, 4, 5]].softmax(-1)
    for annealing in (0.0, 0.5, 1.0):
        roots = roll_in(policy, texts, START, END, annealing, np.random.default_rng(0)).chosen[:, 0]
        expected = (1 - annealing) / 3 + annealing * coached
        torch.testing.assert_close(roots.bincount(minlength=3) / 4000, expected.detach(), atol=0.03, rtol=0)


@pytest.mark.parametrize("used", [0.0, 0.6, 1.0])
def test_the_loss_is_the_divergence_node_by_node(data: TrainingData, used: float) -> None:
    torch.manual_seed(0)
    policy = Policy(Sizes(**SMALL), len(data.vocabulary)).double()
    total = objective(policy, batch_of(data, [0, 5, 9], used))
    batch = batch_of(data, [0, 5, 9], used)
    start, end = batch.vocabulary.id("[CLS]"), batch.vocabulary.noi
    trees = roll_in(policy, oracle_texts(batch), start, end, used, batch.random)
    expected, nodes = 0.0, 0
    for row, text in enumerate(batch.sequences()):
        said = [start]
        for node in range(2 * len(text) + 1):
            with torch.no_grad():
                log_p = policy.logits(policy(torch.tensor([said]))[0])[0, -1].log_softmax(-1)
            low, high = trees.spans[row, node].tolist()
            valid = [i for i in range(low, high) if i == low or not data.vocabulary.continues[text[i]]]
            own = log_p[text[valid]]
            wanted = (1 - used) / max(1, len(valid)) + used * own.softmax(-1)
            expected += float((wanted * (wanted.log() - own)).sum()) if valid else -float(log_p[end])
            said.append(int(text[trees.chosen[row, node]]) if valid else end)
            nodes += 1
    assert predictions(np.diff(batch.texts.offsets)).sum() == nodes
    assert float(total.detach()) == pytest.approx(expected, rel=1e-5)


def test_validation_is_as_far_annealed_as_training(data: TrainingData) -> None:
    policy = Policy(Sizes(**SMALL), len(data.vocabulary))
    training = [float(objective(policy, batch_of(data, [0, 5], used)).detach()) for used in (0.0, 1.0)]
    policy.eval()
    validation = [float(objective(policy, batch_of(data, [0, 5], used)).detach()) for used in (0.0, 1.0)]
    assert validation == training and training[0] != training[1]


# ---------------------------------------------------------------------------------------------------------------------
# Training


def test_it_learns_a_tiny_corpus_and_the_folder_opens_again(trained: Path, data: TrainingData) -> None:
    log = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in log if "loss" in line]
    assert losses[-1] < 0.4 * losses[0]
    assert min(line["validation"]["loss"] for line in log if "validation" in line) < 0.5 * losses[0]
    system = open_system("nmstg", trained / "last")
    assert system.name == f"nmstg:{trained / 'last'}"  # type: ignore[attr-defined]
    assert "1024 hidden units" in (trained / "best" / "README.md").read_text()
    seen = {data.vocabulary.tokens[token] for text in batch_of(data, list(range(64))).sequences() for token in text}
    for [found] in system.generate_many([["dog"], ["bread"], ["our", "ropes"]], max_length=30):
        assert found.missing == () and found.stopped == "end" and len(found.tokens) > 2
        assert {*found.tokens} <= seen


def test_the_policy_remembers_as_if_it_read_everything_again(data: TrainingData) -> None:
    torch.manual_seed(1)
    policy = Policy(Sizes(hidden=12, layers=2, width=8), len(data.vocabulary))
    remembering = RememberingPolicy(policy)
    steps: list[list[Prefix]] = [
        [(5, 6), (7, 8, 9, 10), (11,)],
        [(7, 8, 9, 10, 1), (7, 8, 9, 10, 2), (11, 3, 4)],  # one left, one twice, one by two
        [(11, 3, 4, 4), (7, 8, 9, 10, 2, 5)],
        [(11, 3, 4, 4), (11, 3, 4, 4)],
        [(20, 21)],  # something else altogether
    ]
    for prefixes in steps:
        for prefix, answer in zip(prefixes, remembering(prefixes), strict=True):
            with torch.no_grad():
                alone = policy.logits(policy(torch.tensor([prefix]))[0])[0, -1].log_softmax(-1)
            np.testing.assert_allclose(answer, alone.numpy(), atol=1e-5)


# ---------------------------------------------------------------------------------------------------------------------
# Generating


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    return small_vocabulary(tmp_path_factory.mktemp("vocabulary"))


def scripted(vocabulary: Vocabulary, answer: Answer) -> NonMonotonic:
    def policy(prefixes: Sequence[Prefix]) -> Any:
        logits = np.clip(np.stack([answer(list(prefix), len(prefix)) for prefix in prefixes]), -1e4, 1e4)
        return torch.log_softmax(torch.from_numpy(logits).float(), -1).numpy()

    return NonMonotonic(lambda: policy, vocabulary)


def saying(vocabulary: Vocabulary, actions: str) -> NonMonotonic:
    """A policy that wants to say these tokens at the nodes, in level-order, the constraints' own among them."""
    tokens = actions.split()

    def answer(ids: list[int], _: int) -> Any:
        said = len(ids) - 1
        return 20.0 * (np.arange(len(vocabulary)) == vocabulary.id(tokens[said] if said < len(tokens) else "[NOI]"))

    return scripted(vocabulary, answer)


@given(st.integers(1, 80))
def test_the_constraints_tree_is_in_order_and_read_before_anything_is_chosen(size: int) -> None:
    places = complete_tree(size)
    assert sorted(places) == list(range(size))

    def walk(node: int) -> list[int]:
        return [] if node >= size else [*walk(2 * node + 1), places[node], *walk(2 * node + 2)]

    assert walk(0) == list(range(size))


def test_a_policy_reads_all_constraints_before_it_is_asked(vocabulary: Vocabulary) -> None:
    tree = Tree(("great", "new york", "rice", "food"), vocabulary)
    tree.advance(50)
    assert [vocabulary.tokens[i] for i in tree.said] == ["[CLS]", "rice", "new", "food", "great", "york"]
    for _ in range(4):  # beside "food" and beside "great"
        tree.say(vocabulary.noi)
    tree.advance(50)
    assert len(tree.said) == 11, "the gap inside the phrase is closed without a question"
    assert tree.in_order().owner.tolist() == [0, 1, 1, 2, 3]


def test_the_text_is_the_tree_in_order(vocabulary: Vocabulary) -> None:
    # "food" over "the" and "great"; "great" over "was" and "."; "was" has "very" on its right
    system = saying(vocabulary, "food the great [NOI] [NOI] was . [NOI] very")
    [[found]] = system.generate_many([["food"]])
    assert found.tokens == ("the", "food", "was", "very", "great", ".")
    assert found.text == "The food was very great." and found.stopped == "end" and found.missing == ()
    assert [found.text[a:b] for a, b in found.spans] == ["food"]
    assert [token.new for token in found.stages[0]] == [True, False, True, True, True, True]
    assert found.score == pytest.approx(0, abs=1e-3)


def test_a_piece_continues_a_chosen_word_and_never_a_constraint(vocabulary: Vocabulary) -> None:
    [[found]] = saying(vocabulary, "food [NOI] ##s").generate_many([["food"]])
    assert "##s" not in found.tokens, "nothing directly right of a constraint"
    [[found]] = saying(vocabulary, "food [NOI] great [NOI] ##er the [NOI]").generate_many([["food"]])
    assert found.tokens == ("food", "great", "##er"), "and nothing between a word and its piece"


words = st.sampled_from(
    ["great", "food", "new york", "clean rice", "drinks", "tequila", "3", "staff.", "e-mail", "eBay", "\u65e5\u672c"]
)


@settings(deadline=None, max_examples=120)
@given(
    constraints=st.lists(words, min_size=1, max_size=5),
    mood=st.sampled_from(HOSTILE),
    decoding=st.sampled_from(["greedy", "sample"]),
    seed=st.integers(0, 10**6),
    max_length=st.integers(3, 40),
)
def test_constraints_hold_whatever_the_policy_says(
    vocabulary: Vocabulary, constraints: list[str], mood: str, decoding: str, seed: int, max_length: int
) -> None:
    system = scripted(vocabulary, hostile(vocabulary, mood, seed))
    options = {"decoding": decoding, "seed": seed, "max_length": max_length}
    given_tokens = Tree(tuple(constraints), vocabulary).given
    if len(given_tokens) > max_length - 2:
        with pytest.raises(ConstraintError, match=f"at most {max_length - 2} tokens, found {len(given_tokens)}"):
            system.generate_many([constraints], **options)
        return
    [[found]] = system.generate_many([constraints], **options)
    assert found.missing == () and missing_constraints(found.text, constraints) == []
    assert [found.text[a:b].lower() for a, b in found.spans] == [constraint.lower() for constraint in constraints]
    assert list(found.spans) == sorted(found.spans)
    assert len(found.tokens) <= max_length - 2
    assert (found.stopped == "max_length") == (len(found.tokens) == max_length - 2)
    stage = found.stages[0]
    assert [t.text for t in stage if not t.new] == [vocabulary.tokens[i] for i in given_tokens.ids]
    chosen = {vocabulary.id(token.text) for token in stage if token.new}
    assert not chosen & {*vocabulary.special.tolist(), vocabulary.noi}
    for left, right in zip([None, *stage], stage, strict=False):
        if right.new and right.text.startswith("##"):
            assert left is not None and left.new and vocabulary.is_word[vocabulary.id(left.text)]


@pytest.mark.parametrize("decoding", ["greedy", "sample"])
def test_phrases_stay_whole_when_every_gap_wants_a_token(vocabulary: Vocabulary, decoding: str) -> None:
    system = scripted(vocabulary, hostile(vocabulary, "insert", 2))
    [[found]] = system.generate_many([["new york", "very clean rice", "eBay"]], max_length=60, decoding=decoding)
    assert len(found.tokens) == 58 and found.stopped == "max_length"
    assert [found.text[a:b].lower() for a, b in found.spans] == ["new york", "very clean rice", "ebay"]


def test_a_text_does_not_depend_on_its_neighbours_or_on_the_batch_size(vocabulary: Vocabulary, trained: Path) -> None:
    lists = [["great", "food"], ["new york"], ["love", "rice", "back", "place"], ["great", "food"]]
    for system in (scripted(vocabulary, hostile(vocabulary, "random", 4)), load(trained)):
        for decoding in ("greedy", "sample"):
            options = {"decoding": decoding, "seed": 3, "max_length": 24}
            together = system.generate_many(lists, **options)
            alone = [system.generate_many([one], batch_size=1, **options)[0] for one in lists]
            assert [[one.text for one in texts] for texts in together] == [[one.text for one in x] for x in alone]


def test_samples_are_different_and_follow_the_seed(vocabulary: Vocabulary) -> None:
    system = scripted(vocabulary, hostile(vocabulary, "random", 4))

    def drawn(**options: Any) -> list[Generation]:
        return system.generate_many([["great", "food"]], decoding="sample", max_length=12, **options)[0]

    texts = [one.text for one in drawn(n=5)]
    assert len(set(texts)) == 5 and texts == [one.text for one in drawn(n=5)]
    assert texts != [one.text for one in drawn(n=5, seed=1)]
    scores = [one.score for one in drawn(n=5)]
    assert scores == sorted(scores, reverse=True)
    [[greedy]] = system.generate_many([["great", "food"]], max_length=12)
    assert [one.text for one in drawn(top_k=1)] == [greedy.text]
    assert len(drawn(n=5, top_k=1)) == 1, "where there is but one text, there is but one"


# ---------------------------------------------------------------------------------------------------------------------
# Bad input


def test_bad_input_gets_a_sentence(vocabulary: Vocabulary, folder: Path, tmp_path: Path) -> None:
    system = saying(vocabulary, "food")
    with pytest.raises(ConstraintError, match="Expected at least one constraint"):
        system.generate_many([["food"], []])
    for options, message in (
        ({"decoding": "beam"}, 'decoding: expected greedy, sample, all that nmstg can do, found "beam"'),
        ({"noi_offset": 1.0}, r"noi_offset: expected 0\.0, all that nmstg can do, found 1\.0"),
        ({"colour": "red"}, 'found "colour"'),
        ({"batch_size": 0}, "batch_size: expected at least 1, found 0"),
    ):
        with pytest.raises(UsageError, match=message):
            system.generate_many([["food"]], **options)
    with pytest.raises(CheckpointError, match="Expected numbers from the model nmstg, found NaN"):
        NonMonotonic(lambda: lambda _: np.full((1, len(vocabulary)), np.nan, np.float32), vocabulary).generate_many(
            [["food"]]
        )
    with pytest.raises(CheckpointError, match=r"Expected a folder with a trained nmstg, found no .*nowhere"):
        open_system("nmstg", tmp_path / "nowhere")
    quick = replace(LEARNS, steps=1)
    for sizes, message in (({"hidden": 0}, "hidden: expected at least 1, found 0"), ({"depth": 3}, 'found "depth"')):
        with pytest.raises(UsageError, match=message):
            train_system("nmstg", folder, tmp_path / "out", quick, **sizes)
    with pytest.raises(DataError, match="Expected prepared data"):
        train_system("nmstg", tmp_path, tmp_path / "out", quick)
    assert not (tmp_path / "out").exists()
