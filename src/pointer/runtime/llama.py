"""A Llama as an ONNX graph with keys and values as inputs and outputs, its weights in int8; needs no PyTorch.

Weights have a scale for each output, activations one for each token, so a product does not depend on what stands beside
it. Neither does attention: a sum in float32 goes through the columns from left to right, and columns that are not seen
add exact zeros at its end. That matters, as int8 makes up to half a nat of a difference in the last digit. So a text is
the same to the last bit in any batch.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pointer.runtime import Floats
from pointer.runtime.graph import DOUBLE, FLOAT, INT64, QUANTISED, SCALE, GraphBuilder, quantised

LARGEST = 127
"""The largest whole number of a quantised weight."""
CONTRIB = "com.microsoft"
"""The operators that only onnxruntime has."""
EMBEDDINGS = "model.embed_tokens"
ATTENTION, QKV = "self_attn", ("q_proj", "k_proj", "v_proj")
MLP, GATE_UP = "mlp", ("gate_proj", "up_proj")
FACTOR = f"{EMBEDDINGS}.factor"
"""By which the embeddings are larger that the output layer reads than those that a text begins with."""
LEAST = np.float32(1e-5)
"""How large a channel is taken to be at least."""


def llama_graph(weights: Mapping[str, Floats], config: dict[str, Any], is_heard: bool = False) -> Any:
    """The graph of a `LlamaForCausalLM`.

    Tokens stand one after the other, whatever text they are of: only attention is computed for padding, too. Inputs:
    `ids` and `places` (N), `grid` (B W: which token stands where), `cells` (N: where in the grid each one stands),
    `blocked` (B 1 W*each C+W: added to the attention of all heads of a group), `wanted` (numbers of tokens), and for
    every layer the keys and values so far (B groups C D). Outputs: the logits after the wanted tokens, and the new keys
    and values of all layers (N 2*layers groups D). With `is_heard` also one for every product, by its name: how large
    each of its inputs gets.
    """
    return _Llama(weights, config, is_heard).made()


def smoothed(weights: Mapping[str, Floats], config: dict[str, Any], heard: Mapping[str, Floats]) -> dict[str, Floats]:
    """Weights of the same model that lose less in int8 (SmoothQuant, Xiao et al. 2023).

    Some channels are much larger than all others, and a token has one scale for all. So what makes a channel is divided
    by a factor, and what reads it multiplied. `heard` says how large the channels get.
    """
    found = dict(weights)
    groups = config["num_key_value_heads"]

    def balance(maker: str, block: str, readers: Sequence[str], each: int = 1) -> None:
        read_by = [f"{block}.{reader}.weight" for reader in readers]
        weight = np.max([np.abs(found[name]).max(0) for name in read_by], 0)
        # The heads of a group read the same channels.
        shape = (groups, each, -1) if each > 1 else (1, 1, -1)
        sizes = (np.maximum(of.reshape(shape).max(1), LEAST) for of in (heard[_together(block, readers)], weight))
        factor = np.sqrt(next(sizes) / next(sizes))
        found[f"{maker}.weight"] = (found[f"{maker}.weight"].T / factor.reshape(-1)).T
        repeated = np.repeat(factor[:, None], each, 1).reshape(-1)
        found.update({name: found[name] * repeated for name in read_by})

    for number in range(config["num_hidden_layers"]):
        layer = f"model.layers.{number}"
        attention, mlp = f"{layer}.{ATTENTION}", f"{layer}.{MLP}"
        balance(f"{layer}.input_layernorm", attention, QKV)
        balance(f"{attention}.v_proj", attention, ("o_proj",), config["num_attention_heads"] // groups)
        balance(f"{layer}.post_attention_layernorm", mlp, GATE_UP)
        balance(f"{mlp}.up_proj", mlp, ("down_proj",))
    balance("model.norm", "model", ("embed_tokens",))
    return found | {FACTOR: weights["model.norm.weight"] / found["model.norm.weight"]}


def heads_of_group(config: Mapping[str, Any]) -> int:
    """How many heads read the same keys; one alone is computed twice, as a single row is added up in another order."""
    return max(2, int(config["num_attention_heads"]) // int(config["num_key_value_heads"]))


def _together(block: str, parts: Sequence[str]) -> str:
    """The name of projections that are multiplied at once."""
    return f"{block}.{'+'.join(parts)}"


class _Llama(GraphBuilder):
    def __init__(self, weights: Mapping[str, Floats], config: dict[str, Any], is_heard: bool) -> None:
        super().__init__(is_int8=True)
        self.of = weights
        self.config = config
        self.size = config["hidden_size"]
        self.heads, self.groups = config["num_attention_heads"], config["num_key_value_heads"]
        self.width = config.get("head_dim") or self.size // self.heads
        self.layers = config["num_hidden_layers"]
        self.new: list[str] = []
        """Keys and values of the present tokens, layer by layer."""
        self.is_heard = is_heard
        self.heard: dict[str, tuple[str, list[Any]]] = {}
        """How large the inputs of each product get, if that is wanted."""

    def made(self) -> Any:
        """The whole model."""
        hidden = self.embedded()  # N H
        turns = self.turns()
        for number in range(self.layers):
            name = f"model.layers.{number}"
            context = self.attended(self.normalised(hidden, f"{name}.input_layernorm"), number, turns)
            hidden = self.add("Add", hidden, self.projected(context, f"{name}.{ATTENTION}", "o_proj"))
            inner = self.normalised(hidden, f"{name}.post_attention_layernorm")
            hidden = self.add("Add", hidden, self.thought(inner, f"{name}.{MLP}"))
        wanted = self.normalised(self.add("Gather", hidden, "wanted"), "model.norm")
        self.hear(wanted, EMBEDDINGS)
        table, scale = self.embeddings()
        logits = self.times_quantised(wanted, self.add("Transpose", table, perm=[1, 0]), scale)
        return self.model_of(logits, self.add("Concat", *self.new, axis=1))

    def embedded(self) -> str:
        """What the first layer reads, `N H`: rows of the output layer, whose weights it has."""
        rows, scale = (self.add("Gather", table, "ids") for table in self.embeddings())
        scaled = self.add("Mul", self.add("Cast", rows, to=FLOAT), self.add("Unsqueeze", scale, self.constant([1])))
        return str(self.add("Div", scaled, self.constant(self.of[FACTOR], FACTOR)) if FACTOR in self.of else scaled)

    def embeddings(self) -> tuple[str, str]:
        """The weights of the output layer, `V H`, and the scale of each token."""
        numbers, scale = quantised(self.of[f"{EMBEDDINGS}.weight"], LARGEST)
        return self.constant(numbers, EMBEDDINGS + QUANTISED), self.constant(scale, EMBEDDINGS + SCALE)

    def turns(self) -> tuple[str, str, str]:
        """The number of every token, `N 1`, and cosine and sine of the angles by which it turns, `N D/2`."""
        theta = (self.config.get("rope_parameters") or self.config)["rope_theta"]
        speeds = (1.0 / theta ** (np.arange(0, self.width, 2) / self.width)).astype(np.float32)
        places = self.add("Unsqueeze", self.add("Cast", "places", to=FLOAT), self.constant([1]))
        angles = self.add("Mul", places, self.constant(speeds, "speeds"))
        count = self.add("Squeeze", self.add("Shape", "ids"))
        numbers = self.add("Range", self.constant(0), count, self.constant(1))
        return self.add("Unsqueeze", numbers, self.constant([1])), self.add("Cos", angles), self.add("Sin", angles)

    def turned(self, heads: str, turns: tuple[str, str, str]) -> str:
        """Rotary embeddings of `N heads*D`: the two halves of a head turn together."""
        alone = self.add("Unsqueeze", heads, self.constant([1]))  # to the operator, a text of one token
        return str(self.add("RotaryEmbedding", alone, *turns, domain=CONTRIB))

    def attended(self, hidden: str, number: int, turns: tuple[str, str, str]) -> str:
        """Self-attention up to its output layer, `N heads*D`."""
        groups, width = self.groups, self.width
        parts, by = self.products(hidden, f"model.layers.{number}.{ATTENTION}", QKV)
        query, key, value = (self.add("Mul", part, by) for part in parts)
        heads = self.turned(query, turns), self.turned(key, turns), value
        query, key, value = (
            self.add("Reshape", part, self.constant([0, count, width]))
            for part, count in zip(heads, (self.heads, groups, groups), strict=True)
        )
        self.new += [self.add("Unsqueeze", part, self.constant([1])) for part in (key, value)]
        query, key, value = (self.add("Gather", part, "grid") for part in (query, key, value))  # B W heads D
        key, value = (self.add("Transpose", part, perm=[0, 2, 1, 3]) for part in (key, value))  # B groups W D
        query = self.add("Reshape", query, self.constant([0, 0, groups, -1, width]))
        if self.heads == groups:
            query = self.add("Concat", query, query, axis=3)
        query = self.add("Transpose", query, perm=[0, 2, 1, 3, 4])  # B groups W each D
        shape = self.add("Shape", query)
        query = self.add("Reshape", query, self.constant([0, groups, -1, width]))
        likenesses = (self.likeness(query, keys) for keys in (f"key_{number}", key))
        shares, total = self.shared(self.add("Concat", *likenesses, axis=-1))  # B groups W*each C+W
        values = self.add("Concat", f"value_{number}", value, axis=2)
        context = self.add("Div", self.add("MatMul", shares, values), total)  # B groups W*each D
        context = self.add("Transpose", self.add("Reshape", context, shape), perm=[0, 2, 1, 3, 4])
        if self.heads == groups:
            context = self.add("Gather", context, self.constant([0]), axis=3)
        context = self.add("Reshape", context, self.constant([-1, self.heads * width]))  # B*W heads*D
        return str(self.add("Gather", context, "cells"))

    def likeness(self, query: str, keys: str) -> str:
        """Of every query and key. A plain product with the keys of one token would add up in another order."""
        return str(self.add("FusedMatMul", query, keys, transB=1, alpha=self.width**-0.5, domain=CONTRIB))

    def shared(self, likenesses: str) -> tuple[str, str]:
        """How much each token takes from each column (softmax), and what that is to be divided by."""
        seen = self.add("Add", likenesses, "blocked")  # B groups W*each C+W
        shares = self.add("Exp", self.add("Sub", seen, self.add("ReduceMax", seen, self.constant([-1]))))
        # In float64 it does not matter in which order so few numbers are added up.
        total = self.add("ReduceSum", self.add("Cast", shares, to=DOUBLE), self.constant([-1]))
        return shares, self.add("Cast", total, to=FLOAT)

    def thought(self, hidden: str, name: str) -> str:
        """The feed-forward part of a layer."""
        (gate, up), by = self.products(hidden, name, GATE_UP)
        gate = self.add("Mul", gate, by)
        opened = self.add("Mul", self.add("Mul", gate, self.add("Sigmoid", gate)), up)
        return self.projected(opened, name, "down_proj", by)

    def normalised(self, hidden: str, name: str) -> str:
        """Root mean square normalisation."""
        mean = self.add("ReduceMean", self.add("Pow", hidden, self.constant(2.0)), self.constant([-1]))
        root = self.add("Sqrt", self.add("Add", mean, self.constant(float(self.config["rms_norm_eps"]))))
        weight = self.constant(self.of[f"{name}.weight"], f"{name}.weight")
        return str(self.add("Mul", self.add("Div", hidden, root), weight))

    def products(self, hidden: str, block: str, parts: Sequence[str], by: str = "") -> tuple[list[str], str]:
        """Some projections of a block, still to be multiplied by the scale of each row, which is the second."""
        self.hear(hidden, _together(block, parts), by)
        rows, by = self.quantised_rows(hidden)
        products = [self.product(rows, *self.numbers(f"{block}.{part}.weight")) for part in parts]
        return products, self.add("Unsqueeze", by, self.constant([1]))

    def projected(self, hidden: str, block: str, part: str, by: str = "") -> str:
        """A projection of a block. If rows have a scale still to be multiplied by, it is enough to do so afterwards."""
        [product], own = self.products(hidden, block, [part], by)
        return str(self.add("Mul", product, self.add("Mul", own, by) if by else own))

    def numbers(self, name: str) -> tuple[str, str]:
        """A weight in int8, `in out`, and the scale of every output."""
        numbers, scale = quantised(self.of[name], LARGEST)
        return self.constant(numbers.T, name + QUANTISED), self.constant(scale, name + SCALE)

    def hear(self, hidden: str, name: str, by: str = "") -> None:
        """Note how large the inputs of a product get, if that is wanted."""
        if self.is_heard:
            sizes = self.add("Abs", self.add("Mul", hidden, by) if by else hidden)
            self.heard[name] = self.add("ReduceMax", sizes, self.constant([0]), keepdims=0), ["inputs"]

    def product(self, rows: str, numbers: str, scale: str) -> str:
        middle, one = self.constant(np.uint8(128), "middle"), self.constant(1.0)
        return str(self.add("MatMulIntegerToFloat", rows, numbers, one, scale, middle, domain=CONTRIB))

    def model_of(self, logits: str, new: str) -> Any:
        """The graph with its inputs and outputs."""
        inputs: dict[str, tuple[int, list[Any]]] = {
            "ids": (INT64, ["tokens"]),
            "places": (INT64, ["tokens"]),
            "grid": (INT64, ["texts", "new"]),
            "cells": (INT64, ["tokens"]),
            "blocked": (FLOAT, ["texts", 1, "queries", "all"]),
            "wanted": (INT64, ["wanted"]),
        }
        for number in range(self.layers):
            for part in ("key", "value"):
                inputs[f"{part}_{number}"] = FLOAT, ["texts", self.groups, "before", self.width]
        held = ["tokens", 2 * self.layers, self.groups, self.width]
        outputs = {"logits": (logits, ["wanted", self.config["vocab_size"]]), "new": (new, held)}
        return self.assembled("writer", inputs, outputs | self.heard, [CONTRIB])
