"""A Llama as an ONNX graph with keys and values as inputs and outputs, its weights in int8; needs no PyTorch.

Weights are quantised in blocks of 32, and so are activations while they are multiplied (`MatMulNBits` of
onnxruntime): what is lost is less than the 4 bits of the weights have cost already. These products do not depend on
what stands beside them. Attention is in float64, and then rounded: sums over another number of columns are added up
in another order, and of a difference in the last digit of float32 int8 makes up to half a nat. So a text is the same
to the last bit in any batch.
"""

from typing import Any

import numpy as np

from pointer.runtime import Floats
from pointer.runtime.graph import DOUBLE, FLOAT, INT64, GraphBuilder

BLOCK = 32
"""Weights that share a scale."""
CONTRIB = "com.microsoft"
"""The operators that only onnxruntime has."""
MIDDLE = 128
"""What stands for zero among whole numbers without a sign."""
AS_INT8 = 4
"""The accuracy level by which products are computed in int8."""


def llama_graph(weights: dict[str, Floats], config: dict[str, Any]) -> Any:
    """The graph of a `LlamaForCausalLM`.

    Inputs: `ids` and `places` (B W), `blocked` (B 1 1 W C+W, added to the attention), `wanted` (numbers of tokens among
    B W), and for every layer the keys and values so far (B heads C D). Outputs: the logits after the wanted tokens, and
    the new keys and values of all layers (2 layers B heads W D).
    """
    return _Llama(weights, config).made()


class _Llama(GraphBuilder):
    def __init__(self, weights: dict[str, Floats], config: dict[str, Any]) -> None:
        super().__init__(is_int8=True)
        self.of = weights
        self.config = config
        self.size = config["hidden_size"]
        self.heads, self.groups = config["num_attention_heads"], config["num_key_value_heads"]
        self.width = config.get("head_dim") or self.size // self.heads
        self.layers = config["num_hidden_layers"]
        self.new: list[str] = []
        """Keys and values of the present tokens, layer by layer."""

    def made(self) -> Any:
        """The whole model."""
        hidden = self.embedded()  # N H
        self.blocked = self.doubled("blocked")
        cosine, sine = self.turns()
        for number in range(self.layers):
            name = f"model.layers.{number}"
            context = self.attended(self.normalised(hidden, f"{name}.input_layernorm"), number, cosine, sine)
            hidden = self.add("Add", hidden, self.times(context, f"{name}.self_attn.o_proj"))
            hidden = self.add("Add", hidden, self.thought(hidden, f"{name}.mlp", f"{name}.post_attention_layernorm"))
        wanted = self.normalised(self.add("Gather", hidden, "wanted"), "model.norm")
        logits = self.product(wanted, self.embeddings(), self.config["vocab_size"], self.size)
        return self.model_of(logits, self.add("Concat", *self.new, axis=0))

    def embeddings(self) -> tuple[str, str]:
        """The table of embeddings, which is the output layer, too."""
        return self.quantised("model.embed_tokens")

    def embedded(self) -> str:
        numbers, scales = (self.add("Gather", table, "ids") for table in self.embeddings())  # B W blocks (32)
        around = self.add("Sub", self.add("Cast", numbers, to=FLOAT), self.constant(float(MIDDLE)))
        scaled = self.add("Mul", around, self.add("Unsqueeze", scales, self.constant([-1])))
        return str(self.add("Reshape", scaled, self.constant([-1, self.size])))

    def turns(self) -> tuple[str, str]:
        """Cosine and sine of the angles of rotary embeddings, `B W 1 D/2`."""
        theta = (self.config.get("rope_parameters") or self.config)["rope_theta"]
        speeds = (1.0 / theta ** (np.arange(0, self.width, 2) / self.width)).astype(np.float32)
        places = self.add("Unsqueeze", self.add("Cast", "places", to=FLOAT), self.constant([2, 3]))
        angles = self.add("Mul", places, self.constant(speeds, "speeds"))
        return self.add("Cos", angles), self.add("Sin", angles)

    def turned(self, heads: str, cosine: str, sine: str) -> str:
        """Rotary embeddings of `B W heads D`: the two halves of a head turn together."""
        one, other = self.add("Split", heads, outputs=2, axis=-1, num_outputs=2)
        first = self.add("Sub", self.add("Mul", one, cosine), self.add("Mul", other, sine))
        second = self.add("Add", self.add("Mul", other, cosine), self.add("Mul", one, sine))
        return str(self.add("Concat", first, second, axis=-1))

    def attended(self, hidden: str, number: int, cosine: str, sine: str) -> str:
        """Self-attention up to its output layer, `N heads*D`. What came before is not copied: its shares are added."""
        name, groups, width = f"model.layers.{number}.self_attn", self.groups, self.width
        each = self.heads // groups
        query = self.turned(self.by_head(hidden, f"{name}.q_proj", self.heads), cosine, sine)
        key = self.turned(self.by_head(hidden, f"{name}.k_proj", groups), cosine, sine)
        value = self.by_head(hidden, f"{name}.v_proj", groups)
        key, value = (self.add("Transpose", part, perm=[0, 2, 1, 3]) for part in (key, value))  # B groups W D
        self.new += [self.add("Unsqueeze", part, self.constant([0])) for part in (key, value)]
        query = self.add("Mul", query, self.constant(width**-0.5))
        query = self.add("Reshape", query, self.constant([0, 0, groups, each, width]))
        query = self.add("Transpose", query, perm=[0, 2, 3, 1, 4])  # B groups each W D
        shape = self.add("Shape", query)
        query = self.doubled(self.add("Reshape", query, self.constant([0, groups, -1, width])))
        before, now = (
            self.add("MatMul", query, self.doubled(self.add("Transpose", keys, perm=[0, 1, 3, 2])))
            for keys in (f"key_{number}", key)
        )
        products = self.add("Concat", before, now, axis=-1)  # B groups each*W C+W
        lead = self.add("Slice", shape, self.constant([0]), self.constant([4]))
        split = self.add("Reshape", products, self.add("Concat", lead, self.constant([-1]), axis=0))
        shares = self.add("Softmax", self.add("Add", split, self.blocked), axis=-1)
        shares = self.add("Reshape", shares, self.add("Shape", products))
        past = self.add("Shape", f"key_{number}", start=2, end=3)
        sizes = self.add("Concat", past, self.add("Shape", "ids", start=1, end=2), axis=0)
        of_before, of_now = self.add("Split", shares, sizes, outputs=2, axis=-1)
        parts = ((of_before, f"value_{number}"), (of_now, value))
        context = self.add("Add", *(self.add("MatMul", share, self.doubled(values)) for share, values in parts))
        context = self.add("Cast", context, to=FLOAT)  # B groups each*W D
        context = self.add("Transpose", self.add("Reshape", context, shape), perm=[0, 3, 1, 2, 4])
        return str(self.add("Reshape", context, self.constant([-1, self.heads * width])))

    def doubled(self, values: str) -> str:
        """In float64."""
        return str(self.add("Cast", values, to=DOUBLE))

    def by_head(self, hidden: str, name: str, heads: int) -> str:
        """A projection as `B W heads D`."""
        shape = self.add("Concat", self.add("Shape", "ids"), self.constant([heads, self.width]), axis=0)
        return str(self.add("Reshape", self.times(hidden, name), shape))

    def thought(self, hidden: str, name: str, norm: str) -> str:
        """The feed-forward part of a layer."""
        hidden = self.normalised(hidden, norm)
        gate = self.times(hidden, f"{name}.gate_proj")
        opened = self.add("Mul", gate, self.add("Sigmoid", gate))
        return self.times(self.add("Mul", opened, self.times(hidden, f"{name}.up_proj")), f"{name}.down_proj")

    def normalised(self, hidden: str, name: str) -> str:
        """Root mean square normalisation."""
        mean = self.add("ReduceMean", self.add("Pow", hidden, self.constant(2.0)), self.constant([-1]))
        root = self.add("Sqrt", self.add("Add", mean, self.constant(float(self.config["rms_norm_eps"]))))
        weight = self.constant(self.of[f"{name}.weight"], f"{name}.weight")
        return str(self.add("Mul", self.add("Div", hidden, root), weight))

    def times(self, hidden: str, name: str) -> str:  # type: ignore[override]
        """`hidden @ weight.T`."""
        out, size = self.of[f"{name}.weight"].shape
        return self.product(hidden, self.quantised(name), out, size)

    def product(self, hidden: str, weight: tuple[str, str], out: int, size: int) -> str:
        """`hidden @ weight.T` with quantised weights."""
        about = {"K": size, "N": out, "bits": 8, "block_size": BLOCK, "accuracy_level": AS_INT8}
        return str(self.add("MatMulNBits", hidden, *weight, domain=CONTRIB, **about))

    def quantised(self, name: str) -> tuple[str, str]:
        """The weights as whole numbers (`out blocks 32`) and the scales of the blocks (`out blocks`)."""
        names = f"{name}.weight.uint8", f"{name}.weight.scale"
        if names[0] not in self.weights:
            numbers, scales = in_blocks(self.of[f"{name}.weight"])
            self.constant(numbers, names[0])
            self.constant(scales, names[1])
        return names

    def model_of(self, logits: str, new: str) -> Any:
        """The graph with its inputs and outputs."""
        inputs: dict[str, tuple[int, list[Any]]] = {
            "ids": (INT64, ["texts", "tokens"]),
            "places": (INT64, ["texts", "tokens"]),
            "blocked": (FLOAT, ["texts", 1, 1, "tokens", "all"]),
            "wanted": (INT64, ["wanted"]),
        }
        for number in range(self.layers):
            for part in ("key", "value"):
                inputs[f"{part}_{number}"] = FLOAT, ["texts", self.groups, "before", self.width]
        held = [2 * self.layers, "texts", self.groups, "tokens", self.width]
        outputs = {"logits": (logits, ["wanted", self.config["vocab_size"]]), "new": (new, held)}
        return self.assembled("writer", inputs, outputs, [CONTRIB])


def in_blocks(weight: Floats) -> tuple["np.ndarray[Any, np.dtype[np.uint8]]", Floats]:
    """Weights, `out in`, as whole numbers from 1 to 255 around 128, and the scale of every block."""
    out, size = weight.shape
    blocks = weight.reshape(out, size // BLOCK, BLOCK)
    scale = np.maximum(np.abs(blocks).max(-1), np.float32(1e-12)) / np.float32(127)
    return (np.round(blocks / scale[..., None]) + MIDDLE).astype(np.uint8), scale
