"""The authors' decoder, against what their release printed and against the ways it loses constraints."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from pointer.decoding.released import (
    ROUNDS,
    TOO_LONG,
    ReleasedDecoding,
    adjust,
    decode_released,
    first_stage,
    insert,
    released_text,
    sample,
)
from pointer.model import InsertionTransformer, convert_released
from pointer.vocabulary import Vocabulary
from pointer.writing import missing_constraints

GOLDEN = Path(__file__).parent.parent / "golden" / "released-tiny"


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """The decoder is many small steps; on a busy machine threads only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> InsertionTransformer:
    return convert_released(GOLDEN, tmp_path_factory.mktemp("released") / "converted").eval()


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.open(GOLDEN)


def shown(decoding: ReleasedDecoding, vocabulary: Vocabulary) -> list[str]:
    """The stages as the release prints them."""
    titles = ["Input", *(f"Round {number}:" for number in range(ROUNDS))]
    texts = [" ".join(vocabulary.tokens[i].encode("ascii", "ignore").decode() for i in s) for s in decoding.stages]
    return [f"{title} {text}" for title, text in zip(titles, texts, strict=True)]


@pytest.mark.parametrize(("name", "separator", "count"), [("keys", " ", 40), ("phrases", ";", 6)])
def test_greedy_decoding_prints_what_the_release_printed_stage_by_stage(
    model: InsertionTransformer, vocabulary: Vocabulary, name: str, separator: str, count: int
) -> None:
    keys, texts, stages = (
        (GOLDEN / f"{name}.{kind}").read_text("utf-8").splitlines() for kind in ("txt", "expected.txt", "stages.txt")
    )
    stages = [line for line in stages if line]
    assert len(keys) == len(texts) == count
    for number, line in enumerate(keys):
        decoding = decode_released(model, vocabulary, line.split(separator))
        assert shown(decoding, vocabulary) == stages[number * (ROUNDS + 1) : (number + 1) * (ROUNDS + 1)]
        assert decoding.text == texts[number]


def test_the_same_seed_samples_the_same_text_and_another_seed_another(
    model: InsertionTransformer, vocabulary: Vocabulary
) -> None:
    def text(seed: int) -> str:
        generator = torch.Generator().manual_seed(seed)
        return decode_released(model, vocabulary, ["great", "food"], sampling=generator).text

    assert text(1) == text(1) != text(2)


def test_sampling_draws_from_the_top_k_and_of_these_from_the_top_p() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]])).repeat(500, 1)
    generator = torch.Generator().manual_seed(0)
    assert set(sample(logits, generator, top_k=3, top_p=1.0).tolist()) == {0, 1, 2}
    # The token that crosses the threshold stays; of three, 0.5 and 0.3 have 84 %.
    assert set(sample(logits, generator, top_k=3, top_p=0.8).tolist()) == {0, 1}
    assert set(sample(logits, generator, top_k=4, top_p=0.1).tolist()) == {0}


def test_logits_are_changed_in_the_order_of_the_release(vocabulary: Vocabulary) -> None:
    ones = torch.ones(1, len(vocabulary))
    pad, cls, the, food = (vocabulary.id(token) for token in ("[PAD]", "[CLS]", "the", "food"))
    padded = torch.tensor([cls, food, food, pad, pad, pad])
    first, second = (adjust(ones, padded, round_, vocabulary, 1.0)[0] for round_ in (0, 1))
    assert first[vocabulary.noi] == first[the] == first[cls] == 0
    assert second[vocabulary.noi] == second[the] == 1
    assert first[food] == second[food] == pytest.approx(0.8**2)
    assert first[pad] == second[pad] == pytest.approx(0.8**3)
    assert second[cls] == pytest.approx(0.8)
    assert second[vocabulary.id("&")] == pytest.approx(0.3)
    assert second[vocabulary.id("(")] == -1e10
    assert ones.eq(1).all()


def test_a_phrase_is_locked_inside_and_open_after(vocabulary: Vocabulary) -> None:
    ids, locked = first_stage(vocabulary, ["great food", "", "cheesecake"], 256)
    assert [vocabulary.tokens[i] for i in ids] == ["[CLS]", "great", "food", "cheese", "##c", "##a", "##k", "##e"]
    assert locked == [False, True, False, True, True, True, True, False]


def test_constraints_that_do_not_fit_become_the_message_of_the_release(vocabulary: Vocabulary) -> None:
    fits, _ = first_stage(vocabulary, ["food"] * 255, 256)
    assert len(fits) == 256
    too_long, locked = first_stage(vocabulary, ["food"] * 256, 256)
    assert too_long == first_stage(vocabulary, [TOO_LONG], 256)[0]
    assert locked == [False] + [True] * (len(too_long) - 2) + [False]


def stage(vocabulary: Vocabulary, tokens: str, predicted: str, length: int = 256) -> str:
    """The stage after `tokens`, with nothing locked; `-` predicts `[NOI]`."""
    ids = [vocabulary.id(token) for token in tokens.split()]
    predictions = [vocabulary.noi if token == "-" else vocabulary.id(token) for token in predicted.split()]
    grown, _ = insert(ids, [False] * len(ids), predictions, vocabulary, length)
    return " ".join(vocabulary.tokens[i] for i in grown)


def test_what_follows_an_inserted_sep_or_pad_is_dropped_in_the_next_round(vocabulary: Vocabulary) -> None:
    assert stage(vocabulary, "[CLS] great food", "- [SEP] -") == "[CLS] great [SEP] food"
    assert stage(vocabulary, "[CLS] great [SEP] food", "- - nice nice") == "[CLS] great [SEP]"
    assert stage(vocabulary, "[CLS] great food", "- [PAD] -") == "[CLS] great [PAD] food"
    assert stage(vocabulary, "[CLS] great [PAD] food", "- - nice nice") == "[CLS] great"


def test_the_length_limit_cuts_the_end_off(vocabulary: Vocabulary) -> None:
    assert stage(vocabulary, "[CLS] a b c", "x y z w", length=5) == "[CLS] x a y"
    assert stage(vocabulary, "[CLS] a b c", "x - z w", length=5) == "[CLS] x a b z"


def scripted(vocabulary: Vocabulary, wants: dict[int, str]) -> Callable[..., SimpleNamespace]:
    """A model that wants these tokens at these positions in every round, and "nice" elsewhere in the first."""

    def model(*, input_ids: Tensor, attention_mask: Tensor) -> SimpleNamespace:
        assert attention_mask.equal((input_ids > 1).long())
        logits = torch.full((*input_ids.shape, len(vocabulary)), -100.0)
        logits[..., vocabulary.id("nice")], logits[..., vocabulary.noi] = 1, 100
        for position, token in wants.items():
            logits[:, position, vocabulary.id(token)] = 1e6
        return SimpleNamespace(logits=logits)

    return model


def test_a_piece_after_a_constraint_loses_it(vocabulary: Vocabulary) -> None:
    decoding = decode_released(scripted(vocabulary, {1: "##s"}), vocabulary, ["great", "food"])
    assert decoding.text == "nicesssss greats food nice"
    assert missing_constraints(decoding.text, ["great", "food"]) == ["great"]


def test_the_length_limit_loses_constraints(vocabulary: Vocabulary) -> None:
    decoding = decode_released(scripted(vocabulary, {}), vocabulary, ["great", "food"], length=4)
    assert decoding.text == "nice great"
    assert missing_constraints(decoding.text, ["great", "food"]) == ["food"]


def test_where_no_logit_is_positive_the_first_round_inserts_pad_and_loses_the_rest(vocabulary: Vocabulary) -> None:
    def nothing(*, input_ids: Tensor, attention_mask: Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=torch.full((*input_ids.shape, len(vocabulary)), -1.0))

    # [NOI] is at zero then and so, by the padding, is [PAD]; of equals the first is taken.
    decoding = decode_released(nothing, vocabulary, ["great", "food"])
    assert [[vocabulary.tokens[i] for i in stage] for stage in decoding.stages[1:3]] == [
        ["[CLS]", "great", "food"],
        ["[CLS]"],
    ]


def test_a_locked_gap_stays_shut_when_it_moves(vocabulary: Vocabulary) -> None:
    wants = {0: "nice", 1: "good", 2: "good", 3: "good"}
    decoding = decode_released(scripted(vocabulary, wants), vocabulary, ["great food"])
    assert "great food" in decoding.text
    grown = ["[CLS]", "nice", "great", "food", "good"]
    assert [vocabulary.tokens[i] for i in decoding.stages[1]] == grown


def test_text_is_printed_with_spaces_and_without_specials(vocabulary: Vocabulary) -> None:
    tokens = ["[CLS]", "un", "##b", "##e", ",", "\u00a3", "it", "'", "s", "[MASK]", "[PAD]", ".", "[SEP]"]
    assert released_text(vocabulary, [vocabulary.id(token) for token in tokens]) == "unbe ,  it ' s [MASK] ."
