"""The writer in onnxruntime: what it says is near to what PyTorch says, and keys and values are kept rightly."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_causal import llama_folder, writer_folder
from transformers import AutoModelForCausalLM

from pointer import Pointer
from pointer.base import cache_folder
from pointer.causal import likelihoods, open_base
from pointer.decoding.writer import Writer
from pointer.errors import CheckpointError, UsageError
from pointer.runtime import Floats, Prefix
from pointer.runtime.onnx import Session
from pointer.runtime.prefixes import STEP
from pointer.runtime.writer import KEPT, CachedGraph, OnnxBase, can_run, converted


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return llama_folder(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def adapter(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return writer_folder(base, tmp_path_factory.mktemp("adapter") / "writer")


def read_anew(folder: Path, prefixes: list[Prefix]) -> Floats:
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        logits = [model(torch.tensor([prefix]), use_cache=False).logits[0, -1] for prefix in prefixes]
    found: Floats = torch.log_softmax(torch.stack(logits), -1).numpy()
    return found


def graph(base: Path, threads: int = 1) -> CachedGraph:
    return CachedGraph(Session(converted(base), threads), json.loads((base / "config.json").read_text()))


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_what_comes_next_is_the_same_to_the_last_bit_in_any_company(groups: int, tmp_path: Path) -> None:
    base, random = llama_folder(tmp_path, groups=groups), np.random.default_rng(0)
    whole = [tuple(random.integers(3, 300, size).tolist()) for size in (5, 9, 17, 31, 33, 47, 64, 91)]
    alone = graph(base)
    expected = {prefix[:end]: alone([prefix[:end]])[0] for prefix in whole for end in range(3, len(prefix) + 1)}
    for threads in (1, 3):
        together = graph(base, threads)
        for step in range(44):  # each at a place of its own, by one token or two, next to others that come and go
            ends = [3 + step * (1 + row % 2) for row in range(len(whole))]
            some = [prefix[:end] for prefix, end in zip(whole, ends, strict=True) if end <= len(prefix)]
            for prefix, found in zip(some, together(some), strict=True):
                assert np.array_equal(found, expected[prefix])
    for prefix in whole:  # read at once, not token by token
        assert np.array_equal(graph(base)([prefix])[0], expected[prefix])


def test_what_comes_next_is_near_to_what_pytorch_says(base: Path) -> None:
    prefixes: list[Prefix] = [(1, 5, 9, 33), (7, 8), (300, 2, 2, 2, 2, 2, 17)]
    np.testing.assert_allclose(graph(base)(prefixes), read_anew(base, prefixes), atol=0.15)


def test_keys_and_values_that_are_kept_change_nothing(base: Path) -> None:
    cached, random = graph(base), np.random.default_rng(0)
    batch: list[Prefix] = [tuple(random.integers(0, 600, size).tolist()) for size in (3, 8, 1)]
    for step in range(2 * STEP):
        batch = [prefix + tuple(random.integers(0, 600, 1 + step % 2).tolist()) for prefix in batch]
        if step % 5 == 1:
            batch = [batch[1], batch[0], batch[0] + (4,)]
        if step % 7 == 3:
            batch = [*batch[:2], (9, 9, int(random.integers(600)))]
        np.testing.assert_allclose(cached(batch), graph(base)(batch), atol=0.15)  # a rounding may flip


def test_a_prefix_does_not_depend_on_those_beside_it(base: Path) -> None:
    prefixes: list[Prefix] = [(1, 5, 9, 33), (7, 8), (300, 2, 17)]
    together = graph(base)(prefixes)
    alone = np.concatenate([graph(base)([prefix]) for prefix in prefixes])
    np.testing.assert_allclose(together, alone, atol=1e-4)


def test_texts_are_as_likely_as_pytorch_finds_them(base: Path) -> None:
    texts = ["The dog ran.", "A castle by the river. " * 30, "x"]
    for style in (None, "reviews"):
        expected = likelihoods(*open_base(base), texts, style)
        found = OnnxBase(base, 1).likelihoods(texts, style)
        np.testing.assert_allclose([one.total for one in found], [one.total for one in expected], rtol=0.02)
        assert [one.tokens for one in found] == [one.tokens for one in expected]


def test_the_adapter_is_merged_and_the_base_ranks_without_it(adapter: Path, base: Path) -> None:
    fast, slow = (Pointer.from_pretrained(adapter, backend=backend, threads=1) for backend in ("onnx", "torch"))
    assert isinstance(fast, Writer) and isinstance(slow, Writer) and can_run(adapter)
    prefixes: list[Prefix] = [(1, 5, 9, 33), (7, 8)]
    np.testing.assert_allclose(fast.predict(prefixes), slow.predict(prefixes), atol=0.15)
    assert np.abs(fast.predict(prefixes) - graph(base)(prefixes)).max() > 0.2, "the adapter does something"
    np.testing.assert_allclose(fast.readings(["The dog."], None), slow.readings(["The dog."], None), rtol=0.02)
    asked = [["dog", "park"], ["New York"]]
    for texts, constraints in zip(fast.generate_many(asked, best_of=3, max_length=16), asked, strict=True):
        assert [texts[0].text[a:b].lower() for a, b in texts[0].spans] == [one.lower() for one in constraints]
    assert fast.parameters > 0 and fast.longest == slow.longest


def test_texts_are_the_same_on_any_number_of_threads_and_in_any_batches(adapter: Path) -> None:
    asked = [[first, second] for first in ("dog", "New York", "tea", "on") for second in ("park", "ran", "house")]
    one, three = (Pointer.from_pretrained(adapter, backend="onnx", threads=threads) for threads in (1, 3))
    for options in ({}, {"best_of": 4}, {"decoding": "beam"}):
        expected = one.generate_many(asked, max_length=16, **options)
        for batch_size in (2, 5, 64):
            assert three.generate_many(asked, batch_size, max_length=16, **options) == expected


def test_batches_side_by_side_read_no_token_twice(adapter: Path) -> None:
    asked = [[first, second] for first in ("dog", "New York", "tea", "on") for second in ("park", "ran", "house")]
    counts: list[int] = []
    for threads in (1, 6):
        writer = Pointer.from_pretrained(adapter, backend="onnx", threads=threads)
        run, sizes = writer.predict.session.run, []

        def counted(names: None, given: dict[str, Any], run: Any = run, sizes: list[int] = sizes) -> Any:
            sizes.append(len(given["ids"]))
            return run(names, given)

        writer.predict.session.run = counted
        writer.generate_many(asked, 2, max_length=24)
        counts.append(sum(sizes))
    assert counts[0] == counts[1]


def test_converted_weights_are_made_once_and_checked(adapter: Path, base: Path) -> None:
    path = converted(base, adapter)
    made = path.stat().st_mtime_ns
    assert converted(base, adapter) == path and path.stat().st_mtime_ns == made
    assert path.parent == cache_folder() / "onnx" and path != converted(base)
    content = path.read_bytes()
    path.write_bytes(content[:-100] + b"\0" * 100)
    assert converted(base, adapter).read_bytes() == content, "a damaged file is made again"


def test_of_converted_weights_those_last_used_are_kept(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POINTER_CACHE", str(tmp_path))
    mine = converted(base)
    for age in range(2 * KEPT):
        old = mine.with_name(f"{age}.onnx")
        old.write_bytes(b"old")
        old.with_suffix(".sha256").write_text("old")
        os.utime(old.with_suffix(".sha256"), (1000 - age, 1000 - age))
    os.utime(mine.with_suffix(".sha256"), (1, 1))
    assert converted(base) == mine, "used again, it is young again"
    mine.write_bytes(b"damaged")
    assert converted(base) == mine, "made again, which prunes"
    kept = {path.name for path in mine.parent.iterdir()}
    young = {mine.stem, *map(str, range(KEPT - 1))}
    assert kept == {f"{name}.{kind}" for name in young for kind in ("onnx", "sha256")}


def test_an_adapter_for_another_base_is_refused(adapter: Path, base: Path, tmp_path: Path) -> None:
    for name in adapter.iterdir():
        (tmp_path / name.name).write_bytes(name.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    config["pointer"]["vocabulary"] = "another"
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="found another vocabulary"):
        Pointer.from_pretrained(tmp_path, backend="onnx")


def test_what_cannot_be_merged_is_left_to_pytorch(adapter: Path, tmp_path: Path) -> None:
    for name in adapter.iterdir():
        (tmp_path / name.name).write_bytes(name.read_bytes())
    settings = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps(settings | {"use_dora": True}))
    assert can_run(adapter) and not can_run(tmp_path)
    with pytest.raises(UsageError, match="onnx expects a LoRA adapter of a Llama"):
        Pointer.from_pretrained(tmp_path, backend="onnx")
