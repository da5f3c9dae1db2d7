"""The insertion transformer as an ONNX graph, made from the weights of a checkpoint, and back; needs no PyTorch.

The graph has what the decoder wants of a model, and no more: of the last layer and of the output layer only the gaps
that are asked about are computed (`rows` and `positions` are inputs). In int8, weights have a scale for each output and
activations one for each token. A scale for a whole batch, as `DynamicQuantizeLinear` has it, would make a text depend
on the texts beside it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pointer.runtime import Floats

FLOAT, UINT8, INT8, INT64, DOUBLE = 1, 2, 3, 7, 11
"""How ONNX calls the kinds of numbers."""
OPSET, IR_VERSION = 20, 10
"""What onnxruntime reads since 1.18."""
HIDDEN_BY_MASK = -1e4
"""Added to the attention to padding."""
QUANTISED, SCALE = ".int8", ".scale"
"""Endings of the names of quantised weights."""
LARGEST = 40
"""The largest whole number of a quantised weight. A byte would hold 127, but processors without VNNI add two products
with activations in 16 bits, which overflow above 64. With 40 texts are as good, and files compress by a fifth more."""
WORDS, PLACES = "bert.embeddings.word_embeddings.weight", "bert.embeddings.position_embeddings.weight"
SEGMENTS = "bert.embeddings.token_type_embeddings.weight"
QUERY, KEY, VALUE = "query", "key", "value"


class Node(NamedTuple):
    """A step of a graph."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]


class GraphBuilder:
    """Nodes and weights of a graph, one after the other; every step gives the name of its result."""

    def __init__(self, is_int8: bool) -> None:
        self.is_int8 = is_int8
        self.nodes: list[Node] = []
        self.weights: dict[str, npt.NDArray[Any]] = {}

    def add(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """A node; its output, or a list of them."""
        names = [f"{kind.lower()}_{len(self.nodes)}{f'_{i}' if i else ''}" for i in range(outputs)]
        self.nodes.append(Node(kind, inputs, tuple(names), attributes))
        return names[0] if outputs == 1 else names

    def constant(self, values: Any, name: str = "") -> str:
        """Weights, or numbers that the graph needs: whole ones are 64 bits wide, others 32."""
        array = np.asarray(values)
        if not name:
            array = array.astype(np.int64 if array.dtype.kind == "i" else np.float32)
            name = f"constant {array.tolist()}"
        self.weights.setdefault(name, array)
        return name

    def linear(self, hidden: str, weight: Floats, bias: Floats, name: str) -> str:
        """`hidden @ weight.T + bias`, the weights as PyTorch has them; `hidden` is `N H`."""
        product = self.times_int8(hidden, weight, name) if self.is_int8 else self.times(hidden, weight, name)
        return str(self.add("Add", product, self.constant(bias, f"{name}.bias")))

    def times(self, hidden: str, weight: Floats, name: str) -> str:
        """`hidden @ weight.T` in float32."""
        return str(self.add("MatMul", hidden, self.constant(weight.T, f"{name}.weight")))

    def times_int8(self, hidden: str, weight: Floats, name: str) -> str:
        """`hidden @ weight.T` in int8."""
        numbers, scale = self.in_int8(weight)
        turned = self.constant(numbers.T, f"{name}.weight{QUANTISED}")
        return self.times_quantised(hidden, turned, self.constant(scale, f"{name}.weight{SCALE}"))

    def in_int8(self, weight: Floats) -> tuple[npt.NDArray[np.int8], Floats]:
        """Weights, `out in`, as whole numbers, and the scale of every output."""
        return quantised(weight)

    def times_quantised(self, hidden: str, numbers: str, scale: str) -> str:
        """`hidden @ numbers`, each column times its scale; the rows of `hidden` are quantised one by one."""
        rows, by = self.quantised_rows(hidden)
        product = self.product(rows, numbers, scale)
        return str(self.add("Mul", product, self.add("Unsqueeze", by, self.constant([1]))))

    def quantised_rows(self, hidden: str) -> tuple[str, str]:
        """Rows as whole numbers around 128, and the scale of each, `N`."""
        largest = self.add("ReduceMax", self.add("Abs", hidden), self.constant([-1]), keepdims=0)
        by = self.add("Max", self.add("Mul", largest, self.constant(1 / 127)), self.constant(1e-9))
        zeros = self.add("ConstantOfShape", self.add("Shape", by), value=np.array([128], np.uint8))
        # Without a sign, and weights with one: that is what processors multiply fastest.
        return self.add("QuantizeLinear", hidden, by, zeros, axis=0), by

    def product(self, rows: str, numbers: str, scale: str) -> str:
        """Quantised rows times quantised weights, each column times its scale."""
        product = self.add("MatMulInteger", rows, numbers, self.constant(np.uint8(128), "middle"))
        return str(self.add("Mul", self.add("Cast", product, to=FLOAT), scale))

    def assembled(
        self,
        name: str,
        inputs: dict[str, tuple[int, list[Any]]],
        outputs: dict[str, tuple[str, list[Any]]],
        domains: Sequence[str] = (),
    ) -> Any:
        """The whole as a model: inputs by name with kind and dimensions, outputs with the result that each one is."""
        from onnx import helper, numpy_helper  # by whom graphs are written, not by whom they are checked

        def as_onnx(value: Any) -> Any:
            return numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value

        self.end(outputs)
        nodes = [
            helper.make_node(kind, given, made, **{key: as_onnx(value) for key, value in attributes.items()})
            for kind, given, made, attributes in self.nodes
        ]
        given = [helper.make_tensor_value_info(key, kind, dims) for key, (kind, dims) in inputs.items()]
        made = [helper.make_tensor_value_info(key, FLOAT, dims) for key, (_, dims) in outputs.items()]
        weights = [numpy_helper.from_array(values.copy("C"), key) for key, values in self.weights.items()]
        graph = helper.make_graph(nodes, name, given, made, weights)
        all_opsets = [helper.make_opsetid("", OPSET), *(helper.make_opsetid(domain, 1) for domain in domains)]
        return helper.make_model(graph, opset_imports=all_opsets, producer_name="pointer", ir_version=IR_VERSION)

    def end(self, outputs: dict[str, tuple[str, list[Any]]]) -> None:
        """Give results the names of outputs."""
        self.nodes += [Node("Identity", (result,), (key,), {}) for key, (result, _) in outputs.items()]


def quantised(weight: Floats, largest: int = LARGEST) -> tuple[npt.NDArray[np.int8], Floats]:
    """Weights, `out in`, as whole numbers up to the largest, and the scale of every output."""
    scale = np.maximum(np.abs(weight).max(1), np.float32(1e-12)) / np.float32(largest)
    return np.round(weight / scale[:, None]).astype(np.int8), scale


def insertion_graph(weights: Mapping[str, Floats], config: dict[str, Any], is_int8: bool = False) -> Any:
    """The graph of a BERT masked language model, with weights by the names of `BertForMaskedLM`."""
    graph = Bert(weights, config, is_int8)
    outputs = graph.outputs()
    return graph.assembled("pointer", graph.inputs, outputs)


class Bert(GraphBuilder):
    """An insertion transformer with these weights."""

    inputs = dict.fromkeys(("ids", "attention"), (INT64, ["texts", "tokens"])) | dict.fromkeys(
        ("rows", "positions"), (INT64, ["gaps"])
    )

    def __init__(self, weights: Mapping[str, Floats], config: dict[str, Any], is_int8: bool) -> None:
        super().__init__(is_int8)
        self.of = weights
        self.config = config
        self.size = config["hidden_size"]
        self.heads = config["num_attention_heads"]

    def outputs(self) -> dict[str, tuple[str, list[Any]]]:
        """Build the graph; its outputs with the results that they are."""
        return {"logits": (self.logits(), ["gaps", self.config["vocab_size"]])}

    def logits(self) -> str:
        """Of all gaps, `G V`."""
        hidden = self.embedded()  # N H: the tokens of all texts, padding included
        blocked = self.blocked()
        last = self.config["num_hidden_layers"] - 1
        for number in range(last):
            hidden = self.after_attention(hidden, self.attended(hidden, blocked, number), number)
        context = self.attended(hidden, blocked, last)
        # Of the last layer nothing but the gaps is wanted.
        length = self.add("Shape", "ids", start=1, end=2)
        gaps = self.add("Add", self.add("Mul", "rows", length), "positions")
        hidden, context = self.add("Gather", hidden, gaps), self.add("Gather", context, gaps)  # G H
        return self.spoken(self.after_attention(hidden, context, last))

    def embedded(self) -> str:
        """What the first layer reads, `N H`."""
        places = self.constant(self.placed(), PLACES)
        length = self.add("Shape", "ids", start=1, end=2)
        used = self.add("Slice", places, self.constant([0]), length, self.constant([0]))
        summed = self.add("Add", self.words(), used)  # B T H
        flat = self.add("Reshape", summed, self.constant([-1, self.size]))
        return self.normalised(flat, "bert.embeddings.LayerNorm")

    def placed(self) -> Floats:
        """The embeddings of positions; all tokens are of the first segment."""
        found: Floats = self.of[PLACES] + self.of[SEGMENTS][0]
        return found

    def joined(self, names: list[str]) -> Floats:
        """Some weights below each other."""
        return np.concatenate([self.of[name] for name in names])

    def words(self) -> str:
        """The embeddings of all tokens, `B T H`."""
        if not self.is_int8:
            return str(self.add("Gather", self.constant(self.of[WORDS], WORDS), "ids"))
        numbers, scale = self.in_int8(self.of[WORDS])
        rows = self.add("Gather", self.constant(numbers, WORDS + QUANTISED), "ids")
        scales = self.add("Gather", self.constant(scale, WORDS + SCALE), "ids")
        scales = self.add("Unsqueeze", scales, self.constant([2]))
        return str(self.add("Mul", self.add("Cast", rows, to=FLOAT), scales))

    def blocked(self) -> str:
        """What is added to the attention to every token, `B 1 1 T`: nothing, or much below zero for padding."""
        seen = self.add("Cast", "attention", to=FLOAT)
        blocked = self.add("Mul", self.add("Sub", self.constant(1.0), seen), self.constant(HIDDEN_BY_MASK))
        return str(self.add("Unsqueeze", blocked, self.constant([1, 2])))

    def attended(self, hidden: str, blocked: str, number: int) -> str:
        """Self-attention up to its output layer, `N H`."""
        name, width = f"bert.encoder.layer.{number}.attention.self", self.size // self.heads
        # One multiplication makes queries, keys and values.
        parts = [f"{name}.{part}" for part in (QUERY, KEY, VALUE)]
        weight, bias = (self.joined([f"{part}.{kind}" for part in parts]) for kind in ("weight", "bias"))
        together = self.linear(hidden, weight, bias, name)
        shape = self.add("Concat", self.add("Shape", "ids"), self.constant([3, self.heads, width]), axis=0)
        turned = self.add("Transpose", self.add("Reshape", together, shape), perm=[2, 0, 3, 1, 4])  # 3 B heads T width
        query, key, value = (
            self.add("Gather", turned, self.constant(part), axis=0) for part in range(3)
        )  # B heads T width
        scaled = self.add("Mul", query, self.constant(width**-0.5))
        products = self.add("MatMul", scaled, self.add("Transpose", key, perm=[0, 1, 3, 2]))
        shares = self.add("Softmax", self.add("Add", products, blocked), axis=-1)
        context = self.add("Transpose", self.add("MatMul", shares, value), perm=[0, 2, 1, 3])
        return str(self.add("Reshape", context, self.constant([-1, self.size])))

    def after_attention(self, hidden: str, context: str, number: int) -> str:
        """The rest of a layer."""
        name = f"bert.encoder.layer.{number}"
        attention = self.dense(context, f"{name}.attention.output.dense")
        hidden = self.normalised(self.add("Add", hidden, attention), f"{name}.attention.output.LayerNorm")
        inner = self.add("Gelu", self.dense(hidden, f"{name}.intermediate.dense"))
        outer = self.add("Add", hidden, self.dense(inner, f"{name}.output.dense"))
        return self.normalised(outer, f"{name}.output.LayerNorm")

    def spoken(self, chosen: str) -> str:
        """The output layer; its weights are the embeddings."""
        name = "cls.predictions"
        turned = self.add("Gelu", self.dense(chosen, f"{name}.transform.dense"))
        turned = self.normalised(turned, f"{name}.transform.LayerNorm")
        embeddings = self.add("Transpose", WORDS + QUANTISED if self.is_int8 else WORDS, perm=[1, 0])
        if self.is_int8:
            product = self.times_quantised(turned, embeddings, WORDS + SCALE)
        else:
            product = self.add("MatMul", turned, embeddings)
        return str(self.add("Add", product, self.constant(self.of[f"{name}.bias"], f"{name}.bias")))

    def dense(self, hidden: str, name: str) -> str:
        return self.linear(hidden, self.of[f"{name}.weight"], self.of[f"{name}.bias"], name)

    def normalised(self, hidden: str, name: str) -> str:
        weight = self.constant(self.of[f"{name}.weight"], f"{name}.weight")
        bias = self.constant(self.of[f"{name}.bias"], f"{name}.bias")
        epsilon = float(self.config.get("layer_norm_eps", 1e-12))
        return str(self.add("LayerNormalization", hidden, weight, bias, axis=-1, epsilon=epsilon))


def weights_of(graph: Any) -> dict[str, Floats]:
    """The weights of a graph that `insertion_graph` made, by the names of `BertForMaskedLM`, in float32."""
    from onnx import numpy_helper

    stored = {one.name: numpy_helper.to_array(one) for one in graph.graph.initializer if "." in one.name}
    found: dict[str, Floats] = {}
    for name, values in stored.items():
        if name.startswith("constant ") or name.endswith(SCALE):
            continue
        plain = name.removesuffix(QUANTISED)
        is_table = plain in (WORDS, PLACES)
        weight = values if values.ndim == 1 or is_table else values.T  # out in
        if name.endswith(QUANTISED):
            weight = weight * stored[plain + SCALE][:, None]
        found |= _parted(plain, weight.astype(np.float32, order="C"))
    found[SEGMENTS] = np.zeros((2, found[WORDS].shape[1]), np.float32)  # it is in the places
    return found


def _parted(name: str, values: Floats) -> dict[str, Floats]:
    """Queries, keys and values by themselves; anything else as it is."""
    before, _, kind = name.partition(".attention.self.")
    if not kind:
        return {name: values}
    parts = zip((QUERY, KEY, VALUE), np.split(values, 3), strict=True)
    return {f"{before}.attention.self.{part}.{kind}": some for part, some in parts}
