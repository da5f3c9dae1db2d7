"""Checkpoints that are damaged or malicious: each gets one sentence, at once, and nothing of it is executed.

`pytest tests/abuse` runs this alone.
"""

import gzip
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from conftest import Run
from onnx import TensorProto
from onnx.helper import make_graph, make_node, make_tensor_value_info
from onnx.numpy_helper import from_array
from safetensors.torch import load_file, save_file
from scripted import untrained

from pointer import Pointer
from pointer.checkpoint import ONNX
from pointer.errors import CheckpointError, PointerError, VocabularyError
from pointer.integrity import verify
from pointer.model import InsertionTransformer
from pointer.runtime.export import export
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


# ---------------------------------------------------------------------------------------------------------------------
# Graphs for onnxruntime, which are programs


@pytest.fixture(scope="session", params=["float32", "int8"])
def exported(sound: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with a graph."""
    return export(sound, tmp_path_factory.mktemp("exported") / "model", int8=request.param == "int8")


def graph(change: Callable[[onnx.ModelProto], Any]) -> Damage:
    def damage(folder: Path) -> None:
        model = onnx.load(folder / ONNX)
        change(model)
        (folder / ONNX).write_bytes(model.SerializeToString())

    return damage


def node(kind: str, *inputs: str, before: int = -1, output: str = "more", **attributes: Any) -> Damage:
    """One step more, before the last if not told otherwise."""

    def change(model: onnx.ModelProto) -> None:
        model.graph.node.insert(before % len(model.graph.node), make_node(kind, inputs, [output], **attributes))

    return graph(change)


def loop(model: onnx.ModelProto) -> None:
    """A step that never ends."""
    on = make_tensor_value_info("on", TensorProto.BOOL, [])
    body = make_graph(
        [make_node("Identity", ["on"], ["still"])],
        "body",
        [make_tensor_value_info("turn", TensorProto.INT64, []), on],
        [make_tensor_value_info("still", TensorProto.BOOL, [])],
    )
    model.graph.initializer.append(from_array(np.array(True), "on"))
    model.graph.node.insert(0, make_node("Loop", ["", "on"], [], body=body))


def external(model: onnx.ModelProto) -> None:
    """Weights from a file outside of the folder."""
    weight = next(one for one in model.graph.initializer if len(one.raw_data) > 1000)
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="../../../../etc/passwd")
    weight.ClearField("raw_data")


def number(name: str, *values: int) -> Damage:
    """Another value for what is no weight."""

    def change(model: onnx.ModelProto) -> None:
        [one] = [one for one in model.graph.initializer if one.name == name]
        one.raw_data = np.array(values, np.int64).tobytes()

    return graph(change)


def a_function(model: onnx.ModelProto) -> None:
    steps = [make_node("Concat", ["x", "x"], ["y"], axis=0)]
    opset = onnx.helper.make_opsetid("", 20)
    model.functions.append(onnx.helper.make_function("", "Gelu", ["x"], ["y"], steps, [opset]))


def longer_weight(model: onnx.ModelProto) -> None:
    weight = next(one for one in model.graph.initializer if len(one.raw_data) > 1000)
    weight.dims[0] = 10**12


def twice(model: onnx.ModelProto) -> None:
    """Who reads such a step may take the first or the second."""
    step = last(model, "Softmax")
    step.attribute.append(step.attribute[0])


def a_second_graph(folder: Path) -> None:
    # Protocol Buffers put two graphs together, so the steps of the second one would be run as well.
    steps = [make_node("Concat", ["ids", "ids"], ["more"], axis=0)]
    more = onnx.ModelProto(graph=onnx.GraphProto(node=steps)).SerializeToString()
    (folder / ONNX).write_bytes((folder / ONNX).read_bytes() + more)


OURS = "Expected a model that pointer export wrote for this config"
GRAPHS: dict[str, tuple[Damage, str]] = {
    "empty": (file(ONNX, b""), OURS),
    "no graph": (file(ONNX, b"\x08\x0a"), "another set of operators"),
    "text": (file(ONNX, b"import os; os.system('touch executed')"), OURS),
    "noise": (file(ONNX, random.Random(0).randbytes(100_000)), OURS),
    "cut off": (lambda f: os.truncate(f / ONNX, 50_000), "cut off"),
    "weights from elsewhere": (graph(external), "parts that ours do not have"),
    "a loop": (graph(loop), "parts that ours do not have"),
    "an operator of somebody's": (node("Attack", "ids", domain="com.example"), "parts that ours do not have"),
    "an operator that onnxruntime has and we do not use": (node("Range", "ids", "ids", "ids"), "a step 'Range'"),
    "a text that doubles": (node("Concat", "ids", "ids", axis=0), "a step 'Concat'"),
    "everything times everything": (node("MatMul", "cls.predictions.bias", "cls.predictions.bias"), "a step 'MatMul'"),
    "a function in the place of an operator": (graph(a_function), "parts that ours do not have"),
    "a second graph": (a_second_graph, "parts that ours do not have"),
    "another axis": (graph(lambda m: setattr(last(m, "Softmax").attribute[0], "i", 0)), "a step 'Softmax'"),
    "another shape": (number("constant [-1, 128]", 10**9, 10**9), "another number in"),
    "a weight of a terabyte": (graph(longer_weight), "in another shape"),
    "a weight too many": (
        graph(lambda m: m.graph.initializer.append(from_array(np.zeros(9, np.float32), "more"))),
        "other weights",
    ),
    "a weight too few": (graph(lambda m: m.graph.initializer.pop()), "other weights"),
    "an input too many": (
        graph(lambda m: m.graph.input.append(make_tensor_value_info("more", TensorProto.INT64, [1]))),
        "other inputs",
    ),
    "an input of another kind": (
        graph(lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", TensorProto.FLOAT)),
        "other inputs",
    ),
    "no outputs": (graph(lambda m: m.graph.ClearField("output")), "other outputs"),
    "other outputs": (graph(lambda m: setattr(m.graph.output[0], "name", "spoken")), "other outputs"),
    "operators of the future": (graph(lambda m: setattr(m.opset_import[0], "version", 99)), "set of operators"),
    "50 MB of names": (
        graph(lambda m: setattr(m.graph, "name", "x" * 50_000_000)),
        "bytes, which is more than its weights have",
    ),
    "a number of weights in words": (graph(lambda m: setattr(m.metadata_props[0], "value", "many")), "parts that ours"),
    "an attribute twice": (graph(twice), "two parts of one name"),
    "the graph of another size": (config(hidden_size=256), OURS),
    "the graph of another vocabulary": (config(vocab_size=500), OURS),
    "the graph of fewer layers": (config(num_hidden_layers=128), OURS),
}


def last(model: onnx.ModelProto, kind: str) -> onnx.NodeProto:
    return [step for step in model.graph.node if step.op_type == kind][-1]


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_that_is_not_ours_is_one_sentence_and_is_never_run(
    exported: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(exported, folder)
    (folder / MANIFEST).unlink(missing_ok=True)
    monkeypatch.setattr("pointer.runtime.onnx.Session", None)
    damage, sentence = GRAPHS[name]
    damage(folder)
    for opened in (Pointer.from_pretrained, InsertionTransformer.from_pretrained):
        with pytest.raises(CheckpointError) as refused:
            opened(folder)
        found = str(refused.value)
        assert sentence in found and "\n" not in found and len(found) < 1000


def test_a_graph_of_ours_with_other_weights_is_opened(exported: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(exported, folder)

    def change(model: onnx.ModelProto) -> None:
        [bias] = [one for one in model.graph.initializer if one.name == "cls.predictions.bias"]
        bias.raw_data = np.flip(np.frombuffer(bias.raw_data, np.float32)).tobytes()

    graph(change)(folder)
    assert Pointer.from_pretrained(folder).generate("rice; back").text


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
