"""Is a graph one that `pointer export` writes? Asked before onnxruntime sees it; needs no package onnx.

A graph is a program: it can loop, grow without end, and read files outside of its folder. So it is compared with the
one that our exporter makes of the same config, node by node: only the numbers in its weights may be its own. The file
is read by the few rules of Protocol Buffers that it takes, and whatever they do not name is refused.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from pointer.errors import CheckpointError
from pointer.runtime import Floats
from pointer.runtime.graph import (
    FLOAT,
    INT8,
    INT64,
    IR_VERSION,
    OPSET,
    PLACES,
    QUANTISED,
    UINT8,
    WORDS,
    Bert,
    Node,
)
from pointer.runtime.onnx import PARAMETERS

T = TypeVar("T")

AGAIN = "Copy or download it again, or make it again with: pointer export"
SPARE = 2**20
"""Bytes that a graph may have beside its weights."""
_KINDS = {np.dtype(np.float32): FLOAT, np.dtype(np.int64): INT64, np.dtype(np.int8): INT8, np.dtype(np.uint8): UINT8}
_NUMBER = re.compile("[0-9]{1,15}")
_INT, _FLOAT, _BYTES = 0, 5, 2
"""How Protocol Buffers write a field: a whole number, four bytes, or so many bytes."""


def check_graph(path: Path, config: dict[str, Any]) -> None:
    """Refuse a graph that `pointer export` does not write for this config."""
    try:
        _check(np.memmap(path, np.uint8, "r").data, config)
    except (_Unknown, ValueError) as found:  # what is empty cannot be mapped
        raise CheckpointError(
            f"Expected a model that pointer export wrote for this config in {path}, found {found}.", AGAIN
        ) from None


class _Unknown(Exception):
    """What a graph has that ours do not have."""


def _check(content: memoryview, config: dict[str, Any]) -> None:
    stored = _model(content)
    outline = Outline(config, is_int8=WORDS + QUANTISED in stored.weights)
    outputs = outline.outputs()
    outline.end(outputs)
    if len(content) > sum(values.nbytes for values in outline.weights.values()) + SPARE:
        raise _Unknown(f"{len(content):,} bytes, which is more than its weights have")
    if stored.inputs != outline.inputs:
        raise _Unknown("other inputs")
    if stored.outputs != {key: (FLOAT, dims) for key, (_, dims) in outputs.items()}:
        raise _Unknown("other outputs")
    expected = [node._replace(attributes=_as_stored(node.attributes)) for node in outline.nodes]
    if stored.nodes != expected:
        raise _Unknown(_other_node(stored.nodes, expected))
    if stored.weights.keys() != outline.weights.keys():
        raise _Unknown("other weights")
    for name, weight in stored.weights.items():
        _check_weight(name, weight, outline.weights[name])


def _as_stored(attributes: dict[str, Any]) -> dict[str, Any]:
    """Numbers as they are read: with a point in 32 bits, and a tensor of one number as a tuple."""

    def read(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return tuple(value.tolist())
        return float(np.float32(value)) if isinstance(value, float) else value

    return {name: read(value) for name, value in attributes.items()}


def _other_node(stored: list[Node], expected: list[Node]) -> str:
    for ours, found in zip(expected, stored, strict=False):
        if ours != found:
            return f"a step {found.kind[:40]!r} where {ours.kind!r} belongs"
    return f"{len(stored):,} steps instead of {len(expected):,}"


class _Weight(NamedTuple):
    kind: int
    dims: list[int]
    content: memoryview


def _check_weight(name: str, weight: _Weight, expected: npt.NDArray[Any]) -> None:
    if weight.kind != _KINDS[expected.dtype] or weight.dims != list(expected.shape):
        raise _Unknown(f"the weight {name[:60]!r} in another shape")
    if len(weight.content) != expected.nbytes:
        raise _Unknown(f"the weight {name[:60]!r} with {len(weight.content):,} bytes instead of {expected.nbytes:,}")
    # Shapes and the like are no weights: they say what the graph does.
    if 0 not in expected.strides:
        values = np.frombuffer(weight.content, expected.dtype).reshape(expected.shape)
        if not np.array_equal(values, expected):
            raise _Unknown(f"another number in {name[:60]!r}")


class Outline(Bert):
    """The graph for a config without its weights: each is an array of the right shape that takes no memory."""

    def __init__(self, config: dict[str, Any], is_int8: bool) -> None:
        super().__init__(_Shapes(config), config, is_int8)

    def in_int8(self, weight: Floats) -> tuple[npt.NDArray[np.int8], Floats]:
        """In the right shapes."""
        return _blank(weight.shape, np.int8), _blank(weight.shape[:1])

    def placed(self) -> Floats:
        """In the right shape."""
        return self.of[PLACES]

    def joined(self, names: list[str]) -> Floats:
        """In the right shape."""
        parts = [self.of[name].shape for name in names]
        return _blank((sum(part[0] for part in parts), *parts[0][1:]))


class _Shapes(Mapping[str, Floats]):
    """The weights of a BERT by name, in their shapes."""

    def __init__(self, config: dict[str, Any]) -> None:
        size, inner, words = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
        self._tables: dict[str, tuple[int, ...]] = {
            WORDS: (words, size),
            PLACES: (config["max_position_embeddings"], size),
            "cls.predictions.bias": (words,),
        }
        self._dense = {"intermediate.dense": (inner, size), "output.dense": (size, inner)}
        self._size = size

    def __getitem__(self, name: str) -> Floats:
        if name in self._tables:
            return _blank(self._tables[name])
        module, _, kind = name.rpartition(".")
        if module.endswith("LayerNorm"):
            return _blank((self._size,))
        is_attention = ".attention." in module
        ending = ".".join(module.split(".")[-2:])
        shape = (self._size, self._size) if is_attention else self._dense.get(ending, (self._size, self._size))
        return _blank(shape if kind == "weight" else shape[:1])

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)


def _blank(shape: tuple[int, ...], kind: Any = np.float32) -> npt.NDArray[Any]:
    return np.broadcast_to(np.zeros((), kind), shape)


# ---------------------------------------------------------------------------------------------------------------------
# Reading


class _Stored(NamedTuple):
    """What a file has."""

    nodes: list[Node]
    weights: dict[str, _Weight]
    inputs: dict[str, tuple[int, list[Any]]]
    outputs: dict[str, tuple[int, list[Any]]]


def _model(content: memoryview) -> _Stored:
    one, many = _read(content, {1: _INT, 2: _BYTES, 7: _BYTES}, {8: _BYTES, 14: _BYTES})
    opsets = [_read(part, {1: _BYTES, 2: _INT})[0] for part in many[8]]
    if one.get(1, 0) > IR_VERSION or [(bytes(o.get(1, b"")), o.get(2)) for o in opsets] != [(b"", OPSET)]:
        raise _Unknown("another set of operators")
    about = [_read(part, {1: _BYTES, 2: _BYTES})[0] for part in many[14]]
    if any(_text(o.get(1, b"")) != PARAMETERS or not _NUMBER.fullmatch(_text(o.get(2, b""))) for o in about):
        raise _Unknown("parts that ours do not have")
    _, parts = _read(one.get(7, memoryview(b"")), {2: _BYTES}, {1: _BYTES, 5: _BYTES, 11: _BYTES, 12: _BYTES})
    nodes = [_node(part) for part in parts[1]]
    weights, inputs, outputs = _by_name(_tensor, parts[5]), _by_name(_value, parts[11]), _by_name(_value, parts[12])
    return _Stored(nodes, weights, inputs, outputs)


def _by_name(read: Callable[[memoryview], tuple[str, T]], parts: list[memoryview]) -> dict[str, T]:
    found = dict(map(read, parts))
    if len(found) != len(parts):
        raise _Unknown("two parts of one name")
    return found


def _node(content: memoryview) -> Node:
    one, many = _read(content, {3: _BYTES, 4: _BYTES}, {1: _BYTES, 2: _BYTES, 5: _BYTES})
    inputs, outputs = (tuple(map(_text, many[number])) for number in (1, 2))
    return Node(_text(one.get(4, b"")), inputs, outputs, _by_name(_attribute, many[5]))


def _attribute(content: memoryview) -> tuple[str, Any]:
    one, many = _read(content, {1: _BYTES, 2: _FLOAT, 3: _INT, 5: _BYTES, 20: _INT}, {8: _INT})
    values: dict[int | None, Any] = {1: one.get(2), 2: one.get(3), 4: one.get(5), 7: many[8] or None}
    value = values.pop(one.get(20), None)
    if value is None or any(other is not None for other in values.values()):
        raise _Unknown("parts that ours do not have")
    reads: dict[int, Callable[[Any], Any]] = {1: float, 2: _signed, 4: _single, 7: lambda given: [*map(_signed, given)]}
    return _text(one.get(1, b"")), reads[one[20]](value)


def _single(content: memoryview) -> tuple[int]:
    """A tensor of one number without a sign, the only one that stands in a step."""
    one, many = _read(content, {2: _INT, 8: _BYTES, 9: _BYTES}, {1: _INT, 5: _INT})
    numbers = [*many[5], *bytes(one.get(9, b""))]
    if one.get(2) != UINT8 or many[1] != [1] or len(numbers) != 1:
        raise _Unknown("a tensor in a step")
    return (numbers[0],)


def _tensor(content: memoryview) -> tuple[str, _Weight]:
    # Numbers may stand in the file itself and in one way only; field 13 and 14 would name another file.
    one, many = _read(content, {2: _INT, 8: _BYTES, 9: _BYTES}, {1: _INT})
    return _text(one.get(8, b"")), _Weight(one.get(2, 0), many[1], one.get(9, memoryview(b"")))


def _value(content: memoryview) -> tuple[str, tuple[int, list[Any]]]:
    one, _ = _read(content, {1: _BYTES, 2: _BYTES})
    kind, _ = _read(one.get(2, memoryview(b"")), {1: _BYTES})
    tensor, _ = _read(kind.get(1, memoryview(b"")), {1: _INT, 2: _BYTES})
    _, dims = _read(tensor.get(2, memoryview(b"")), {}, {1: _BYTES})
    sizes = [_read(dim, {1: _INT, 2: _BYTES})[0] for dim in dims[1]]
    return _text(one.get(1, b"")), (tensor.get(1, 0), [_text(size[2]) if 2 in size else size.get(1) for size in sizes])


def _text(content: memoryview | bytes) -> str:
    return bytes(content).decode("utf-8", "replace")


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


Ways = Mapping[int, int]
"""How each of some fields is written."""


def _read(
    content: memoryview, once: Ways, often: Ways = MappingProxyType({})
) -> tuple[dict[int, Any], dict[int, list[Any]]]:
    """The fields of a message by their numbers: those that may be there once, and those that may be there often."""
    one: dict[int, Any] = {}
    many: dict[int, list[Any]] = {number: [] for number in often}
    at = 0
    while at < len(content):
        key, at = _varint(content, at)
        number, way = key >> 3, key & 7
        expected = once.get(number, often.get(number))
        is_packed = way == _BYTES and often.get(number) == _INT
        if number in one or expected is None or (way != expected and not is_packed):
            raise _Unknown("parts that ours do not have")
        value, at = _field(content, at, way)
        if is_packed:
            many[number] += _numbers(value)
        elif number in often:
            many[number].append(value)
        else:
            one[number] = value
    return one, many


def _field(content: memoryview, at: int, way: int) -> tuple[Any, int]:
    if way == _INT:
        return _varint(content, at)
    size, at = (4, at) if way == _FLOAT else _varint(content, at)
    part = content[at : at + size]
    if len(part) != size:
        raise _Unknown("a file that is cut off")
    return (float(np.frombuffer(part, np.float32)[0]) if way == _FLOAT else part), at + size


def _numbers(content: memoryview) -> list[int]:
    found, at = [], 0
    while at < len(content):
        number, at = _varint(content, at)
        found.append(number)
    return found


def _varint(content: memoryview, at: int) -> tuple[int, int]:
    """A whole number, seven bits a byte, and where it ends."""
    number = shift = 0
    while shift < 70:
        if at >= len(content):
            raise _Unknown("a file that is cut off")
        byte = content[at]
        number |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return number, at
        shift += 7
    raise _Unknown("no such file")
