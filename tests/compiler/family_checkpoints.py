"""Tensors of one class of transformers, by the names and in the forms of another family's checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.compiler.family_case import Tensors
from tests.compiler.tiny_models import Array


def renamed(**names: str) -> Callable[[Tensors], Tensors]:
    def checkpoint(tensors: Tensors) -> Tensors:
        found = {}
        for name, tensor in tensors.items():
            for old, new in names.items():
                name = name.replace(old, new)
            found[name] = tensor
        return found

    return checkpoint


def internlm2(tensors: Tensors) -> Tensors:
    """Queries, keys and values by key-value heads, and its own names."""
    names = {
        "model.embed_tokens": "model.tok_embeddings",
        "lm_head": "output",
        "input_layernorm": "attention_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.o_proj": "attention.wo",
        "mlp.gate_proj": "feed_forward.w1",
        "mlp.up_proj": "feed_forward.w3",
        "mlp.down_proj": "feed_forward.w2",
    }
    found = dict(renamed(**names)(tensors))
    for layer in range(3):
        prefix = f"model.layers.{layer}"
        q, k, v = (found.pop(f"{prefix}.self_attn.{part}_proj.weight").reshape(2, -1, 16, 64) for part in "qkv")
        found[f"{prefix}.attention.wqkv.weight"] = np.concatenate([q, k, v], axis=1).reshape(-1, 64)
    return found


def packed(name: str, *, by_head: int = 0, **names: str) -> Callable[[Tensors], Tensors]:
    """Queries, keys and values as one tensor of a `name`; by heads of a size, if they are. Then names are changed."""

    def checkpoint(tensors: Tensors) -> Tensors:
        found = dict(tensors)
        for kind in [each for each in tensors if ".self_attn.q_proj." in each]:
            parts = [found.pop(kind.replace("q_proj", f"{part}_proj")) for part in "qkv"]
            if by_head:
                heads = [part.reshape(-1, by_head, *part.shape[1:]) for part in parts]
                packed = np.stack(heads, axis=1).reshape(-1, *parts[0].shape[1:])
            else:
                packed = np.concatenate(parts)
            found[kind.replace("self_attn.q_proj", name)] = packed
        return renamed(**names)(found)

    return checkpoint


def experts_apart(tensors: Tensors) -> Tensors:
    """A matrix for each expert, w1 and w3 for gate and up, of one with both of all."""
    found: dict[str, Array] = {}
    for name, tensor in tensors.items():
        layer, _, part = name.partition(".block_sparse_moe.")
        if not part:
            found[name] = tensor
        elif tensor.ndim == 2:
            found[f"{layer}.mlp.gate.weight"] = tensor
        for number, expert in enumerate(tensor if part and tensor.ndim == 3 else ()):
            own = f"{layer}.mlp.experts.{number}"
            if "gate_up" in part or "input" in part:
                found[f"{own}.w1.weight"], found[f"{own}.w3.weight"] = np.split(expert, 2)
            else:
                found[f"{own}.w2.weight"] = expert
    return found


EXAONE = {
    "self_attn.o_proj": "attn.attention.out_proj",
    "self_attn": "attn.attention",
    "input_layernorm": "ln_1",
    "post_attention_layernorm": "ln_2",
    "mlp.gate_proj": "mlp.c_fc_0",
    "mlp.up_proj": "mlp.c_fc_1",
    "mlp.down_proj": "mlp.c_proj",
    "model.embed_tokens": "transformer.wte",
    "model.layers": "transformer.h",
    "model.norm": "transformer.ln_f",
}
QWEN: dict[str, Any] = {
    "self_attn.o_proj": "attn.c_proj",
    "input_layernorm": "ln_1",
    "post_attention_layernorm": "ln_2",
    "mlp.gate_proj": "mlp.w2",
    "mlp.up_proj": "mlp.w1",
    "mlp.down_proj": "mlp.c_proj",
    "model.embed_tokens": "transformer.wte",
    "model.layers": "transformer.h",
    "model.norm": "transformer.ln_f",
}
CHATGLM: dict[str, Any] = {
    "self_attn.o_proj": "self_attention.dense",
    "mlp.gate_up_proj": "mlp.dense_h_to_4h",
    "mlp.down_proj": "mlp.dense_4h_to_h",
    "model.embed_tokens": "transformer.embedding.word_embeddings",
    "model.layers": "transformer.encoder.layers",
    "model.norm": "transformer.encoder.final_layernorm",
    "lm_head": "transformer.output_layer",
}
PHI: dict[str, Any] = {
    "self_attn.dense": "mixer.out_proj",
    "input_layernorm": "ln",
    "model.embed_tokens": "transformer.embd.wte",
    "model.layers": "transformer.h",
    "lm_head": "lm_head.linear",
    "model.final_layernorm": "lm_head.ln",
}


def mixformer(tensors: Tensors) -> Tensors:
    """Embedding, layers and head by their numbers."""
    found = {}
    for name, tensor in packed("mixer.Wqkv", **PHI)(tensors).items():
        _, _, part = name.partition("transformer.h.")
        number, _, rest = part.partition(".")
        begins = {"transformer.embd": "layers.0", "lm_head": "layers.4"}
        for old, new in begins.items():
            name = new + name.removeprefix(old) if name.startswith(old) else name
        found[f"layers.{int(number) + 1}.{rest}" if rest else name] = tensor
    return found
