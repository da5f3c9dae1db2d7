"""A Llama in llama.cpp's format (GGUF), written as a Transformers folder; needs no PyTorch.

llama.cpp has other names for the weights, and in each head of queries and keys another order of rows: the two that
rotate together stand side by side there, and half a head apart in Transformers.
"""

import json
import re
from pathlib import Path
from typing import Any

NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
CONTROL = 3
"""The type of tokens that are no text."""


def unpack(path: Path, folder: Path) -> None:
    """Write weights in float16, config and tokenizer of a GGUF to a folder that Transformers opens.

    Float16 rounds the 4-bit weights by less than 0.05 %, moves no prediction, and halves the file.
    """
    import numpy as np
    from gguf import GGUFReader, dequantize
    from safetensors.numpy import save_file

    reader = GGUFReader(path)
    about = {name: field.contents() for name, field in reader.fields.items()}
    heads = {"attn_q": about["llama.attention.head_count"], "attn_k": about["llama.attention.head_count_kv"]}
    weights: dict[str, Any] = {}
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).reshape(tensor.shape[::-1])
        layer, part = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.weight", tensor.name).groups()  # type: ignore[union-attr]
        if part in heads:
            count, rows = heads[part], len(values) // heads[part]
            values = values.reshape(count, rows // 2, 2, -1).swapaxes(1, 2).reshape(values.shape)
        name = NAMES[part] if layer is None else f"model.layers.{layer}.{NAMES[part]}"
        weights[f"{name}.weight"] = np.ascontiguousarray(values, np.float16)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(_config(about), indent=2, sort_keys=True) + "\n", "utf-8")
    _tokenizer(about).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(_tokenizer_config(about), indent=2) + "\n", "utf-8")
    if template := about.get("tokenizer.chat_template"):
        (folder / "chat_template.jinja").write_text(template, "utf-8")


def _config(about: dict[str, Any]) -> dict[str, Any]:
    """What Transformers wants to know of the model."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "bos_token_id": about["tokenizer.ggml.bos_token_id"],
        "dtype": "float16",
        "eos_token_id": about["tokenizer.ggml.eos_token_id"],
        "head_dim": about["llama.rope.dimension_count"],
        "hidden_act": "silu",
        "hidden_size": about["llama.embedding_length"],
        "intermediate_size": about["llama.feed_forward_length"],
        "max_position_embeddings": about["llama.context_length"],
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": about["llama.attention.head_count"],
        "num_hidden_layers": about["llama.block_count"],
        "num_key_value_heads": about["llama.attention.head_count_kv"],
        "pad_token_id": about.get("tokenizer.ggml.padding_token_id"),
        "rms_norm_eps": about["llama.attention.layer_norm_rms_epsilon"],
        "rope_parameters": {"rope_theta": about["llama.rope.freq_base"], "rope_type": "default"},
        "tie_word_embeddings": True,
        "vocab_size": len(about["tokenizer.ggml.tokens"]),
    }


def _tokenizer(about: dict[str, Any]) -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens, kinds = about["tokenizer.ggml.tokens"], about["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in about["tokenizer.ggml.merges"]]
    model = models.BPE({token: i for i, token in enumerate(tokens)}, merges)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    return tokenizer


def _tokenizer_config(about: dict[str, Any]) -> dict[str, Any]:
    tokens = about["tokenizer.ggml.tokens"]
    names = {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown"}
    ids = {name: about.get(f"tokenizer.ggml.{stored}_token_id") for name, stored in names.items()}
    found = {f"{name}_token": tokens[i] for name, i in ids.items() if i is not None}
    return {"tokenizer_class": "PreTrainedTokenizerFast"} | found
