"""Training an adapter: examples are what the decoder will ask, a run goes on exactly, and the base stays as it was."""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import SAMPLE, Run
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tiny_causal import WHOLE, chat_language, gpt2_folder, llama_folder, plain_language, writer

from pointer.causal import CausalInserter, fluency, likelihoods, open_base
from pointer.checkpoint import CARD, CURVE
from pointer.decoding.generator import Pointer
from pointer.decoding.writer import Writer
from pointer.errors import CheckpointError, CorpusError, TrainingError, UsageError
from pointer.language import Language
from pointer.runs import train_causal
from pointer.runtime import Prefix
from pointer.storage import MANIFEST, write_manifest
from pointer.training.batches import IGNORED, Place
from pointer.training.causal import CausalBatches, CausalRun, Part, causal_loss, cut
from pointer.training.examples import Example, Styled, content_words, draw, example, read_texts
from pointer.training.examples import given as as_given
from pointer.training.files import METRICS, STATE
from pointer.training.settings import CausalSettings
from pointer.writing import missing_constraints

LANGUAGES = {"chat": chat_language(WHOLE), "plain": plain_language(WHOLE)}
LINES = SAMPLE.read_text("utf-8").splitlines()
QUICK = CausalSettings(
    steps=6, batch_tokens=256, rank=2, save_every=3, evaluate_every=6, log_every=1, validation_rows=2, warmup_steps=0,
    learning_rate=1e-2,
)  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny bases, and texts of one style and of two."""
    folder = tmp_path_factory.mktemp("causal")
    llama_folder(folder / "llama")
    gpt2_folder(folder / "gpt2")
    (folder / "texts.txt").write_text("\n".join(LINES[:40]) + "\n")
    (folder / "styles").mkdir()
    (folder / "styles" / "everyday.txt").write_text("\n".join(LINES[:30]) + "\n")
    (folder / "styles" / "news.txt").write_text("\n".join(LINES[30:60]) + "\n")
    return folder


@pytest.fixture
def inserter(home: Path) -> CausalInserter:
    torch.manual_seed(0)
    return CausalInserter.start(home / "llama", rank=2)


def perturbed(inserter: CausalInserter) -> CausalInserter:
    """With an adapter that says something."""
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weights in inserter.model.named_parameters():
            if "lora_" in name:
                weights.copy_(torch.randn(weights.shape, generator=random) * 0.5)
    return inserter


def adapter(folder: Path) -> dict[str, torch.Tensor]:
    return dict(load_file(folder / "adapter_model.safetensors"))


def log(out: Path) -> list[dict[str, Any]]:
    """What was logged, without what depends on the clock."""
    lines = [json.loads(line) for line in (out / METRICS).read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in ("seconds", "tokens_per_second")} for line in lines]


# ---------------------------------------------------------------------------------------------------------------------
# Examples


def spans_of(text: str, words: list[str]) -> list[tuple[int, int]]:
    spans, at = [], 0
    for word in words:
        start = text.index(word, at)
        at = start + len(word)
        spans.append((start, at))
    return spans


TOLD = [
    ("The old harbour woke slowly.", ["harbour", "slowly"]),
    ("Harbour lights went out.", ["Harbour"]),
    ("Maria Lopez sold fresh bread from a blue cart near the gate.", ["Maria Lopez", "fresh bread", "gate"]),
    ("Boats slid out under a grey sky", ["Boats", "slid", "grey", "sky"]),
    ("Nobody remembered who had painted the lighthouse yellow.", ["painted", "lighthouse", "yellow"]),
    ("In 1987, the town council voted to repair the old stone bridge.", ["town", "council", "bridge"]),
    ("The museum has 1,200 photographs and one enormous skeleton!", ["museum", "skeleton"]),
    ("It's hard to say why the fish left the bay that year.", ["hard", "fish", "bay"]),
    ('A boy (in red) said: "No." and ran; the captain\'s dog slept.', ["boy", "ran", "captain's", "dog"]),
    ("The owners in New York paid $3.50 for 10 naïve reviews.", ["New York", "naïve"]),
]


@pytest.mark.parametrize("talks", LANGUAGES)
@pytest.mark.parametrize(("text", "words"), TOLD)
def test_an_example_is_the_task_and_the_text_with_all_labelled_that_is_to_be_said(
    talks: str, text: str, words: list[str]
) -> None:
    language = LANGUAGES[talks]
    spans = spans_of(text, words)
    found = example(language, Styled("everyday", text), spans)
    prompt = language.prompt([as_given(text, *span) for span in spans], "everyday")
    assert found.ids[: len(prompt)] == prompt and found.ids[-1] == language.end
    assert language.tokenizer.decode(found.ids[len(prompt) : -1]) == language.lead + text
    assert len(found.labels) == len(found.ids) and set(found.labels[: len(prompt)]) == {IGNORED}
    copied = [language.encode((language.lead if a == 0 else " ") + text[a:b]) for a, b in spans]
    said = len(found.ids) - len(prompt) - sum(len(ids) - 1 for ids in copied)
    assert sum(label != IGNORED for label in found.labels) == said
    assert all(label in (IGNORED, token) for token, label in zip(found.ids, found.labels, strict=True))
    at = len(prompt)
    for ids in copied:  # the first token of a constraint is said, the others are copied
        while found.ids[at : at + len(ids)] != ids or found.labels[at + 1 : at + len(ids)] != [IGNORED] * (
            len(ids) - 1
        ):
            assert found.labels[at] != IGNORED
            at += 1
        assert found.labels[at] == ids[0]
        at += len(ids)
    assert IGNORED not in found.labels[at:]


def obedient(language: Language, found: Example) -> Writer:
    """A model that has learnt one example by heart: after what it has read there, it says what is labelled there."""
    labels: dict[Prefix, int] = {}
    for at, label in enumerate(found.labels):
        if label != IGNORED:
            labels[tuple(found.ids[:at])] = label

    def answer(prefix: Prefix) -> Any:
        logits = np.full(language.size, -40.0)
        logits[labels[prefix]] = 0.0  # a prefix that was not trained on is an error
        return logits

    return writer(language, answer)


@pytest.mark.parametrize("talks", LANGUAGES)
@pytest.mark.parametrize(("text", "words"), TOLD)
def test_a_model_that_has_learnt_an_example_writes_its_text(talks: str, text: str, words: list[str]) -> None:
    language = LANGUAGES[talks]
    spans = spans_of(text, words)
    asked = [as_given(text, *span) for span in spans]
    written = obedient(language, example(language, Styled("everyday", text), spans)).generate(asked, style="everyday")
    assert written.text == text and written.spans == tuple(spans) and written.stopped == "converged"
    assert written.score == pytest.approx(0, abs=1e-4)


SAYABLE = [line for line in LINES if line[0] != '"' and line.isascii()]
"""A text does not begin with a quotation mark."""


def test_a_number_is_not_cut_at_its_marks() -> None:
    text = "In 1987, the 1,200 boats paid 3.50 at 10:30; 7 sank (or 8)."
    assert [text[a:b] for a, b in content_words(text)] == ["1987", "boats", "paid", "7", "sank", "8"]


@given(st.sampled_from(LINES), st.integers(1, 8), st.integers(0, 999))
def test_drawn_constraints_are_content_words_in_order_that_a_reader_would_find(text: str, most: int, seed: int) -> None:
    spans = draw(text, 1, most, np.random.default_rng(seed))
    assert 1 <= len(spans) <= most
    assert all(before[1] < after[0] for before, after in pairwise(spans))
    starts, ends = zip(*content_words(text), strict=True)
    assert all(start in starts and end in ends for start, end in spans)
    assert missing_constraints(text, [as_given(text, *span) for span in spans]) == []


def test_only_the_capital_of_a_sentence_start_is_taken_off() -> None:
    assert as_given("Boats slid", 0, 5) == "boats" and as_given("The Boats", 4, 9) == "Boats"
    assert as_given("NASA flies", 0, 4) == "NASA" and as_given("Old harbour", 0, 11) == "old harbour"
    assert as_given("Maria Lopez", 0, 11) == "Maria Lopez"


# ---------------------------------------------------------------------------------------------------------------------
# Batches


def drawn(language: Language, count: int = 20) -> list[Example]:
    random = np.random.default_rng(0)
    styles = ("everyday", "news")
    chosen = [Styled(styles[i % 2], line) for i, line in enumerate(LINES[:count])]
    return [example(language, one, draw(one.text, 1, 4, random)) for one in chosen]


def test_batches_are_of_one_style_within_the_limit_and_lose_nothing() -> None:
    examples = drawn(LANGUAGES["chat"])
    parts = cut(examples, 256)
    assert sorted(tuple(one.ids) for part in parts for one in part.examples) == sorted(
        tuple(one.ids) for one in examples
    )
    for part in parts:
        assert len({one.style for one in part.examples}) == 1
        assert len(part) == 1 or len(part) * int(part.positions.max()) <= 256
        batch = part.tensors()
        assert int((batch.labels != IGNORED).sum()) == part.gaps
        for row, one in enumerate(part.examples):
            assert batch.ids[row, : len(one.ids)].tolist() == one.ids
            asked = batch.labels[row] != IGNORED
            assert batch.labels[row][asked].tolist() == [label for label in one.labels if label != IGNORED]
            assert batch.labels[row][asked][:-1].tolist() == batch.ids[row].roll(-1)[asked][:-1].tolist()


def test_constraints_are_drawn_anew_every_epoch_and_the_stream_goes_on_from_any_place() -> None:
    texts = [Styled("everyday", line) for line in LINES[:20]]

    def first(place: Place, count: int) -> list[Any]:
        stream = CausalBatches(texts, LANGUAGES["chat"], replace(QUICK, keywords=(2, 4)))(place)
        return [
            ([one.ids for one in step.batches[0].examples], step.after)
            for step, _ in zip(stream, range(count), strict=False)
        ]

    whole = first(Place(), 40)
    assert whole[-1][1].epoch > 1, "the test must cross an epoch"
    assert first(whole[10][1], 29) == whole[11:]
    epochs = [sorted(tuple(ids) for rows, after in whole for ids in rows if after.epoch == epoch) for epoch in (0, 1)]
    assert epochs[0] != epochs[1]


# ---------------------------------------------------------------------------------------------------------------------
# The objective


def plain_loss(inserter: CausalInserter, part: Part) -> torch.Tensor:
    """Each example by itself, read as a whole."""
    total = torch.zeros(())
    for one in part.examples:
        logits = inserter.transformer(torch.tensor([one.ids])).logits[0, :-1].float()
        target = torch.tensor(one.labels[1:])
        total = total + torch.nn.functional.cross_entropy(logits, target, ignore_index=IGNORED, reduction="sum")
    return total


@pytest.mark.parametrize("base", ["llama", "gpt2"])
def test_the_loss_with_a_shared_start_is_that_of_each_example_by_itself(base: str, home: Path) -> None:
    torch.manual_seed(0)
    inserter = perturbed(CausalInserter.start(home / base, rank=2))
    language = inserter.language
    chosen = [Styled("everyday", line) for line in LINES[:5]]
    part = Part(
        [example(language, one, draw(one.text, 2, 3, np.random.default_rng(i))) for i, one in enumerate(chosen)]
    )
    trained = [weights for weights in inserter.model.parameters() if weights.requires_grad]
    found, expected = [], []
    for losses, loss in ((found, causal_loss(inserter.model, part.tensors())), (expected, plain_loss(inserter, part))):
        losses += [loss.detach(), *torch.autograd.grad(loss, trained)]
    torch.testing.assert_close(found, expected, atol=2e-3, rtol=1e-3)
    assert all(bool(gradient.abs().max() > 0) for gradient in found[1:])


def test_a_batch_of_one_example_has_the_same_loss(inserter: CausalInserter) -> None:
    part = Part(drawn(inserter.language, 1))
    torch.testing.assert_close(
        causal_loss(inserter.model, part.tensors()), plain_loss(inserter, part), atol=1e-3, rtol=1e-4
    )


# ---------------------------------------------------------------------------------------------------------------------
# Models


def test_a_new_adapter_changes_nothing(home: Path, inserter: CausalInserter) -> None:
    base, _ = open_base(home / "llama")
    ids = torch.tensor([[1, 5, 9, 33]])
    torch.testing.assert_close(inserter.transformer(ids).logits, base(ids).logits)
    trained = [name for name, weights in inserter.model.named_parameters() if weights.requires_grad]
    assert trained and all("lora_" in name for name in trained)


def test_layers_before_the_first_get_no_adapter(home: Path) -> None:
    inserter = CausalInserter.start(home / "llama", rank=2, first_layer=1)
    trained = [name for name, weights in inserter.model.named_parameters() if weights.requires_grad]
    assert trained and all(".layers.1." in name for name in trained)


def test_fluency_is_that_of_the_base_whatever_the_adapter_says(home: Path, inserter: CausalInserter) -> None:
    texts = ["The dog stands in the park.", "dog The", "x" * 30]
    base, language = open_base(home / "llama")
    expected = []
    for text in texts:
        ids = [language.end, *language.encode(text), language.end]
        with torch.no_grad():
            own = torch.log_softmax(base(torch.tensor([ids])).logits[0, :-1], -1)
        expected.append(float(own.gather(1, torch.tensor(ids[1:])[:, None]).mean()))
    assert fluency(base, language, texts) == pytest.approx(expected, abs=1e-4)
    sizes = [size for _, size in likelihoods(base, language, texts)]
    totals = [mean * size for mean, size in zip(expected, sizes, strict=True)]
    found = perturbed(inserter).likelihoods(texts, None)
    assert [one.total for one in found] == pytest.approx(totals, abs=1e-3)
    assert fluency(inserter.transformer, language, texts) != pytest.approx(expected, abs=1e-2), (
        "the adapter is on again"
    )
    assert inserter.likelihoods([], "news") == []


def test_a_saved_adapter_comes_back_and_peft_opens_it_too(home: Path, inserter: CausalInserter, tmp_path: Path) -> None:
    import peft

    perturbed(inserter).save_pretrained(tmp_path / "saved")
    ids = torch.tensor([[1, 5, 9, 33]])
    expected = inserter.transformer(ids).logits
    again = CausalInserter.from_pretrained(tmp_path / "saved")
    torch.testing.assert_close(again.transformer(ids).logits, expected)
    assert again.config == inserter.config and not any(weights.requires_grad for weights in again.model.parameters())
    base, _ = open_base(home / "llama")
    torch.testing.assert_close(peft.PeftModel.from_pretrained(base, str(tmp_path / "saved"))(ids).logits, expected)


def test_an_adapter_for_another_base_or_without_weights_is_one_sentence(
    home: Path, inserter: CausalInserter, tmp_path: Path
) -> None:
    inserter.save_pretrained(tmp_path / "saved")
    with pytest.raises(CheckpointError, match="found another vocabulary"):
        CausalInserter.from_pretrained(tmp_path / "saved", home / "gpt2")
    weights = load_file(tmp_path / "saved" / "adapter_model.safetensors")
    first, *others = weights
    for changed, how in (
        ({name: weights[name] for name in others}, f"{first} missing"),
        (weights | {"more": torch.ones(2)}, "more too many"),
        (weights | {first: torch.ones(3, 3)}, r"adapter_config.json describes|of another shape"),
        (weights | {first: weights[first].int()}, "floating point"),
    ):
        save_file(changed, tmp_path / "saved" / "adapter_model.safetensors", metadata={"format": "pt"})
        write_manifest(tmp_path / "saved")
        with pytest.raises(CheckpointError, match=how):
            CausalInserter.from_pretrained(tmp_path / "saved")
    (tmp_path / "saved" / "adapter_model.safetensors").write_bytes(b"cut off")
    with pytest.raises(CheckpointError, match=r"adapter_model.safetensors has 7 bytes instead of"):
        CausalInserter.from_pretrained(tmp_path / "saved")
    (tmp_path / "saved" / MANIFEST).unlink()
    with pytest.raises(CheckpointError, match=r"Expected in .* the adapter that its adapter_config.json describes"):
        CausalInserter.from_pretrained(tmp_path / "saved")
    for rank in (10**9, 0, "two"):
        (tmp_path / "saved" / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": rank}))
        with pytest.raises(CheckpointError, match="a rank from 1 to 1024"):
            CausalInserter.from_pretrained(tmp_path / "saved")
    config = json.loads((tmp_path / "saved" / "config.json").read_text())
    config["pointer"]["noi_offset"] = "much"
    (tmp_path / "saved" / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="Expected the config of a POINTER checkpoint"):
        Pointer.from_pretrained(tmp_path / "saved")


@pytest.mark.parametrize("base", ["llama", "gpt2"])
@pytest.mark.parametrize("decoding", ["greedy", "sample", "beam"])
def test_a_real_network_writes_around_constraints(base: str, decoding: str, home: Path) -> None:
    inserter = perturbed(CausalInserter.start(home / base, rank=2))
    inserter.model.eval()
    scribe = Writer.of_inserter(inserter, base)
    asked = [["dog", "park"], ["New York"], ["castle", "3", "river"]]
    found = scribe.generate_many(asked, decoding=decoding, max_length=20)
    assert [missing_constraints(text.text, one) for one, [text] in zip(asked, found, strict=True)] == [[], [], []]
    assert len(scribe.generate_many(asked[:1], best_of=3, n=2, max_length=12)[0]) >= 1
    assert scribe.parameters > scribe.tokens == inserter.language.size


def test_a_model_with_more_embeddings_than_tokens_writes_too(tmp_path: Path) -> None:
    inserter = CausalInserter.start(llama_folder(tmp_path / "padded", padded=24), rank=2)
    inserter.model.eval()
    for decoding in ("greedy", "sample", "beam"):
        found = Writer.of_inserter(inserter, "padded").generate(["dog", "park"], decoding=decoding, max_length=12)
        assert missing_constraints(found.text, ["dog", "park"]) == []


# ---------------------------------------------------------------------------------------------------------------------
# Runs


@pytest.fixture(scope="module")
def run(home: Path) -> Iterator[Path]:
    """A short run from start to end, not interrupted."""
    train_causal(home / "texts.txt", home / "whole", QUICK, home / "llama", show=False)
    yield home / "whole"


def test_a_run_leaves_checkpoints_that_explain_themselves(run: Path, home: Path) -> None:
    for name in ("best", "last"):
        assert {CARD, CURVE, "config.json", "adapter_config.json"} <= {path.name for path in (run / name).iterdir()}
        assert (run / name / "adapter_model.safetensors").stat().st_mode & 0o444 == 0o444
    assert (run / "last" / STATE).exists() and not (run / "best" / STATE).exists()
    config = CausalInserter.from_pretrained(run).config
    assert config["base"] == str(home / "llama") and config["styles"] == ["everyday"] and config["tokens_seen"] > 0
    card = (run / "last" / CARD).read_text()
    samples = [line["samples"] for line in log(run) if "validation" in line][-1]
    assert "6 steps" in card and len(samples) == 2
    assert all(missing_constraints(one["text"], one["constraints"]) == [] for one in samples)


def test_a_checkpoint_opens_as_a_pointer_and_with_peft(run: Path, home: Path) -> None:
    import peft

    found = Pointer.from_pretrained(run, backend="torch")
    assert isinstance(found, Writer)
    assert missing_constraints(found.generate(["dog", "park"], max_length=16).text, ["dog", "park"]) == []
    base, _ = open_base(home / "llama")
    other = peft.PeftModel.from_pretrained(base, str(run / "best")).eval()
    expected = other(torch.tensor([[1, 5, 9, 33]])).logits[:, -1].log_softmax(-1).detach().numpy()
    np.testing.assert_allclose(found.predict([(1, 5, 9, 33)]), expected, atol=1e-4)


def test_training_lowers_the_loss_and_leaves_the_base_as_it_was(home: Path, tmp_path: Path) -> None:
    before = (home / "llama" / "model.safetensors").read_bytes()
    (tmp_path / "few.txt").write_text("\n".join(LINES[:12]) + "\n")
    settings = replace(QUICK, steps=40, batch_tokens=512, save_every=40, evaluate_every=40, rank=4, learning_rate=2e-2)
    train_causal(tmp_path / "few.txt", tmp_path / "run", settings, home / "llama", show=False)
    losses = [line["loss"] for line in log(tmp_path / "run") if "loss" in line]
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:3])
    assert (home / "llama" / "model.safetensors").read_bytes() == before
    inserter = CausalInserter.from_pretrained(tmp_path / "run")
    base, language = open_base(home / "llama")
    assert inserter.likelihoods(["The dog."], None) == likelihoods(base, language, ["The dog."])
    assert all(bool(weights.isfinite().all()) for weights in adapter(tmp_path / "run" / "last").values())


def test_a_run_that_is_continued_ends_with_the_same_weights_to_the_bit(home: Path, tmp_path: Path) -> None:
    steady = replace(QUICK, decay="none", validation_rows=1)  # the budget decides nothing but the end
    for name, budgets in (("whole", (6,)), ("parts", (3, 6))):
        for steps in budgets:
            changed = replace(steady, steps=steps, evaluate_every=3)
            train_causal(home / "texts.txt", tmp_path / name, changed, home / "llama", show=False)
    whole, parts = (adapter(tmp_path / name / "last") for name in ("whole", "parts"))
    assert whole.keys() == parts.keys() and all(torch.equal(whole[name], parts[name]) for name in whole)
    assert log(tmp_path / "whole") == log(tmp_path / "parts")
    assert any("lora_B" in name and bool(weights.abs().max() > 0) for name, weights in whole.items()), "it has learnt"


def test_a_killed_run_continues_as_if_nothing_had_happened(
    run: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss, calls = CausalRun.loss, iter(range(100))

    def killed(self: CausalRun, model: Any, batch: Any) -> torch.Tensor:
        if next(calls) == 4:
            raise KeyboardInterrupt
        return loss(self, model, batch)

    with monkeypatch.context() as patch:
        patch.setattr(CausalRun, "loss", killed)
        with pytest.raises(KeyboardInterrupt):
            train_causal(home / "texts.txt", tmp_path / "run", QUICK, home / "llama", show=False)
    assert torch.load(tmp_path / "run" / "last" / STATE, weights_only=True)["progress"]["step"] == 3
    train_causal(home / "texts.txt", tmp_path / "run", QUICK, home / "llama", show=False)
    whole, parts = adapter(run / "last"), adapter(tmp_path / "run" / "last")
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert log(tmp_path / "run") == log(run)


def test_a_finished_run_is_not_run_again_and_another_setting_is_refused(run: Path, home: Path) -> None:
    before = adapter(run / "last")
    again = train_causal(home / "texts.txt", run, QUICK, home / "llama", show=False)
    assert again.step == 6 and all(torch.equal(before[name], now) for name, now in adapter(run / "last").items())
    with pytest.raises(TrainingError, match=r"found another rank \(was 2, is 3\)"):
        train_causal(home / "texts.txt", run, replace(QUICK, rank=3), home / "llama", show=False)
    with pytest.raises(TrainingError, match="found another data"):
        train_causal(home / "styles", run, QUICK, home / "llama", show=False)
    with pytest.raises(TrainingError, match="found another backbone"):
        train_causal(home / "texts.txt", run, QUICK, home / "gpt2", show=False)


def test_a_run_may_begin_with_the_adapter_of_another(run: Path, home: Path, tmp_path: Path) -> None:
    still = replace(QUICK, steps=1, learning_rate=0.0, save_every=1, evaluate_every=1)
    train_causal(home / "styles", tmp_path / "tuned", still, home / "llama", init=run, show=False)
    before, after = adapter(run / "best"), adapter(tmp_path / "tuned" / "last")
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    seen = [CausalInserter.from_pretrained(folder).config["tokens_seen"] for folder in (run, tmp_path / "tuned")]
    assert seen[1] > seen[0] > 0
    assert CausalInserter.from_pretrained(tmp_path / "tuned").config["styles"] == ["everyday", "news"]
    with pytest.raises(UsageError, match="init: expected an adapter for a backbone, found wiki"):
        train_causal(home / "texts.txt", tmp_path / "no", still, home / "llama", init="wiki", show=False)


def test_a_gpt2_is_trained_and_written_with_like_any_other(home: Path, tmp_path: Path) -> None:
    two = replace(QUICK, steps=2, half=True, gradient_checkpointing=True)
    train_causal(home / "texts.txt", tmp_path / "run", two, home / "gpt2", style="reviews", show=False)
    scribe = Pointer.from_pretrained(tmp_path / "run")
    assert missing_constraints(scribe.generate(["dog"], max_length=12, style="reviews").text, ["dog"]) == []
    with pytest.raises(UsageError, match="style: expected reviews"):
        scribe.generate(["dog"], style="everyday")
    kinds = {name: next(iter(adapter(tmp_path / "run" / name).values())).dtype for name in ("best", "last")}
    assert kinds == {"best": torch.float16, "last": torch.float32}


# ---------------------------------------------------------------------------------------------------------------------
# Data


def test_a_folder_has_a_file_for_each_style(home: Path) -> None:
    found = read_texts(home / "styles")
    assert [one.style for one in found] == ["everyday"] * 30 + ["news"] * 30
    assert [one.text for one in found[:30]] == LINES[:30]
    assert {one.style for one in read_texts(home / "texts.txt", "wiki")} == {"wiki"}


def test_wrong_data_is_one_sentence(home: Path, tmp_path: Path) -> None:
    def attempt(data: Path, **options: Any) -> None:
        train_causal(data, tmp_path / "out", QUICK, home / "llama", show=False, **options)

    (tmp_path / "few.txt").write_text("A boat leaves.\n")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "poems").mkdir()
    (tmp_path / "poems" / "poems.txt").write_text("A boat leaves.\n")
    with pytest.raises(TrainingError, match="Expected at least 10 texts, so that some can be held out, found 1"):
        attempt(tmp_path / "few.txt")
    with pytest.raises(TrainingError, match="found 0"):
        attempt(tmp_path / "empty.txt")
    with pytest.raises(CorpusError, match=r"Expected files named everyday.txt, .* in .*poems, found none"):
        attempt(tmp_path / "poems")
    with pytest.raises(CorpusError, match="found a --style beside them"):
        attempt(home / "styles", style="news")
    with pytest.raises(UsageError, match=r'style: expected everyday, .* found "poems"'):
        attempt(home / "texts.txt", style="poems")
    with pytest.raises(CorpusError):
        attempt(tmp_path / "nothing.txt")


@pytest.mark.parametrize(("name", "value"), [("rank", 0), ("first_layer", -1), ("learning_rate", 2.0)])
def test_settings_that_cannot_be_name_their_field(name: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"{name}: expected a number"):
        CausalSettings(**{"steps": 1, name: value})


# ---------------------------------------------------------------------------------------------------------------------
# The command line


def test_an_adapter_from_the_command_line(pointer: Run, home: Path) -> None:
    command = ["train", home / "texts.txt", "--backbone", home / "llama", "--out", "mine", "--steps", "2"]
    done = pointer(*command, "--rank", "2", "--batch-tokens", "256", "--style", "news", "--json")
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["step"] == 2 and outcome["validation"]["loss"] > 0 and "Traceback" not in done.stderr
    written = pointer("generate", "dog", "New York", "--model", "mine", "--max-length", "20")
    assert written.returncode == 0, written.stderr
    assert missing_constraints(written.stdout.strip(), ["dog", "New York"]) == []
    refused = pointer("generate", "dog", "--model", "mine", "--style", "everyday")
    assert refused.returncode == 2 and "style: expected news, all that mine has learnt" in refused.stderr


def test_options_of_other_models_are_refused_on_the_command_line(pointer: Run, home: Path) -> None:
    command = ["train", home / "texts.txt", "--out", "mine", "--steps", "2"]
    for given_options, message in (
        (
            ["--backbone", home / "llama", "--preset", "small"],
            "preset: expected for POINTER alone, found with an adapter",
        ),
        (["--init", "tiny", "--rank", "2"], "rank: expected with --backbone, found without"),
        (["--backbone", home / "llama", "--validation", "x"], "validation: expected for POINTER alone"),
    ):
        done = pointer(*command, *given_options)
        assert done.returncode == 2 and message in " ".join(done.stderr.split()) and "Traceback" not in done.stderr
