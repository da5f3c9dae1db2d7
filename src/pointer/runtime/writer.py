"""The writer in onnxruntime: a base language model in int8, and the same with an adapter merged into it.

Both are made from the checkpoints that are here, once, and kept in the user's cache (`pointer.base`).
"""

import hashlib
import importlib.util
import json
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pointer import __version__
from pointer.base import SMOLLM2, base_folder, cache_folder, has_base
from pointer.checkpoint import causal_config
from pointer.errors import CheckpointError, UsageError, missing_extra
from pointer.language import REQUESTS, Language, Likelihood
from pointer.runtime import LARGEST_LOGIT, Floats, Ints, Prefix, log_softmax, side_by_side, spare_threads
from pointer.runtime.llama import heads_of_group
from pointer.runtime.onnx import Session
from pointer.runtime.prefixes import STEP, PrefixModel, Rows
from pointer.storage import file_hash, full_disk_explained, write_whole

FORMAT = 13
"""Of the graphs; another one is made anew."""
KEPT = 6
"""Converted models that are kept, those last used: three writers and their bases, under a gigabyte for SmolLM2."""
SCORED_TOKENS = 128
"""Positions that are scored together at most: the output layer of each is as long as the vocabulary."""
LEAST_IN_LANE = 4
"""Prefixes that are worth a thread of their own."""
COPIED_BELOW = 0.5
"""The share of slots in use below which a cache is copied to drop the others."""
UNSEEN = np.float32(-1e4)
"""Added to the attention to what a token must not see."""
ADAPTER = "adapter_model.safetensors"
_PLAIN = {"bias": "none", "use_dora": False, "use_rslora": False, "modules_to_save": None, "rank_pattern": {}}
"""What an adapter has to say of itself to be merged here."""


class OnnxWriter:
    """An adapter merged into its base as a function of prefixes, and the base alone to rank texts by."""

    def __init__(self, folder: Path, config: dict[str, Any], threads: int | None = None) -> None:
        if not can_run(folder):
            raise UsageError(
                f"backend: onnx expects a LoRA adapter of a Llama and the package onnx, found otherwise for {folder}.",
                'Choose torch, or install the package: pip install "pointer-text[writer]"',
            )
        self._threads = threads
        self._base = base_folder(config["base"])
        self.language = Language.open(self._base)
        if self.language.fingerprint != config["vocabulary"]:
            raise CheckpointError(
                f"Expected the base that the adapter in {folder} was trained on, found another vocabulary.",
                f"Give the same one: {config['base']}.",
            )
        shape = json.loads((self._base / "config.json").read_text("utf-8"))
        self.longest = int(shape["max_position_embeddings"])
        self.next_token = CachedGraph(Session(converted(self._base, folder), threads), shape, self.language.starts)

    @property
    def parameters(self) -> int:
        """How many weights the base has."""
        return sum(size for _, size in _shapes(self._base))

    @cached_property
    def _scorer(self) -> "OnnxBase":
        return OnnxBase(self._base, self._threads)

    def likelihoods(self, texts: Sequence[str], style: str | None) -> list[Likelihood]:
        """How likely the base, as it was before training, finds each text."""
        return self._scorer.likelihoods(texts, style)


class OnnxBase:
    """A base language model that says how likely texts are."""

    def __init__(self, folder: Path | None = None, threads: int | None = None) -> None:
        folder = folder or base_folder(SMOLLM2)
        self.language = Language.open(folder)
        config = json.loads((folder / "config.json").read_text("utf-8"))
        self.graph = CachedGraph(Session(converted(folder), threads), config)

    def likelihoods(self, texts: Sequence[str], style: str | None = None) -> list[Likelihood]:
        """How likely each text is as the answer to a request for one of that style; or, without a style, by itself."""
        before = self.language.request(style)
        return [self._likelihood(before, (*self.language.encode(text), self.language.end)) for text in texts]

    def _likelihood(self, before: Prefix, text: Prefix) -> Likelihood:
        # What stands before every text of a style is read once.
        total, held, whole = 0.0, self.graph.after(before[:-1], 1), before + text
        for start in range(len(before) - 1, len(whole) - 1, SCORED_TOKENS):
            said = np.array(whole[start + 1 : start + 1 + SCORED_TOKENS])
            logits = self.graph.feed(held, [whole[: start + len(said)]], np.arange(len(said)))
            own = log_softmax(np.clip(logits, -LARGEST_LOGIT, LARGEST_LOGIT))
            total += float(own[np.arange(len(said)), said].sum())
        return Likelihood(total, len(text))


class _Rows(Rows):
    """Keys and values of some prefixes in one array, `2L slots groups C D`."""

    def __init__(self, prefixes: list[Prefix], held: Floats, slots: Ints | None = None) -> None:
        self.prefixes = prefixes
        self.held = held
        self.slots = np.arange(len(prefixes)) if slots is None else slots
        """Where in the array each prefix has its own; there may be slots that nobody needs any more."""

    def select(self, rows: list[int]) -> "_Rows":
        prefixes, slots = [self.prefixes[row] for row in rows], self.slots[rows]
        if len(set(rows)) == len(rows) >= COPIED_BELOW * self.held.shape[1]:
            return _Rows(prefixes, self.held, slots)
        return _Rows(prefixes, self.held[:, slots])

    def make_room(self, width: int) -> None:
        """At least so many columns. Where that takes a copy, slots that nobody needs are left out."""
        layers, _, groups, columns, size = self.held.shape
        if columns >= width:
            return
        larger = np.zeros((layers, len(self.slots), groups, -(-width // STEP) * STEP, size), np.float32)
        for new, old in zip(larger, self.held, strict=True):
            new[:, :, :columns] = old[self.slots]
        self.held, self.slots = larger, np.arange(len(self.slots))

    def lanes(self, count: int) -> list[tuple["_Rows", list[int]]]:
        """The same array in so many parts, each with the numbers of the prefixes that it has."""
        found = []
        for part in np.array_split(np.arange(self.held.shape[1]), count):
            members = np.flatnonzero((self.slots >= part[0]) & (self.slots <= part[-1]))
            held, slots = self.held[:, part[0] : part[-1] + 1], self.slots[members] - part[0]
            found.append((_Rows([self.prefixes[i] for i in members], held, slots), members.tolist()))
        return [lane for lane in found if lane[1]]

    def now_hold(self, prefixes: list[Prefix]) -> None:
        """What is new of every prefix was read."""
        self.prefixes = prefixes
        self.__dict__.pop("places_of", None)


class CachedGraph(PrefixModel[_Rows]):
    """`NextToken` of a graph that `pointer.runtime.llama` made."""

    def __init__(self, session: Session, config: dict[str, Any], starts: Sequence[Prefix] = ()) -> None:
        super().__init__(starts)
        self.session = session
        self.side_by_side = session.threads
        self.layers, self.groups = config["num_hidden_layers"], config["num_key_value_heads"]
        self.each = heads_of_group(config)
        self.width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        self.names = [f"{part}_{number}" for number in range(self.layers) for part in ("key", "value")]

    def fresh(self, count: int) -> _Rows:
        return _Rows([()] * count, np.zeros((2 * self.layers, count, self.groups, 0, self.width), np.float32))

    def joined(self, groups: list[_Rows]) -> _Rows:
        if len(groups) == 1:
            return groups[0]
        widest = max(rows.held.shape[3] for rows in groups)
        for rows in groups:
            rows.make_room(widest)
        held = np.concatenate([rows.held[:, rows.slots] for rows in groups], 1)
        return _Rows([prefix for rows in groups for prefix in rows.prefixes], held)

    def run(self, rows: _Rows, prefixes: list[Prefix]) -> Floats:
        rows.make_room(max(map(len, prefixes)))
        lanes = rows.lanes(max(1, min(spare_threads(self), len(prefixes) // LEAST_IN_LANE)))

        def last(lane: tuple[_Rows, list[int]]) -> Floats:
            part, members = lane
            sizes = [len(prefixes[i]) - len(old) for i, old in zip(members, part.prefixes, strict=True)]
            return self.feed(part, [prefixes[i] for i in members], np.cumsum(sizes) - 1)

        logits = np.concatenate(list(side_by_side(last, lanes, self)))
        rows.now_hold(prefixes)
        found: Floats = logits[np.argsort([i for _, members in lanes for i in members])]
        return found

    def feed(self, rows: _Rows, prefixes: list[Prefix], wanted: Ints) -> Floats:
        """Read what is new of every prefix; the logits after the `wanted` of the new tokens, `G V`."""
        rows.make_room(max(map(len, prefixes)))
        old = np.array([len(prefix) for prefix in rows.prefixes])
        sizes = np.array([len(prefix) for prefix in prefixes]) - old
        ids = np.concatenate([prefix[start:] for prefix, start in zip(prefixes, old.tolist(), strict=True)])  # N
        row = np.repeat(np.arange(len(prefixes)), sizes)
        column = np.arange(len(ids)) - (np.cumsum(sizes) - sizes)[row]
        slots, places = rows.slots[row], old[row] + column
        logits, new = self.read(rows, ids, slots, places, column, wanted)[:2]
        rows.held[:, slots, :, places] = new
        rows.now_hold(prefixes)
        found: Floats = logits
        return found

    def read(self, rows: _Rows, ids: Ints, slots: Ints, places: Ints, column: Ints, wanted: Ints) -> list[Floats]:
        """What the graph says of new tokens, the `column`th of each slot's, at these places of their texts."""
        count, _, past = rows.held.shape[1:4]
        most = int(column.max()) + 1
        grid, before = np.zeros((count, most), np.int64), np.zeros(count, np.int64)
        grid[slots, column] = np.arange(len(ids))
        before[slots] = places - column
        # A token sees all that stands before it in its own row, and itself.
        seen = np.broadcast_to((np.arange(past) < before[:, None])[:, None], (count, most, past))
        now = np.broadcast_to(np.tri(most, dtype=bool), (count, most, most))
        blocked = np.where(np.concatenate([seen, now], 2), np.float32(0), UNSEEN)[:, None]  # B 1 W C+W
        given = {"ids": ids, "places": places, "grid": grid, "cells": slots * most + column, "wanted": wanted}
        given["blocked"] = np.repeat(blocked, self.each, 2)
        found: list[Floats] = self.session.run(None, given | dict(zip(self.names, rows.held, strict=True)))
        return found

    def log_probabilities(self, found: list[Floats]) -> Floats:
        logits = found[0] if len(found) == 1 else np.concatenate(found)
        return log_softmax(np.clip(logits, -LARGEST_LOGIT, LARGEST_LOGIT, out=logits))


# ---------------------------------------------------------------------------------------------------------------------
# Converting


def can_run(folder: Path) -> bool:
    """Is the writer in a checkpoint folder one that onnxruntime can run here?"""
    if not all(map(importlib.util.find_spec, ("onnx", "onnxruntime"))):
        return False
    config = causal_config(folder)
    if config is None or not has_base(config["base"]):
        return True  # opening it tells what is missing
    base, adapter = base_folder(config["base"]) / "config.json", folder / "adapter_config.json"
    try:
        return _is_plain(json.loads(base.read_text("utf-8")), json.loads(adapter.read_text("utf-8")))
    except (OSError, ValueError):
        return False


def _is_plain(base: dict[str, Any], adapter: dict[str, Any]) -> bool:
    rope = (base.get("rope_parameters") or {}).get("rope_type", "default")
    is_llama = base.get("model_type") == "llama" and rope == "default" and base.get("tie_word_embeddings", False)
    has_bias = base.get("attention_bias") or base.get("mlp_bias")
    is_lora = adapter.get("peft_type") == "LORA" and all(adapter.get(k, v) == v for k, v in _PLAIN.items())
    return bool(is_llama and not has_bias and is_lora)


def converted(base: Path, adapter: Path | None = None) -> Path:
    """The graph of a base, with an adapter merged into it if one is named; made once, checked by its digest."""
    path = cache_folder() / "onnx" / f"{_key(base, adapter)}.onnx"
    digest = path.with_suffix(".sha256")
    if path.is_file() and digest.is_file() and digest.read_text("utf-8").strip() == file_hash(path):
        with suppress(OSError):  # perhaps it is another user's cache
            digest.touch()  # it was used
        return path
    if not importlib.util.find_spec("onnx"):
        raise missing_extra("Converting a language model for onnxruntime", "onnx", "writer")
    from pointer.runtime.llama import llama_graph, smoothed

    config = json.loads((base / "config.json").read_text("utf-8"))
    weights = _weights(base, adapter)
    heard = _heard(llama_graph(weights, config, is_heard=True), config, Language.open(base))
    graph: bytes = llama_graph(smoothed(weights, config, heard), config).SerializeToString()
    with full_disk_explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, graph)
    write_whole(digest, f"{hashlib.sha256(graph).hexdigest()}\n".encode())
    _prune(path.parent)
    return path


def _heard(graph: Any, config: dict[str, Any], language: Language) -> dict[str, Floats]:
    """How large the inputs of every product of a graph get while it reads a few texts of every style."""
    model = CachedGraph(Session(graph.SerializeToString(), 1), config)
    names = [output.name for output in graph.graph.output][2:]
    found = []
    for style, text in REQUESTS.items():
        ids = np.array([*language.prompt(["words"], style), *language.encode(text)])
        places = np.arange(len(ids))
        found.append(model.read(model.fresh(1), ids, 0 * places, places, places, places)[2:])
    return {name: np.max(largest, 0) for name, *largest in zip(names, *found, strict=True)}


def _prune(folder: Path) -> None:
    """Remove all converted models but those last used; a process that has opened one goes on with it."""
    with suppress(OSError):  # another process may be doing the same
        digests = sorted(folder.glob("*.sha256"), key=lambda digest: -digest.stat().st_mtime_ns)
        for digest in digests[KEPT:]:
            digest.unlink()
            digest.with_suffix(".onnx").unlink()


def _key(base: Path, adapter: Path | None) -> str:
    """What tells converted models apart."""
    files = sorted([*base.glob("*.safetensors"), base / "config.json"])
    parts = [__version__, FORMAT, *((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files)]
    if adapter is not None:
        parts += [file_hash(adapter / name) for name in (ADAPTER, "adapter_config.json")]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _shapes(folder: Path) -> list[tuple[str, int]]:
    from safetensors import safe_open

    found = []
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "np") as file:
            found += [(name, int(np.prod(file.get_slice(name).get_shape()))) for name in file.keys()]  # noqa: SIM118
    return found


def _weights(base: Path, adapter: Path | None) -> dict[str, Floats]:
    """All weights in float32, those of the adapter added."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        files = sorted(base.glob("*.safetensors"))
        found = {name: value.astype(np.float32) for path in files for name, value in load_file(path).items()}
        if adapter is not None:
            scale = _scale(adapter)
            low = {name: value.astype(np.float32) for name, value in load_file(adapter / ADAPTER).items()}
            for name in (name for name in low if name.endswith(".lora_A.weight")):
                target = name.removeprefix("base_model.model.").replace(".lora_A", "")
                low_rank = low[name.replace("lora_A", "lora_B")] @ low[name]
                found[target] = found[target] + np.float32(scale) * low_rank
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"Expected a language model in {base} and an adapter for it in {adapter}, found something else "
            f"({type(error).__name__}).",
            "Copy or download them again.",
        ) from error
    return found


def _scale(adapter: Path) -> np.float32:
    config = json.loads((adapter / "adapter_config.json").read_text("utf-8"))
    scale: np.float32 = np.float32(config["lora_alpha"] / config["r"])
    return scale
