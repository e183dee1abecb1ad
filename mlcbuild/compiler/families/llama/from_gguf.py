"""A Hugging Face `config.json` from the metadata of a GGUF file of the architecture `llama`."""

from __future__ import annotations

import math

import numpy as np

from mlcbuild.compiler.weights.gguf_file import GGUFFile
from mlcbuild.compiler.weights.gguf_weights import ROPE_FACTORS, dequantized
from mlcbuild.errors import StageError

# Llama 3.1's constants; a file holds only the factors that follow from them.
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def config_document(file: GGUFFile) -> dict[str, object]:
    """The fields of `config.json`. Raises StageError for what the family cannot say, such as experts."""
    architecture = file.string("general.architecture")
    if architecture != "llama":
        raise StageError(f'{file.path.name} holds a model of the architecture "{architecture}"; "llama" is read')
    if file.integer("llama.expert_count", 0) > 0:
        raise StageError(f"{file.path.name} holds a mixture of experts, which is not supported")
    heads = file.integer("llama.attention.head_count")
    hidden = file.integer("llama.embedding_length")
    if heads < 1:
        raise StageError(f'{file.path.name}: the metadata "llama.attention.head_count" is {heads}')
    head_dim = file.integer("llama.attention.key_length", hidden // heads)
    rotated = file.integer("llama.rope.dimension_count", head_dim)
    if rotated != head_dim:
        raise StageError(
            f"{file.path.name} rotates {rotated} of {head_dim} elements of a head; this family rotates all"
        )
    theta = _decimal(file.number("llama.rope.freq_base", 10000.0))
    document: dict[str, object] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": file.integer("llama.feed_forward_length"),
        "num_hidden_layers": file.integer("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": file.integer("llama.attention.head_count_kv", heads),
        "head_dim": head_dim,
        "vocab_size": _vocabulary_size(file),
        "max_position_embeddings": file.integer("llama.context_length"),
        "rms_norm_eps": _decimal(file.number("llama.attention.layer_norm_rms_epsilon")),
        "rope_theta": theta,
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "mlp_bias": "blk.0.ffn_gate.bias" in file.tensors,
        "tie_word_embeddings": "output.weight" not in file.tensors,
    }
    scaling = _rope_scaling(file, theta=theta, head_dim=head_dim)
    if scaling is not None:
        document["rope_scaling"] = scaling
    for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        if f"tokenizer.ggml.{key}_token_id" in file.metadata:
            document[f"{name}_token_id"] = file.integer(f"tokenizer.ggml.{key}_token_id")
    return document


def _vocabulary_size(file: GGUFFile) -> int:
    """The embedding's rows: the metadata may leave the number out, and may count without padding."""
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise StageError(f"{file.path.name} lacks the tensor token_embd.weight")
    return embedding.shape[0]


def _decimal(number: float) -> float:
    """The shortest decimal that rounds to the same float32: 1e-05, where the file's bits say
    9.99999974e-06."""
    return float(str(np.float32(number)))


def _rope_scaling(file: GGUFFile, *, theta: float, head_dim: int) -> dict[str, object] | None:
    kind = file.string("llama.rope.scaling.type", "none")
    if ROPE_FACTORS in file.tensors:
        return _llama3_scaling(file, theta=theta, head_dim=head_dim)
    if kind == "linear":
        return {"rope_type": "linear", "factor": _decimal(file.number("llama.rope.scaling.factor"))}
    if kind == "none":
        return None
    raise StageError(f'{file.path.name}: RoPE scaling of the type "{kind}" is not supported')


def _llama3_scaling(file: GGUFFile, *, theta: float, head_dim: int) -> dict[str, object]:
    """The rule whose factors, one for each rotated pair, are those in the file."""
    factors = dequantized(file, file.tensors[ROPE_FACTORS]).reshape(-1)
    factor = _decimal(float(factors.max()))
    low, high, original = 1.0, 4.0, 8192
    expected = []
    for pair in range(head_dim // 2):
        wavelength = 2 * math.pi * theta ** (2 * pair / head_dim)
        if wavelength < original / high:
            expected.append(1.0)
        elif wavelength > original / low:
            expected.append(factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            expected.append(1 / ((1 - smooth) / factor + smooth))
    if factors.shape != (head_dim // 2,) or not np.allclose(factors, expected, rtol=1e-4):
        raise StageError(
            f"{file.path.name}: the factors in {ROPE_FACTORS} are not those of Llama 3.1's rule, "
            "the only one that is read"
        )
    return {"rope_type": "llama3", "factor": factor, **_LLAMA3}
