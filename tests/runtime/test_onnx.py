"""onnxruntime says what PyTorch says, and what it writes does not depend on the texts beside it."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from scripted import untrained

from pointer import Pointer
from pointer.checkpoint import ONNX
from pointer.decoding.parallel import ParallelPointer
from pointer.errors import CheckpointError, UsageError
from pointer.model import InsertionTransformer
from pointer.runtime.export import checkpoint_weights, export, onnx_weights

LISTS = [["food", "great"], ["new york", "music"], ["staff"], ["river", "church", "century", "old"]] * 3
EMBEDDED = ("wiki", "reviews", "news")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained(tmp_path_factory.mktemp("plain") / "model", noi=6.0)


@pytest.fixture(scope="module")
def exported(plain: Path) -> dict[str, Path]:
    return {kind: export(plain, plain.with_name(kind), int8=kind == "int8") for kind in ("float32", "int8")}


def opened(folder: Path | str, backend: str, threads: int = 2) -> ParallelPointer:
    found = Pointer.from_pretrained(folder, backend=backend, threads=threads)
    assert isinstance(found, ParallelPointer)
    return found


def logits(pointer: ParallelPointer, padded: bool) -> np.ndarray:
    random = np.random.default_rng(0)
    ids = random.integers(5, 900, (40, 11))
    attention = np.ones_like(ids)
    if padded:
        attention[::2, 8:] = 0
    rows = np.repeat(np.arange(40), 3)
    return pointer.predict(ids, attention if padded else None, rows, np.tile([0, 2, 7], 40))


@pytest.mark.parametrize("padded", [False, True])
def test_the_logits_of_all_gaps_are_those_of_pytorch(plain: Path, exported: dict[str, Path], padded: bool) -> None:
    expected = logits(opened(plain, "torch"), padded)
    np.testing.assert_allclose(logits(opened(exported["float32"], "onnx"), padded), expected, atol=1e-3)
    near = logits(opened(exported["int8"], "onnx"), padded)
    assert (near.argmax(-1) == expected.argmax(-1)).mean() >= 0.97 and np.abs(near - expected).mean() < 0.1


@pytest.mark.parametrize("options", [{}, {"decoding": "sample", "n": 2}, {"decoding": "beam", "width": 2}])
def test_texts_are_those_of_pytorch(plain: Path, exported: dict[str, Path], options: dict[str, object]) -> None:
    expected = opened(plain, "torch").generate_many(LISTS, **options)
    found = opened(exported["float32"], "onnx").generate_many(LISTS, **options)
    assert [[text.text for text in texts] for texts in found] == [[text.text for text in texts] for texts in expected]


@pytest.mark.parametrize("kind", ["float32", "int8"])
def test_a_text_does_not_depend_on_its_batch(exported: dict[str, Path], kind: str) -> None:
    pointer = opened(exported[kind], "onnx")
    together = pointer.generate_many(LISTS)
    assert together == [pointer.generate_many([one])[0] for one in LISTS]


def test_an_exported_checkpoint_opens_by_itself_and_tells_what_it_is(plain: Path, exported: dict[str, Path]) -> None:
    found = Pointer.from_pretrained(exported["int8"])
    assert isinstance(found, ParallelPointer) and found.model is None
    assert found.parameters == InsertionTransformer.from_pretrained(plain).num_parameters()
    sizes = [(exported[kind] / ONNX).stat().st_size for kind in ("int8", "float32")]
    assert sizes[0] < 0.3 * sizes[1]


def test_training_can_start_from_an_exported_model(plain: Path, exported: dict[str, Path], tmp_path: Path) -> None:
    before, weights = checkpoint_weights(plain), onnx_weights(exported["float32"] / ONNX)
    segments = "bert.embeddings.token_type_embeddings.weight"
    assert before.keys() == weights.keys()
    assert all(np.array_equal(before[name], weights[name]) for name in before if "embeddings.p" not in name != segments)
    model = InsertionTransformer.from_pretrained(exported["int8"])
    expected = logits(opened(plain, "torch"), False)
    model.save_pretrained(tmp_path / "again")
    assert not (tmp_path / "again" / ONNX).exists()
    again = logits(opened(tmp_path / "again", "torch"), False)
    assert (again.argmax(-1) == expected.argmax(-1)).mean() >= 0.97
    assert model.vocabulary is not None
    InsertionTransformer.start(exported["int8"], model.vocabulary)


def test_saving_over_an_exported_checkpoint_leaves_no_old_graph(plain: Path, tmp_path: Path) -> None:
    folder = export(plain, tmp_path / "exported")
    InsertionTransformer.from_pretrained(plain).save_pretrained(folder)
    assert not (folder / ONNX).exists()


def test_wrong_calls_get_one_sentence(plain: Path, exported: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Make it with: pointer export"):
        Pointer.from_pretrained(plain, backend="onnx")
    with pytest.raises(UsageError, match='backend: expected onnx, torch, found "tf"'):
        Pointer.from_pretrained(plain, backend="tf")
    with pytest.raises(UsageError, match="onnx expects the CPU and float32"):
        Pointer.from_pretrained(exported["int8"], backend="onnx", dtype="float16")
    with pytest.raises(UsageError, match="released expects PyTorch"):
        opened(exported["int8"], "onnx").generate(["food"], preset="released")
    with pytest.raises(UsageError, match="expected another folder"):
        export(plain, plain)
    broken = Path(shutil.copytree(exported["int8"], tmp_path / "broken"))
    (broken / ONNX).write_bytes((broken / ONNX).read_bytes()[:2000])
    with pytest.raises(CheckpointError, match=r"found that model\.onnx has 2,000 bytes"):
        Pointer.from_pretrained(broken)
    (broken / "manifest.json").unlink()
    with pytest.raises(CheckpointError, match="found a file that is cut off"):
        Pointer.from_pretrained(broken)
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps(config | {"pointer": None}))
    with pytest.raises(CheckpointError, match="a BERT without insertion training"):
        Pointer.from_pretrained(broken)


@pytest.fixture(scope="module", params=EMBEDDED)
def embedded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[ParallelPointer]:
    """An embedded model in float32, in both runtimes: the weights are the same, so only the runtimes can differ."""
    plain = tmp_path_factory.mktemp(request.param) / "plain"
    InsertionTransformer.from_pretrained(request.param).save_pretrained(plain)
    # Threads of PyTorch wait for each other by turning round, which on a busy machine takes most of the time.
    return [opened(plain, "torch", threads=1), opened(export(plain, plain.with_name("float32")), "onnx")]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("hundred", range(10))
def test_embedded_models_in_float32_write_what_pytorch_writes(embedded: list[ParallelPointer], hundred: int) -> None:
    words = [word for word in embedded[0].vocabulary.tokens if word.isalpha() and len(word) > 4]
    random = np.random.default_rng(hundred)
    lists = [random.choice(words, 5).tolist() for _ in range(100)]
    expected, found = ([texts[0].text for texts in pointer.generate_many(lists)] for pointer in embedded)
    assert found == expected
