"""Scorers: the embedded one, KenLM's files, and causal language models of Transformers, each against sums by hand."""

import importlib.util
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import BertConfig, BertLMHeadModel, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from pointer.errors import CheckpointError, DataError, MissingPartError, VocabularyError
from pointer.evaluation.ngram import NGram, pieces, train
from pointer.evaluation.perplexity import CausalScorer, Loss, NGramScorer, open_scorer, perplexity, windows

SENSIBLE = "the food was good and the service was friendly ."
SHUFFLED = "and was good the friendly . service food the was"
WORDS = ["<|end|>", "<unk>", "the", "food", "was", "good", "and", "service", "friendly", "."]
CONTEXT = 8


def test_perplexity_is_that_of_the_average_token_of_the_corpus() -> None:
    # 3 tokens of 1 in 4 and one of 1 in 64: 4 ** (3/4) * 64 ** (1/4) = 8
    assert perplexity([Loss(3 * math.log(4), 3), Loss(math.log(64), 1)]) == pytest.approx(8)


def test_nothing_to_score_is_one_sentence() -> None:
    with pytest.raises(DataError, match="Expected texts with at least one token to scorer, found none"):
        perplexity([Loss(0.0, 0)])


# ---------------------------------------------------------------------------------------------------------------------
# The embedded scorer


@pytest.fixture(scope="module")
def embedded() -> NGramScorer:
    scorer = open_scorer(None)
    assert isinstance(scorer, NGramScorer)
    return scorer


def test_the_embedded_scorer_prefers_words_in_order(embedded: NGramScorer) -> None:
    sensible, shuffled = embedded.losses([SENSIBLE, SHUFFLED])
    assert sensible.nats < shuffled.nats - 10
    assert sensible.tokens == shuffled.tokens == len(SENSIBLE.split()) + 1  # the end of the text is a token, too


def test_the_loss_of_a_text_is_the_sum_of_its_pieces(embedded: NGramScorer) -> None:
    text = "unfathomably good !"
    [ids] = pieces([text], embedded.vocabulary)
    prefixes = [ids[:n] for n in range(2, len(ids) + 1)]
    logs = [float(found[-1]) for found in embedded.model.log_probabilities(prefixes)]
    assert len(logs) > 4
    assert embedded.losses([text]) == [Loss(pytest.approx(-sum(logs)), len(logs))]  # type: ignore[arg-type]


def test_any_text_at_all_has_a_loss(embedded: NGramScorer) -> None:
    losses = embedded.losses(["", "日本 § zyzzyva", "[SEP] [CLS]"])
    assert [loss.tokens > 0 and 0 < loss.nats < math.inf for loss in losses] == [True] * 3
    assert losses[0].tokens == 1
    assert embedded.losses([]) == []


def test_the_embedded_scorer_tells_how_far_it_is(embedded: NGramScorer) -> None:
    seen: list[tuple[str, int, int | None]] = []
    embedded.losses(["a"] * 1500, lambda *step: seen.append(step))
    assert seen == [("judging", 1000, 1500), ("judging", 1500, 1500)]


def test_the_signature_tells_one_model_from_another(embedded: NGramScorer, tmp_path: Path) -> None:
    fingerprint = embedded.vocabulary.fingerprint
    small = train([[3, 9, 4]], order=2, size=10_000, choices=9_996, vocabulary=fingerprint)
    (tmp_path / "model").write_bytes(small.to_bytes())
    other = NGramScorer(tmp_path / "model")
    assert embedded.signature.startswith("scorer:embedded|order:4|end:yes|sha256:")
    assert other.signature.startswith("scorer:embedded|order:2|end:yes|sha256:")


def test_a_model_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    model: NGram = train([[0, 2, 1]], order=2, size=3, choices=2, vocabulary="other")
    (tmp_path / "model").write_bytes(model.to_bytes())
    with pytest.raises(
        VocabularyError, match=r"Expected an n-gram model of the vocabulary \w+ at .* found one of other"
    ):
        NGramScorer(tmp_path / "model")


# ---------------------------------------------------------------------------------------------------------------------
# KenLM

ARPA = """\\data\\
ngram 1=5
ngram 2=3

\\1-grams:
-1.0\t<unk>
-99\t<s>\t-0.3
-0.5\t</s>
-0.6\ta\t-0.2
-0.7\tb\t-0.1

\\2-grams:
-0.2\t<s> a
-0.3\ta b
-0.4\tb </s>

\\end\\
"""


@pytest.fixture
def arpa(tmp_path: Path) -> Path:
    (tmp_path / "tiny.arpa").write_text(ARPA)
    return tmp_path / "tiny.arpa"


@pytest.mark.skipif(importlib.util.find_spec("kenlm") is None, reason="kenlm is not installed")
def test_losses_of_kenlm_are_those_of_its_file(arpa: Path) -> None:
    losses = open_scorer(f"kenlm:{arpa}").losses(["a b", "b zebra"])
    # a b </s>: three bigrams. b after <s>, then what is unknown, then </s>: back-off weights and single words.
    expected = [(0.2 + 0.3 + 0.4, 3), (0.3 + 0.7 + 0.1 + 1.0 + 0.5, 3)]
    assert losses == [Loss(pytest.approx(log * math.log(10), rel=1e-5), n) for log, n in expected]  # type: ignore[arg-type]


@pytest.mark.skipif(importlib.util.find_spec("kenlm") is None, reason="kenlm is not installed")
def test_a_file_that_kenlm_cannot_read_is_one_sentence(arpa: Path) -> None:
    arpa.write_text("nothing of the kind")
    with pytest.raises(CheckpointError, match=r"Expected an ARPA file .*tiny.arpa, found something else"):
        open_scorer(f"kenlm:{arpa}")


def test_kenlm_is_asked_for_whole_texts_and_answers_in_decimal_logarithms(
    arpa: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Model:
        order = 2

        def __init__(self, path: str) -> None:
            assert path == str(arpa)

        def score(self, text: str, bos: bool, eos: bool) -> float:
            assert bos and eos
            return -float(len(text))

    monkeypatch.setitem(sys.modules, "kenlm", SimpleNamespace(Model=Model))
    seen: list[tuple[str, int, int | None]] = []
    scorer = open_scorer(f"kenlm:{arpa}")
    assert scorer.losses(["a b", ""], lambda *step: seen.append(step)) == [Loss(3 * math.log(10), 3), Loss(0.0, 1)]
    assert seen == [("judging", 1, 2), ("judging", 2, 2)]
    assert scorer.name == f"kenlm:{arpa}" and scorer.signature.startswith("scorer:kenlm|order:2|end:yes|sha256:")


def test_without_kenlm_the_scorer_says_how_to_get_it(arpa: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kenlm", None)
    with pytest.raises(MissingPartError, match=r"needs the package kenlm, .* pip install kenlm"):
        open_scorer(f"kenlm:{arpa}")


def test_a_missing_file_of_kenlm_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"Expected a KenLM model, found no file at .*nowhere"):
        open_scorer(f"kenlm:{tmp_path / 'nowhere'}")


# ---------------------------------------------------------------------------------------------------------------------
# Causal language models


def save_tokenizer(folder: Path, words: list[str] = WORDS, **special: str) -> None:
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", **special).save_pretrained(folder)


def save_gpt2(folder: Path) -> None:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(WORDS), n_positions=CONTEXT, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0,
        initializer_range=0.5,
    )  # fmt: skip
    GPT2LMHeadModel(config).save_pretrained(folder)


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpt2")
    save_gpt2(folder)
    save_tokenizer(folder, bos_token="<|end|>", eos_token="<|end|>")
    return folder


@pytest.fixture(scope="module")
def causal(gpt2: Path) -> CausalScorer:
    scorer = open_scorer(str(gpt2))
    assert isinstance(scorer, CausalScorer)
    return scorer


def by_hand(scorer: CausalScorer, ids: list[int], target: int) -> float:
    """Minus the log of the softmax of the logits after `ids`, with nothing but numpy."""
    with torch.no_grad():
        logits = scorer.model(torch.tensor([ids])).logits[0, -1].double().numpy()
    return float(np.log(np.exp(logits).sum()) - logits[target])


def test_the_loss_is_picked_from_the_softmax_and_begins_with_the_first_word(causal: CausalScorer) -> None:
    ids = [0, 2, 3, 4, 5]  # <|end|> the food was good
    expected = sum(by_hand(causal, ids[:n], ids[n]) for n in range(1, len(ids)))
    [loss] = causal.losses(["the food was good"])
    assert loss == Loss(pytest.approx(expected, rel=1e-5), 4)  # type: ignore[arg-type]


def test_a_text_longer_than_the_context_is_read_in_windows_of_which_half_is_context(causal: CausalScorer) -> None:
    text = " ".join([*SENSIBLE.split(), *SHUFFLED.split()])
    ids = [0, *(WORDS.index(word) for word in text.split())]
    assert len(ids) == 21
    # The first window predicts 8 tokens, each further one, 4 tokens later, the next 4.
    starts = [0] * 8 + [4] * 4 + [8] * 4 + [12] * 4
    expected = sum(by_hand(causal, ids[start:n], ids[n]) for n, start in zip(range(1, 21), starts, strict=True))
    [loss] = causal.losses([text])
    assert loss == Loss(pytest.approx(expected, rel=1e-5), 20)  # type: ignore[arg-type]


@pytest.mark.parametrize("context", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("length", [*range(12), 40])
def test_windows_predict_every_token_once_from_half_a_window_or_all_there_is(length: int, context: int) -> None:
    predicted = []
    for part, new in windows(list(range(length)), context):
        assert 1 <= new < len(part) <= context + 1
        for token in part[-new:]:
            seen = token - part[0]
            assert seen >= context / 2 or part[0] == 0
        predicted += part[-new:]
    assert predicted == list(range(1, length))


def test_padding_changes_nothing_and_losses_keep_their_places(causal: CausalScorer) -> None:
    texts = ["good", SENSIBLE, "the food", SHUFFLED + " " + SENSIBLE, "", "was ."] * 40
    together = causal.losses(texts)
    alone = {text: causal.losses([text])[0] for text in set(texts)}
    assert len({round(loss.nats, 3) for loss in alone.values()}) == 6
    for text, loss in zip(texts, together, strict=True):
        assert loss == Loss(pytest.approx(alone[text].nats, abs=1e-4), alone[text].tokens)  # type: ignore[arg-type]


def test_a_text_of_nothing_has_nothing_to_predict(causal: CausalScorer) -> None:
    assert causal.losses([""]) == [Loss(0.0, 0)]
    assert causal.losses([]) == []


def test_a_causal_scorer_tells_how_far_it_is_and_what_it_is(causal: CausalScorer, gpt2: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    causal.losses([SENSIBLE] * 300, lambda *step: seen.append(step))
    assert len(seen) > 1 and seen[-1] == ("judging", 600, 600)  # two windows a text
    assert causal.name == str(gpt2)
    assert "|begin:yes|end:no|window:8|stride:4|revision:" in causal.signature
    assert not causal.signature.split("revision:")[1].startswith("|")


def test_without_a_token_that_begins_texts_the_first_is_not_predicted(tmp_path: Path) -> None:
    save_gpt2(tmp_path)
    save_tokenizer(tmp_path)
    scorer = CausalScorer(str(tmp_path))
    expected = by_hand(scorer, [2], 3) + by_hand(scorer, [2, 3], 4)
    assert scorer.losses(["the food was", "the", ""]) == [
        Loss(pytest.approx(expected, rel=1e-5), 2),  # type: ignore[arg-type]
        Loss(0.0, 0),
        Loss(0.0, 0),
    ]
    assert "|begin:no|" in scorer.signature


def test_where_the_mark_between_documents_is_known_a_text_begins_with_it(tmp_path: Path) -> None:
    save_gpt2(tmp_path)
    save_tokenizer(tmp_path, ["<turn>", "<unk>", "<|endoftext|>", *WORDS[3:]], bos_token="<turn>")
    scorer = CausalScorer(str(tmp_path))
    assert scorer.losses(["food"]) == [Loss(pytest.approx(by_hand(scorer, [2], 3), rel=1e-5), 1)]  # type: ignore[arg-type]
    assert "|begin:document|" in scorer.signature


def test_a_model_that_sees_what_it_has_to_predict_is_no_scorer(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(WORDS), initializer_range=0.5, **sizes)
    BertLMHeadModel(config).save_pretrained(tmp_path)  # type: ignore[no-untyped-call]
    save_tokenizer(tmp_path)
    with pytest.raises(CheckpointError, match="found one that sees the words it has to predict"):
        CausalScorer(str(tmp_path))


def test_a_folder_without_a_model_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"Expected a causal language model with a config.json in .*, found none"):
        open_scorer(str(tmp_path))


def test_a_tokenizer_of_another_model_is_one_sentence(tmp_path: Path) -> None:
    save_gpt2(tmp_path)
    save_tokenizer(tmp_path, [*WORDS, "more"])
    with pytest.raises(CheckpointError, match="11 tokens for 10 embeddings"):
        open_scorer(str(tmp_path))


def test_a_model_with_weights_missing_is_one_sentence(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    save_gpt2(tmp_path)
    save_tokenizer(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    kept = {name: value for name, value in weights.items() if not name.endswith("ln_f.weight")}
    assert len(kept) == len(weights) - 1
    save_file(kept, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(CheckpointError, match="found 1 weights missing"):
        open_scorer(str(tmp_path))


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    yield


@pytest.mark.usefixtures("offline")
def test_a_name_that_nobody_knows_lists_what_can_be_named() -> None:
    expected = (
        r'Expected the scorer to be embedded, kenlm:FILE, .* found "nobody/nothing-at-all", which is none of them'
    )
    with pytest.raises(CheckpointError, match=expected):
        open_scorer("nobody/nothing-at-all")
