"""Checkpoints that are damaged or malicious: each gets one sentence, at once, and nothing of it is executed.

`pytest tests/abuse` runs this alone.
"""

import gzip
import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Run
from safetensors.torch import load_file, save_file
from scripted import untrained

from pointer import Pointer
from pointer.errors import CheckpointError, PointerError, VocabularyError
from pointer.integrity import verify
from pointer.model import InsertionTransformer
from pointer.storage import MANIFEST

EMBEDDINGS = "bert.embeddings.word_embeddings.weight"
Damage = Callable[[Path], Any]


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole checkpoint with tables."""
    folder = untrained(tmp_path_factory.mktemp("sound") / "model", noi=8.0)
    english = Path(sys.modules["pointer"].__file__ or "").parent / "english"
    for name in ("casing.json.gz", "document_frequencies.json.gz"):
        shutil.copy(english / name, folder / name)
    (folder / MANIFEST).unlink()  # it would find most of this out, but what has none must be safe too
    return folder


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    shutil.copytree(sound, tmp_path / "model")
    return tmp_path / "model"


def config(**changes: Any) -> Damage:
    def damage(folder: Path) -> None:
        content = json.loads((folder / "config.json").read_text())
        content |= {name: value for name, value in changes.items() if name != "pointer"}
        content["pointer"] = (
            content["pointer"] | changes["pointer"]
            if isinstance(changes.get("pointer"), dict)
            else changes.get("pointer", content["pointer"])
        )
        (folder / "config.json").write_text(json.dumps(content))

    return damage


def weights(change: Callable[[dict[str, torch.Tensor]], Any]) -> Damage:
    def damage(folder: Path) -> None:
        found = load_file(folder / "model.safetensors")
        change(found)
        save_file(found, folder / "model.safetensors", metadata={"format": "pt"})

    return damage


def file(name: str, content: bytes) -> Damage:
    return lambda folder: (folder / name).write_bytes(content)


def table(name: str, content: Any) -> Damage:
    return file(f"{name}.json.gz", gzip.compress(json.dumps(content).encode()))


def tokenizer(change: Callable[[dict[str, Any]], Any]) -> Damage:
    def damage(folder: Path) -> None:
        content = json.loads((folder / "tokenizer.json").read_text("utf-8"))
        change(content)
        (folder / "tokenizer.json").write_text(json.dumps(content), "utf-8")

    return damage


def linked(name: str, target: str) -> Damage:
    def damage(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)

    return damage


def pipe(name: str) -> Damage:
    def damage(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return damage


def without(name: str) -> Damage:
    return lambda folder: (folder / name).unlink()


def pickled(folder: Path) -> None:
    """Only a pickle that would run a program."""

    class Payload:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.system, (f"touch {folder.parent / 'executed'}",)

    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Payload()))


BOMB = gzip.compress(b'{"counts": {' + b" " * 200_000_000 + b"}}")
DEEP = b"[" * 100_000 + b"]" * 100_000
DAMAGES: dict[str, tuple[Damage, str]] = {
    # Weights: nothing is made up, nothing is left over.
    "a weight is missing": (weights(lambda w: w.pop("cls.predictions.transform.dense.weight")), "missing"),
    "all but one are missing": (weights(lambda w: [w.pop(n) for n in list(w)[1:]]), "missing"),
    "a weight too many": (weights(lambda w: w.update(extra=torch.ones(3))), "found extra too many"),
    "another shape": (weights(lambda w: w.update({EMBEDDINGS: torch.ones(7, 7)})), "of another shape"),
    "whole numbers": (weights(lambda w: w.update({EMBEDDINGS: w[EMBEDDINGS].int()})), "floating point"),
    "truth values": (weights(lambda w: w.update({EMBEDDINGS: w[EMBEDDINGS] > 0})), "floating point"),
    "empty weights": (file("model.safetensors", b""), "the weights that its config.json describes"),
    "cut weights": (lambda f: os.truncate(f / "model.safetensors", 5000), "the weights that its config.json describes"),
    "a huge header": (file("model.safetensors", b"\xff" * 100), "the weights that its config.json describes"),
    "no weights": (without("model.safetensors"), "found no weights"),
    "a pickle alone": (pickled, "pytorch_model.bin is not opened"),
    "an adapter beside": (file("adapter_config.json", b'{"peft_type": "LORA"}'), "an adapter beside it"),
    # config.json
    "config is a list": (file("config.json", b"[]"), "a JSON object"),
    "config is a word": (file("config.json", b'"bert"'), "a JSON object"),
    "config is no JSON": (file("config.json", b"{"), "Expected JSON"),
    "config is no UTF-8": (file("config.json", b"\xff\xfe\xff"), "Expected JSON"),
    "config is deep": (file("config.json", DEEP), "Expected JSON"),
    "config is 100 MB": (file("config.json", b" " * 100_000_000), "at most 64 MB"),
    "a billion layers": (config(num_hidden_layers=10**9), "num_hidden_layers"),
    "no layer": (config(num_hidden_layers=0), "num_hidden_layers"),
    "layers in words": (config(num_hidden_layers="two"), "num_hidden_layers"),
    "layers are true": (config(num_hidden_layers=True), "num_hidden_layers"),
    "as many layers as allowed": (config(num_hidden_layers=128), "missing"),
    "as wide as allowed": (config(hidden_size=16_384, num_attention_heads=1), "of another shape"),
    "a width that heads do not share": (config(num_attention_heads=7), "values that make none"),
    "a huge vocabulary": (config(vocab_size=10**12), "vocab_size"),
    "negative positions": (config(max_position_embeddings=-5), "max_position_embeddings"),
    "an unknown activation": (config(hidden_act="import os"), "values that make none"),
    "an activation that is a number": (config(hidden_act=3), "values that make none"),
    "dropout in words": (config(hidden_dropout_prob="a lot"), "values that make none"),
    "another architecture": (config(model_type="gpt2"), "found one of type gpt2"),
    "no pointer section": (config(pointer=None), "without insertion training"),
    "a pointer section that is a list": (config(pointer=[1]), "Expected the"),
    "an end that nobody knows": (config(pointer={"end": "never"}), "`pointer` section"),
    "an offset in words": (config(pointer={"noi_offset": "much"}), "`pointer` section"),
    "rounds without end": (config(pointer={"rounds": 10**9}), "`pointer` section"),
    "a vocabulary that is a number": (config(pointer={"vocabulary": 5}), "`pointer` section"),
    # tokenizer.json
    "tokenizer is empty": (file("tokenizer.json", b""), "Expected a BERT WordPiece vocabulary"),
    "tokenizer is {}": (file("tokenizer.json", b"{}"), "no tokenizer"),
    "tokenizer is a list": (file("tokenizer.json", b"[]"), "no tokenizer"),
    "tokenizer is deep": (file("tokenizer.json", DEEP), "Expected a BERT WordPiece vocabulary"),
    "no tokenizer": (without("tokenizer.json"), "found neither"),
    "another kind of tokenizer": (tokenizer(lambda t: t["model"].update(type="BPE")), "a model of type BPE"),
    "another vocabulary": (tokenizer(lambda t: t["model"]["vocab"].pop("the")), "vocabulary"),
    "ids that are words": (tokenizer(lambda t: t["model"].update(vocab={"a": "b"})), "Expected a BERT WordPiece"),
    "a normalizer that replaces": (
        tokenizer(lambda t: t.update(normalizer={"type": "Replace", "pattern": {"String": ""}, "content": "x" * 999})),
        "a normalizer of type Replace",
    ),
    "a thousand normalizers": (
        tokenizer(lambda t: t.update(normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}] * 1000})),
        "at most 16 steps",
    ),
    "a regular expression": (
        tokenizer(lambda t: t.update(pre_tokenizer={"type": "Split", "pattern": {"Regex": "(a+)+$"}})),
        "a pre_tokenizer of type Split",
    ),
    # Tables
    "casing is no gzip": (file("casing.json.gz", b"plain"), "Expected a casing table"),
    "casing is cut": (lambda f: os.truncate(f / "casing.json.gz", 1000), "Expected a casing table"),
    "casing is no JSON": (file("casing.json.gz", gzip.compress(b"{")), "Expected a casing table"),
    "casing is a list": (table("casing", []), "Expected a casing table"),
    "casing has numbers": (table("casing", {"a": {"b": 3}}), "Expected a casing table"),
    "casing is deep": (file("casing.json.gz", gzip.compress(DEEP)), "Expected a casing table"),
    "casing is a bomb": (file("casing.json.gz", BOMB), "unpacks to more than 64 MB"),
    "frequencies are a bomb": (file("document_frequencies.json.gz", BOMB), "unpacks to more than 64 MB"),
    "frequencies are no gzip": (file("document_frequencies.json.gz", b""), "Expected document frequencies"),
    "frequencies without counts": (table("document_frequencies", {"texts": 3}), "Expected document frequencies"),
    "counts are a list": (table("document_frequencies", {"counts": []}), "Expected document frequencies"),
    # Files that are none
    "a link out of the folder": (linked("README.md", "/etc/hostname"), "leads out of the folder"),
    "weights from elsewhere": (linked("model.safetensors", "../../sound"), "link"),
    "a link to nothing": (linked("casing.json.gz", "nothing"), "broken link"),
    "a link to itself": (linked("casing.json.gz", "casing.json.gz"), "broken link"),
    "a link to a device": (linked("README.md", "/dev/zero"), "leads out of the folder"),
    "a pipe": (pipe("README.md"), "is none"),
    "a card of 2 MB": (file("README.md", b"x" * 2_000_000), "at most 1 MB"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_checkpoint_is_one_sentence(folder: Path, name: str) -> None:
    damage, sentence = DAMAGES[name]
    damage(folder)
    with pytest.raises((CheckpointError, VocabularyError)) as refused:
        Pointer.from_pretrained(folder).generate("rice; back")
    found = str(refused.value)
    assert sentence in found and "\n" not in found and len(found) < 1000
    assert not (folder.parent / "executed").exists()


@pytest.mark.parametrize("name", ["a weight is missing", "config is deep", "tokenizer is {}", "frequencies are a bomb"])
def test_the_command_line_says_the_same_without_a_traceback(folder: Path, pointer: Run, name: str) -> None:
    DAMAGES[name][0](folder)
    done = pointer("generate", "rice; back", "--model", folder)
    assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1
    assert done.stderr.startswith("pointer: Expected ")


def test_a_bomb_takes_no_memory(folder: Path) -> None:
    # 6 GB in a file of 6 MB; the process may have so much memory that PyTorch fits and the table does not.
    with gzip.open(folder / "casing.json.gz", "wb") as out:
        for _ in range(60):
            out.write(b" " * 100_000_000)
    program = (
        "import resource, sys\n"
        "from pointer import Pointer\n"
        "from pointer.model import InsertionTransformer\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n    Pointer.from_pretrained(sys.argv[1])\nexcept Exception as error:\n    print(error)\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True)
    message, megabytes = done.stdout.splitlines()
    assert "unpacks to more than 64 MB" in message and int(megabytes) < 500


def test_training_from_a_damaged_checkpoint_is_one_sentence_too(folder: Path) -> None:
    config(num_hidden_layers=128, hidden_size=16_384, num_attention_heads=1, intermediate_size=65_536)(folder)
    vocabulary = InsertionTransformer.from_pretrained("wiki").vocabulary
    assert vocabulary is not None
    with pytest.raises(CheckpointError, match="of another shape"):  # and not a terabyte of memory
        InsertionTransformer.start(folder, vocabulary)


def test_a_folder_of_the_hubs_cache_links_to_its_blobs(sound: Path, tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "models--me--mine" / "blobs", tmp_path / "models--me--mine" / "snapshots" / "abc"
    shutil.copytree(sound, blobs)
    snapshot.mkdir(parents=True)
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(Path("..") / ".." / "blobs" / path.name)
    assert Pointer.from_pretrained(snapshot).generate("rice; back").text


# ---------------------------------------------------------------------------------------------------------------------
# Manifests


@pytest.mark.parametrize("name", ["wiki", "news", "reviews", "writer"])
def test_the_embedded_checkpoints_are_as_they_were_written(pointer: Run, name: str) -> None:
    done = pointer("verify", name)
    assert done.returncode == 0 and "all as they were written" in done.stdout, done.stderr


def test_a_saved_checkpoint_has_a_manifest_and_verify_finds_every_change(
    sound: Path, tmp_path: Path, pointer: Run
) -> None:
    folder = tmp_path / "model"
    InsertionTransformer.from_pretrained(sound).save_pretrained(folder)
    assert verify(folder) == len(list(folder.iterdir())) - 1 >= 6
    same_size = (folder / "config.json").read_bytes().replace(b"gelu", b"relu")
    changes: dict[str, Damage] = {
        "config.json has other content": file("config.json", same_size),
        "README.md has 5 bytes instead of": file("README.md", b"other"),
        "casing.json.gz is missing": without("casing.json.gz"),
        "more.py is not in the manifest": file("more.py", b""),
    }
    for change in changes.values():
        change(folder)
    done = pointer("verify", folder)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert all(sentence in done.stderr for sentence in changes), done.stderr
    assert pointer("verify", folder, "--write").returncode == 0
    assert pointer("verify", folder).returncode == 0


def test_opening_compares_sizes_but_lets_people_edit_the_card(sound: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    InsertionTransformer.from_pretrained(sound).save_pretrained(folder)
    (folder / "README.md").write_text("# mine\n")
    assert Pointer.from_pretrained(folder).generate("rice").text
    (folder / "document_frequencies.json.gz").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"document_frequencies\.json\.gz has 0 bytes instead of"):
        Pointer.from_pretrained(folder)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b'{"files": []}', b'{"files": {"a": 3}}', b'{"files": {"../a": {"size": 1, "sha256": "x"}}}', DEEP],
)
def test_a_manifest_that_is_none_is_one_sentence(folder: Path, content: bytes) -> None:
    (folder / MANIFEST).write_bytes(content)
    with pytest.raises(PointerError, match="Expected"):
        Pointer.from_pretrained(folder)
    with pytest.raises(PointerError, match="Expected"):
        verify(folder)


def test_a_checkpoint_without_a_manifest_opens_but_cannot_be_verified(folder: Path, pointer: Run) -> None:
    assert Pointer.from_pretrained(folder).generate("rice").text
    done = pointer("verify", folder)
    assert done.returncode == 1 and "found none" in done.stderr and "--write" in done.stderr
