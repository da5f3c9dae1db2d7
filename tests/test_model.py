"""The insertion transformer: what it starts from, what it saves, and that other people's programs agree with it."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForMaskedLM, AutoTokenizer, BertConfig, BertForMaskedLM, BertModel

from pointer.checkpoint import CARD, SIZES, TABLES
from pointer.errors import CheckpointError
from pointer.model import InsertionTransformer, convert_released
from pointer.storage import recover
from pointer.vocabulary import Vocabulary

RELEASED = Path(__file__).parent / "golden" / "released-tiny"
ENGLISH = Vocabulary.open("english")
SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
TOKENS = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "har", "##bour", "boat", "bread"]


def bert(folder: Path, kind: type[Any] = BertForMaskedLM, tokens: list[str] = TOKENS) -> Any:
    """A small random BERT with a vocabulary, saved as anyone would."""
    torch.manual_seed(0)
    model = kind(BertConfig(vocab_size=len(tokens), max_position_embeddings=64, **SMALL))
    for parameter in model.parameters():  # biases too, which start at zero
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
    return model.eval()


@pytest.fixture
def trained(tmp_path: Path) -> InsertionTransformer:
    """A checkpoint of ours that is open."""
    model = InsertionTransformer.start("tiny", ENGLISH, positions=32)
    model.files = {name: name.encode() for name in TABLES}
    return model.eval()


def logits(model: Any, ids: list[list[int]]) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(torch.tensor(ids)).logits
    return found


def test_sizes_from_scratch_are_those_of_the_paper() -> None:
    assert SIZES["large"]["num_hidden_layers"] == 24 and SIZES["large"]["hidden_size"] == 1024
    model = InsertionTransformer.start("tiny", ENGLISH)
    assert model.config.vocab_size == len(ENGLISH)
    assert model.config.pointer == {
        "end": "fixed", "tokens_seen": 0, "noi_token_id": ENGLISH.noi, "vocabulary": ENGLISH.fingerprint
    }  # fmt: skip


def test_a_masked_language_model_keeps_its_logits_when_its_vocabulary_stays(tmp_path: Path) -> None:
    plain = bert(tmp_path)
    model = InsertionTransformer.start(tmp_path, Vocabulary.open(tmp_path)).eval()
    torch.testing.assert_close(logits(model, [[3, 6, 7, 4]]), logits(plain, [[3, 6, 7, 4]]))


def test_embeddings_follow_their_tokens_into_another_vocabulary(tmp_path: Path) -> None:
    plain = bert(tmp_path / "old")
    target = tmp_path / "new"
    target.mkdir()
    new = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", "[unused0]", "bread", "harbour", "boat"]
    (target / "vocab.txt").write_text("\n".join(new) + "\n")
    model = InsertionTransformer.start(tmp_path / "old", Vocabulary.open(target))
    old_rows, rows = (m.get_input_embeddings().weight for m in (plain, model))
    torch.testing.assert_close(rows[6], old_rows[9])
    torch.testing.assert_close(rows[5], old_rows[1], msg="[NOI] is the unused entry of both")
    torch.testing.assert_close(rows[7], (old_rows[6] + old_rows[7]) / 2, msg="a new word is the mean of its pieces")
    torch.testing.assert_close(model.cls.predictions.bias[8], plain.cls.predictions.bias[8])
    same = logits(model.eval(), [[1, 8, 6, 2]])[..., [6, 8]]
    torch.testing.assert_close(same, logits(plain, [[3, 8, 9, 4]])[..., [9, 8]])


def test_an_encoder_without_a_head_gets_one_tied_to_its_embeddings(tmp_path: Path) -> None:
    encoder = bert(tmp_path, BertModel)
    model = InsertionTransformer.start(tmp_path, Vocabulary.open(tmp_path)).eval()
    ids = torch.tensor([[3, 6, 7, 4]])
    torch.testing.assert_close(model.bert(ids).last_hidden_state, encoder(ids).last_hidden_state)
    assert model.cls.predictions.decoder.weight is model.get_input_embeddings().weight


def test_an_encoder_of_earlier_years_counts_its_positions_in_a_tensor(tmp_path: Path) -> None:
    encoder = bert(tmp_path, BertModel)
    weights = {"embeddings.position_ids": torch.arange(64)[None], **encoder.state_dict()}
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    model = InsertionTransformer.start(tmp_path, Vocabulary.open(tmp_path)).eval()
    ids = torch.tensor([[3, 6, 7, 4]])
    torch.testing.assert_close(model.bert(ids).last_hidden_state, encoder(ids).last_hidden_state)


def test_no_insertion_gets_a_new_row_where_nothing_is_unused(tmp_path: Path) -> None:
    bert(tmp_path, tokens=[token for token in TOKENS if token != "[unused0]"])
    model = InsertionTransformer.start(tmp_path, Vocabulary.open(tmp_path))
    assert model.config.pointer["noi_token_id"] == 9 and model.get_input_embeddings().weight.shape[0] == 10


def test_positions_can_be_cut_but_not_invented(tmp_path: Path) -> None:
    plain = bert(tmp_path)
    model = InsertionTransformer.start(tmp_path, Vocabulary.open(tmp_path), positions=8).eval()
    assert model.config.max_position_embeddings == 8
    torch.testing.assert_close(logits(model, [[3, 6, 7, 4]]), logits(plain, [[3, 6, 7, 4]]))
    whole = InsertionTransformer.start(tmp_path, Vocabulary.open(tmp_path), positions=65)
    assert whole.config.max_position_embeddings == 64


def test_a_saved_checkpoint_is_what_transformers_reads(trained: InsertionTransformer, tmp_path: Path) -> None:
    trained.save_pretrained(tmp_path / "ours")
    ids = AutoTokenizer.from_pretrained(tmp_path / "ours")(["fresh bread"]).input_ids
    expected = logits(trained, ids)
    torch.testing.assert_close(logits(AutoModelForMaskedLM.from_pretrained(tmp_path / "ours"), ids), expected)
    again = InsertionTransformer.from_pretrained(tmp_path / "ours")
    torch.testing.assert_close(logits(again, ids), expected)
    assert again.vocabulary is not None and again.vocabulary.fingerprint == ENGLISH.fingerprint
    assert again.files[TABLES[0]] == TABLES[0].encode() and CARD in again.files
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["architectures"] == ["BertForMaskedLM"]
    assert not list((tmp_path / "ours").glob("*.bin"))


def test_half_precision_halves_the_file_and_opens_in_full(trained: InsertionTransformer, tmp_path: Path) -> None:
    trained.save_pretrained(tmp_path / "full")
    trained.save_pretrained(tmp_path / "half", dtype=torch.float16)
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("full", "half")]
    assert sizes[1] < 0.51 * sizes[0]
    for model in (InsertionTransformer, AutoModelForMaskedLM):
        opened = model.from_pretrained(tmp_path / "half")
        assert opened.dtype == torch.float32
        torch.testing.assert_close(logits(opened, [[2, 9, 3]]), logits(trained, [[2, 9, 3]]), atol=1e-2, rtol=1e-2)


def test_a_save_that_fails_leaves_the_old_checkpoint(
    trained: InsertionTransformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained.save_pretrained(tmp_path / "run")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr(Vocabulary, "save", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            trained.save_pretrained(tmp_path / "run")
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_process_killed_between_two_renames_has_lost_nothing(trained: InsertionTransformer, tmp_path: Path) -> None:
    trained.save_pretrained(tmp_path / "last")
    (tmp_path / "last").rename(tmp_path / ".last.old")
    (tmp_path / ".last.123.partial").mkdir()
    recover(tmp_path / "last")
    assert InsertionTransformer.from_pretrained(tmp_path / "last").num_parameters() == trained.num_parameters()
    assert [path.name for path in tmp_path.iterdir()] == ["last"]


def test_saving_again_keeps_what_the_user_put_there(trained: InsertionTransformer, tmp_path: Path) -> None:
    trained.save_pretrained(tmp_path / "mine")
    (tmp_path / "mine" / "notes.txt").write_text("worked well")
    trained.save_pretrained(tmp_path / "mine")
    assert (tmp_path / "mine" / "notes.txt").read_text() == "worked well"


def test_pushing_uploads_card_tables_and_tokenizer(
    trained: InsertionTransformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploaded: dict[str, Any] = {}

    class Hub:
        def __init__(self, token: str | None = None) -> None:
            uploaded["token"] = token

        def create_repo(self, name: str, private: bool | None, exist_ok: bool) -> Any:
            return type("Url", (), {"repo_id": f"someone/{name}"})

        def upload_folder(self, repo_id: str, folder_path: Path, commit_message: str) -> str:
            uploaded.update(repo=repo_id, files={path.name for path in Path(folder_path).iterdir()})
            return f"https://huggingface.co/{repo_id}"

    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    assert trained.push_to_hub("mine", token="t", private=True) == "https://huggingface.co/someone/mine"
    assert uploaded["token"] == "t"
    assert {"model.safetensors", "config.json", "tokenizer.json", CARD, *TABLES} <= uploaded["files"]


# ---------------------------------------------------------------------------------------------------------------------
# The authors' checkpoints


def test_a_converted_release_gives_the_logits_of_plain_transformers(tmp_path: Path) -> None:
    convert_released(RELEASED, tmp_path / "converted")
    plain = BertForMaskedLM.from_pretrained(RELEASED).eval()
    ids = [[101, 500, 700, 900], [101, 7, 2970, 1200]]
    for opened in (InsertionTransformer, AutoModelForMaskedLM):
        torch.testing.assert_close(logits(opened.from_pretrained(tmp_path / "converted"), ids), logits(plain, ids))
    config = json.loads((tmp_path / "converted" / "config.json").read_text())
    assert config["pointer"]["end"] == "inserted" and config["pointer"]["noi_token_id"] == 1


def test_the_oldest_names_of_layer_norms_are_understood(tmp_path: Path) -> None:
    shutil.copytree(RELEASED, tmp_path / "old")
    weights = torch.load(RELEASED / "pytorch_model.bin", weights_only=True)
    renamed = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
        for name, value in weights.items()
    }
    torch.save(renamed, tmp_path / "old" / "pytorch_model.bin")
    ids = [[101, 500, 700]]
    old, new = (convert_released(folder, tmp_path / "x").eval() for folder in (tmp_path / "old", RELEASED))
    torch.testing.assert_close(logits(old, ids), logits(new, ids))


class _Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_a_pickle_that_runs_code_is_refused_and_not_run(tmp_path: Path) -> None:
    shutil.copytree(RELEASED, tmp_path / "evil")
    torch.save({"weights": _Evil(tmp_path / "ran")}, tmp_path / "evil" / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"Expected nothing but tensors .* It was not executed"):
        convert_released(tmp_path / "evil", tmp_path / "out")
    assert not (tmp_path / "ran").exists() and not (tmp_path / "out").exists()


def test_a_folder_that_is_no_release_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"found no config.json and no vocab.txt and no pytorch_model.bin"):
        convert_released(tmp_path, tmp_path / "out")
    shutil.copytree(RELEASED, tmp_path / "mixed")
    (tmp_path / "mixed" / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
    with pytest.raises(CheckpointError, match="found 2971 embeddings, 10 entries"):
        convert_released(tmp_path / "mixed", tmp_path / "out")
    weights = torch.load(RELEASED / "pytorch_model.bin", weights_only=True)
    shutil.copytree(RELEASED, tmp_path / "headless")
    torch.save({n: w for n, w in weights.items() if "transform" not in n}, tmp_path / "headless" / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"found cls.predictions.transform.dense.weight missing"):
        convert_released(tmp_path / "headless", tmp_path / "out")


def test_what_is_no_bert_or_no_checkpoint_gets_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"Expected a checkpoint with a config.json in .*, found none"):
        InsertionTransformer.start(tmp_path, ENGLISH)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(CheckpointError, match=r"Expected a BERT checkpoint .* found one of type gpt2"):
        InsertionTransformer.start(tmp_path, ENGLISH)
    bert(tmp_path / "plain")
    with pytest.raises(CheckpointError, match="found a BERT without insertion training"):
        InsertionTransformer.from_pretrained(tmp_path / "plain")


def test_weights_that_are_cut_off_or_missing_get_a_sentence(trained: InsertionTransformer, tmp_path: Path) -> None:
    trained.save_pretrained(tmp_path / "whole")
    weights = tmp_path / "whole" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match=r"model.safetensors has 1,000 bytes instead of"):
        InsertionTransformer.from_pretrained(tmp_path / "whole")
    (tmp_path / "whole" / "manifest.json").unlink()
    with pytest.raises(CheckpointError, match=r"Expected in .*whole the weights that its config.json describes"):
        InsertionTransformer.from_pretrained(tmp_path / "whole")
    weights.unlink()
    with pytest.raises(CheckpointError, match="found no weights"):
        InsertionTransformer.from_pretrained(tmp_path / "whole")


def test_a_name_that_nobody_knows_lists_what_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(
        CheckpointError, match=r"Expected a size \(tiny, mini, base, large\), .* found \"nobody/nothing\""
    ):
        InsertionTransformer.start("nobody/nothing", ENGLISH)
