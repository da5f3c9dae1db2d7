"""The soft-constraint baseline: what it is trained on, that it learns it, and that it tells what it forgets."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from prepared import prepared_folder
from scripted import HOSTILE, Answer, hostile, small_vocabulary
from transformers import AutoModelForCausalLM, GPT2LMHeadModel

from pointer.baselines import open_system, train_system
from pointer.baselines.autoregressive import (
    Autoregressive,
    Prefix,
    Sizes,
    configuration,
    load,
    objective,
    pairs,
    predictions,
)
from pointer.baselines.training import TextBatch
from pointer.decoding.generator import Generation
from pointer.errors import CheckpointError, ConstraintError, DataError, TrainingError, UsageError
from pointer.model import InsertionTransformer
from pointer.runtime.torch import CachedModel
from pointer.training.batches import IGNORED
from pointer.training.data import TrainingData
from pointer.training.settings import BaselineSettings
from pointer.vocabulary import Vocabulary

SMALL = {"layers": 2, "width": 64, "heads": 2, "positions": 128}
LEARNS = BaselineSettings(
    learning_rate=5e-3, warmup_steps=20, epochs=60, batch_tokens=512, evaluate_every=200, log_every=20, keywords=(3, 5)
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared_folder(tmp_path_factory.mktemp("prepared"), 40)


@pytest.fixture(scope="module")
def data(folder: Path) -> TrainingData:
    return TrainingData.open(folder, None, LEARNS)


@pytest.fixture(scope="module")
def trained(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model that knows the sentences by heart."""
    out = tmp_path_factory.mktemp("runs") / "small"
    train_system("autoregressive", folder, out, LEARNS, validation=folder, about="Harbours.", show=False, **SMALL)
    return out


def batch_of(data: TrainingData, which: list[int], seed: int = 0) -> TextBatch:
    random = np.random.default_rng(seed)
    return TextBatch(data.texts.take(np.array(which)), data.vocabulary, random, 0.0, torch.device("cpu"))


# ---------------------------------------------------------------------------------------------------------------------
# Training


def test_a_pair_is_keywords_in_text_order_a_separator_and_the_text(data: TrainingData) -> None:
    end, pad = data.vocabulary.id("[SEP]"), data.vocabulary.id("[PAD]")
    inputs, labels = pairs(batch_of(data, [3, 9, 20]), 2, 4)
    for row, text in enumerate(batch_of(data, [3, 9, 20]).sequences()):
        read = [i for i in inputs[row].tolist() if i != pad]
        keywords, said = read[: read.index(end)], read[read.index(end) + 1 :]
        assert said == text.tolist()
        places = iter(text.tolist())
        assert keywords and all(key in places for key in keywords), "in the order of the text"
        expected = [IGNORED] * len(keywords) + [*text.tolist(), end]
        assert labels[row].tolist() == expected + [IGNORED] * (labels.shape[1] - len(expected))


def test_the_loss_is_the_one_that_transformers_computes_text_by_text(data: TrainingData) -> None:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(configuration(Sizes(**SMALL), data.vocabulary)).eval()
    batch = batch_of(data, [0, 7, 21])
    total = objective(2, 4)(model, batch)
    inputs, labels = pairs(batch_of(data, [0, 7, 21]), 2, 4)
    expected = 0.0
    for ids, wanted in zip(inputs, labels, strict=True):
        size = int((wanted != IGNORED).nonzero().max()) + 1
        with torch.no_grad():
            log_probabilities = model(ids[None, :size]).logits[0].double().log_softmax(-1)
        expected -= sum(float(log_probabilities[i, y]) for i, y in enumerate(wanted[:size]) if y != IGNORED)
    assert float(total.detach()) == pytest.approx(expected, rel=1e-4)
    assert predictions(np.diff(batch.texts.offsets)).sum() == int((labels != IGNORED).sum())


def keyword_lists(data: TrainingData) -> tuple[list[list[str]], list[str]]:
    """The keywords of every text, and its tokens."""
    batch = batch_of(data, list(range(len(data.texts))), seed=5)
    lists, texts = [], []
    for ids, keys in zip(batch.sequences(), batch.keywords(4, 4), strict=True):
        tokens = [data.vocabulary.tokens[i] for i in ids]
        texts.append(" ".join(tokens))
        lists.append(" ".join(t for t, key in zip(tokens, keys, strict=True) if key).replace(" ##", "").split())
    return lists, texts


def test_it_learns_to_write_texts_from_their_keywords_and_says_what_is_missing(
    trained: Path, data: TrainingData
) -> None:
    lists, texts = keyword_lists(data)
    system = open_system("autoregressive", trained)
    found = [best for [best] in system.generate_many(lists)]
    assert sum(" ".join(one.tokens) == text for one, text in zip(found, texts, strict=True)) > 0.8 * len(texts)
    assert sum(len(one.missing) for one in found) < 0.1 * sum(map(len, lists))
    assert found[0].text[0].isupper() and found[0].stopped == "end" and len(found[0].stages) == 1
    [[lost]] = system.generate_many([[*lists[0], "zebra"]])
    assert "zebra" in lost.missing and len(lost.spans) + len(lost.missing) == len(lists[0]) + 1


def test_grid_beam_search_forces_what_the_same_model_would_forget(trained: Path, data: TrainingData) -> None:
    asked = [*keyword_lists(data)[0][0][:2], "zebra"]
    [[soft]] = open_system("autoregressive", trained).generate_many([asked])
    [[hard]] = open_system("grid-beam", trained).generate_many([asked], max_length=40)
    assert "zebra" in soft.missing and hard.missing == () and "zebra" in hard.text
    names = [open_system(system, trained).name for system in ("autoregressive", "grid-beam")]
    assert names == [f"autoregressive:{trained}", f"grid-beam:{trained}"], "records tell the two apart"


def test_the_checkpoint_is_one_that_transformers_opens(trained: Path, data: TrainingData) -> None:
    theirs = AutoModelForCausalLM.from_pretrained(trained / "best").eval()
    assert isinstance(theirs, GPT2LMHeadModel)
    prefix = (7, 8, data.vocabulary.id("[SEP]"), 20)
    with torch.no_grad():
        expected = theirs(torch.tensor([prefix])).logits[0, -1].log_softmax(-1)
    np.testing.assert_allclose(load(trained).begin()([prefix])[0], expected.numpy(), atol=1e-5)
    assert "117M" in (trained / "best" / "README.md").read_text()


# ---------------------------------------------------------------------------------------------------------------------
# The cache


def test_the_cache_answers_as_if_there_were_none(data: TrainingData) -> None:
    torch.manual_seed(1)
    model = GPT2LMHeadModel(configuration(Sizes(**SMALL), data.vocabulary)).eval()
    next_token = CachedModel(model)
    steps: list[list[Prefix]] = [
        [(5, 6), (7, 8, 9, 10), (11,)],
        [(7, 8, 9, 10, 1), (7, 8, 9, 10, 2), (11, 3)],  # one left, one twice, another order
        [(11, 3, 4), (7, 8, 9, 10, 2, 5)],
        [(11, 3, 4, 4), (11, 3, 4, 4)],
        [(11, 3, 4, 4, 5), (11, 3, 4, 4, 6)],
        [(20, 21)],  # something else altogether
    ]
    for prefixes in steps:
        found = next_token(prefixes)
        for prefix, answer in zip(prefixes, found, strict=True):
            with torch.no_grad():
                alone = model(torch.tensor([prefix])).logits[0, -1].log_softmax(-1)
            np.testing.assert_allclose(answer, alone.numpy(), atol=1e-5)


# ---------------------------------------------------------------------------------------------------------------------
# Generating


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    return small_vocabulary(tmp_path_factory.mktemp("vocabulary"))


def scripted(vocabulary: Vocabulary, answer: Answer) -> Autoregressive:
    def model(prefixes: Sequence[Prefix]) -> Any:
        logits = np.clip(np.stack([answer(list(prefix), len(prefix)) for prefix in prefixes]), -1e4, 1e4)
        return torch.log_softmax(torch.from_numpy(logits).float(), -1).numpy()

    return Autoregressive(lambda: model, vocabulary)


def saying(vocabulary: Vocabulary, text: str) -> Autoregressive:
    """A model that says these words, whatever it has read, and then ends."""
    tokens = [*text.split(), "[SEP]"]

    def answer(ids: list[int], _: int) -> Any:
        written = len(ids) - ids.index(vocabulary.id("[SEP]")) - 1
        return 20.0 * (np.arange(len(vocabulary)) == vocabulary.id(tokens[min(written, len(tokens) - 1)]))

    return scripted(vocabulary, answer)


def test_the_text_is_written_as_people_write_and_what_is_lost_is_named(vocabulary: Vocabulary) -> None:
    [[found]] = saying(vocabulary, "the food was great ##er , new york").generate_many([["Great", "food", "new york"]])
    assert found.text == "The food was greater, new york"
    assert found.missing == ("Great",) and [found.text[a:b] for a, b in found.spans] == ["food", "new york"]
    assert found.tokens == ("the", "food", "was", "great", "##er", ",", "new", "york") and found.stopped == "end"
    assert all(token.new for token in found.stages[0]) and found.score == pytest.approx(0, abs=1e-3)


def test_a_text_stops_at_the_length_limit(vocabulary: Vocabulary) -> None:
    [[found]] = saying(vocabulary, "the food was great").generate_many([["food"]], max_length=5)
    assert found.tokens == ("the", "food", "was") and found.stopped == "max_length"
    [[found]] = saying(vocabulary, "the food " * 200).generate_many([["food"]], max_length=512)
    assert len(found.tokens) == 256 - 2, "all positions of the model"


@pytest.mark.parametrize("mood", HOSTILE)
@pytest.mark.parametrize("decoding", ["greedy", "sample"])
def test_no_special_token_and_no_loose_piece_is_ever_written(vocabulary: Vocabulary, mood: str, decoding: str) -> None:
    system = scripted(vocabulary, hostile(vocabulary, mood, 3))
    banned = {*vocabulary.special.tolist(), vocabulary.noi}
    for [found] in system.generate_many([["great"], ["new york", "rice"]], decoding=decoding, max_length=20):
        ids = [vocabulary.id(token) for token in found.tokens]
        assert ids and not banned & set(ids)
        for left, right in zip([banned.copy().pop(), *ids], ids, strict=False):
            assert not vocabulary.continues[right] or vocabulary.is_word[left]


def test_a_text_does_not_depend_on_its_neighbours_or_on_the_batch_size(vocabulary: Vocabulary, trained: Path) -> None:
    lists = [["great", "food"], ["new york"], ["love", "rice", "back", "place"]]
    for system in (scripted(vocabulary, hostile(vocabulary, "random", 4)), load(trained)):
        for decoding in ("greedy", "sample"):
            options = {"decoding": decoding, "seed": 3, "max_length": 16}
            together = system.generate_many(lists, **options)
            alone = [system.generate_many([one], batch_size=1, **options)[0] for one in lists]
            assert [[one.text for one in texts] for texts in together] == [[one.text for one in x] for x in alone]


def test_samples_are_different_and_follow_the_seed(vocabulary: Vocabulary) -> None:
    system = scripted(vocabulary, hostile(vocabulary, "random", 4))

    def drawn(**options: Any) -> list[Generation]:
        return system.generate_many([["great", "food"]], decoding="sample", max_length=12, **options)[0]

    texts = [one.text for one in drawn(n=5)]
    assert len(set(texts)) == 5 and texts == [one.text for one in drawn(n=5)] != [
        one.text for one in drawn(n=5, seed=1)
    ]
    scores = [one.score for one in drawn(n=5)]
    assert scores == sorted(scores, reverse=True)
    [[greedy]] = system.generate_many([["great", "food"]], max_length=12)
    assert [one.text for one in drawn(top_k=1)] == [greedy.text] == [one.text for one in drawn(temperature=0.01)]
    assert len(drawn(n=5, top_k=1)) == 1, "where there is but one text, there is but one"


# ---------------------------------------------------------------------------------------------------------------------
# Bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decoding": "beam"}, 'decoding: expected greedy, sample, all that autoregressive can do, found "beam"'),
        ({"noi_offset": 1.0}, r"noi_offset: expected 0\.0, all that autoregressive can do, found 1\.0"),
        ({"forbid": ("food",)}, r"forbid: expected \(\), all that autoregressive can do"),
        ({"colour": "red"}, 'found "colour"'),
        ({"batch_size": 0}, "batch_size: expected at least 1, found 0"),
    ],
)
def test_an_option_that_makes_no_sense_is_named(vocabulary: Vocabulary, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        saying(vocabulary, "the food").generate_many([["food"]], **options)


def test_bad_input_gets_a_sentence(vocabulary: Vocabulary, folder: Path, data: TrainingData, tmp_path: Path) -> None:
    system = saying(vocabulary, "the food")
    with pytest.raises(ConstraintError, match="Expected at least one constraint"):
        system.generate_many([["food"], []])
    with pytest.raises(ConstraintError, match="within the 256 positions of the model, found 300 tokens"):
        system.generate_many([["food"] * 300])
    with pytest.raises(CheckpointError, match=r"Expected a folder with a trained autoregressive, found no .*nowhere"):
        open_system("autoregressive", tmp_path / "nowhere")
    with pytest.raises(UsageError, match="model: expected the folder of a trained grid-beam, found none"):
        open_system("grid-beam")
    InsertionTransformer.start("tiny", data.vocabulary).save_pretrained(tmp_path / "bert")
    with pytest.raises(CheckpointError, match="found the system pointer"):
        open_system("grid-beam", tmp_path / "bert")
    settings = replace(LEARNS, epochs=1)
    for sizes, message in (
        ({"width": 65}, "width: expected a multiple of the 6 heads, found 65"),
        ({"layers": 0}, "layers: expected at least 1, found 0"),
        ({"depth": 3}, 'found "depth"'),
    ):
        with pytest.raises(UsageError, match=message):
            train_system("autoregressive", folder, tmp_path / "out", settings, **sizes)
    with pytest.raises(TrainingError, match=r"positions: expected at least .*, twice the longest text, found 16"):
        train_system("autoregressive", folder, tmp_path / "out", settings, positions=16)
    with pytest.raises(DataError, match="Expected prepared data"):
        train_system("autoregressive", tmp_path, tmp_path / "out", settings)
    assert not (tmp_path / "out").exists()
    broken = Path(shutil.copytree(folder, tmp_path / "damaged"))
    (broken / "shard-00000.parquet").write_bytes(b"")
    with pytest.raises(DataError, match="hash in the manifest"):
        train_system("autoregressive", broken, tmp_path / "out", settings)
