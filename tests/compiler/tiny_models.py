"""Small models on disk, in every format that weights come in."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

TINY: Mapping[str, object] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 300,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
TINY_QWEN2: Mapping[str, object] = {**TINY, "model_type": "qwen2", "rms_norm_eps": 1e-6}
# A tokenizer.json, for tests that read no text with it.
ONE_TOKEN = '{"version": "1.0", "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}'
_QKV_BIAS = ("qwen2",)  # the values of model_type whose checkpoints have biases of q, k and v
_INTERLEAVED = ("llama",)  # the architectures whose q and k llama.cpp's converter interleaves

GGUF_NAMES: Mapping[str, str] = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def checkpoint(config: Mapping[str, Any] = TINY, *, seed: int = 0) -> dict[str, Array]:
    """Random float32 tensors by Hugging Face names."""
    random = np.random.default_rng(seed)
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head = config.get("head_dim") or hidden // config["num_attention_heads"]
    query, key = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config["vocab_size"], hidden)}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        shapes |= {
            f"{prefix}input_layernorm.weight": (hidden,),
            f"{prefix}self_attn.q_proj.weight": (query, hidden),
            f"{prefix}self_attn.k_proj.weight": (key, hidden),
            f"{prefix}self_attn.v_proj.weight": (key, hidden),
            **_biases(config, {"q": query, "k": key, "v": key}, prefix),
            f"{prefix}self_attn.o_proj.weight": (hidden, query),
            f"{prefix}post_attention_layernorm.weight": (hidden,),
            f"{prefix}mlp.gate_proj.weight": (inner, hidden),
            f"{prefix}mlp.up_proj.weight": (inner, hidden),
            f"{prefix}mlp.down_proj.weight": (hidden, inner),
        }
    shapes["model.norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    return {name: random.standard_normal(shape).astype("float32") for name, shape in shapes.items()}


def _biases(config: Mapping[str, Any], sizes: Mapping[str, int], prefix: str) -> dict[str, tuple[int, ...]]:
    if config["model_type"] not in _QKV_BIAS:
        return {}
    return {f"{prefix}self_attn.{which}_proj.bias": (size,) for which, size in sizes.items()}


def write_config(path: Path, config: Mapping[str, object] = TINY, **changes: object) -> Path:
    path.write_text(json.dumps({**config, **changes}))
    return path


def write_gguf(
    path: Path,
    tensors: Mapping[str, Array],
    config: Mapping[str, Any] = TINY,
    *,
    kind: str = "F32",
    architecture: str = "",
    pre: str = "smollm",
    metadata: Mapping[str, bool | int | float | str | Sequence[object]] | None = None,
    tensors_in_a_part: int = 0,
) -> Path:
    """A GGUF file as llama.cpp's converter makes it: q and k interleaved for a llama, matrices of the quantized type
    `kind`. The architecture is the model's type if none is given; `metadata` is added, and replaces.
    With `tensors_in_a_part` the file is split: `path` is a name that no file has."""
    import gguf

    architecture = architecture or config["model_type"]
    writer = gguf.GGUFWriter(path, architecture, split_max_tensors=tensors_in_a_part)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(10000.0)
    letters = byte_level_letters()
    merged = ["he", "ll", "hell", "hello", "Ġw"]
    tokens = ["<|end|>", *letters, *merged]
    tokens += [f"<unused{number}>" for number in range(config["vocab_size"] - len(tokens))]
    control = gguf.TokenType.CONTROL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([control] + [gguf.TokenType.NORMAL] * (len(tokens) - 1))
    writer.add_token_merges(["h e", "l l", "he ll", "hell o", "Ġ w"])
    writer.add_eos_token_id(0)
    writer.add_chat_template("{% for m in messages %}<|end|>{{ m['content'] }}{% endfor %}")
    for key, value in (metadata or {}).items():
        kinds: dict[type, Callable[..., None]] = {
            bool: writer.add_bool,
            int: writer.add_int32,
            float: writer.add_float32,
            str: writer.add_string,
        }
        writer.kv_data[0].pop(key, None)
        unsigned = type(value) is int and value >= 0 and key.endswith("_token_id")  # as llama.cpp wants it
        (writer.add_uint32 if unsigned else kinds.get(type(value), writer.add_array))(key, value)
    for name, tensor in tensors.items():
        stored = _interleaved(name, tensor, config) if architecture in _INTERLEAVED else tensor
        if kind == "F32" or tensor.ndim == 1:
            writer.add_tensor(gguf_name(name), stored)
        else:
            quantized_type = gguf.GGMLQuantizationType[kind]
            writer.add_tensor(gguf_name(name), gguf.quants.quantize(stored, quantized_type), raw_dtype=quantized_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def byte_level_letters() -> list[str]:
    """The 256 characters of a byte-level vocabulary, by byte."""
    from tokenizers.pre_tokenizers import ByteLevel

    return sorted(ByteLevel.alphabet())


def gguf_name(name: str) -> str:
    if name.startswith("model.layers."):
        _, _, layer, rest = name.split(".", 3)
        module, _, part = rest.rpartition(".")
        return f"blk.{layer}.{GGUF_NAMES[module]}.{part}"
    top = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    module, _, part = name.rpartition(".")
    return f"{top[module]}.{part}"


def _interleaved(name: str, tensor: Array, config: Mapping[str, Any]) -> Array:
    """Row `half * d/2 + pair` of each head goes to row `2 * pair + half`."""
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    count = next((number for part, number in heads.items() if part in name), 0)
    if not count:
        return tensor
    head = tensor.shape[0] // count
    result = np.empty_like(tensor)
    for row in range(tensor.shape[0]):
        index, within = divmod(row, head)
        half, pair = divmod(within, head // 2)
        result[index * head + 2 * pair + half] = tensor[row]
    return result


def write_torch(
    path: Path, tensors: Mapping[str, Array], *, transposed: frozenset[str] = frozenset(), wrapper: str = ""
) -> Path:
    """A checkpoint in torch's zip form, its pickle assembled by hand; `transposed` tensors are stored column first."""
    kinds = {"float32": "FloatStorage", "float16": "HalfStorage", "uint16": "BFloat16Storage"}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        body = io.BytesIO()
        body.write(b"\x80\x02}")
        if wrapper:
            body.write(_text(wrapper) + b"}")
        for number, (name, tensor) in enumerate(tensors.items()):
            stored = tensor.T if name in transposed else tensor
            strides = tuple(size // tensor.itemsize for size in np.ascontiguousarray(stored).strides)
            strides = strides[::-1] if name in transposed else strides
            body.write(_text(name))
            body.write(b"ctorch._utils\n_rebuild_tensor_v2\n(")
            body.write(b"(" + _text("storage") + b"ctorch\n" + kinds[str(tensor.dtype)].encode() + b"\n")
            body.write(_text(str(number)) + _text("cpu") + _integer(tensor.size) + b"tQ")
            body.write(_integer(0) + _integers(tensor.shape) + _integers(strides))
            body.write(b"\x89ccollections\nOrderedDict\n)RtRs")
            archive.writestr(f"model/data/{number}", np.ascontiguousarray(stored).tobytes())
        body.write(b"s." if wrapper else b".")
        archive.writestr("model/data.pkl", body.getvalue())
        archive.writestr("model/byteorder", b"little")
    return path


def _text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def _integer(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def _integers(values: tuple[int, ...]) -> bytes:
    return b"(" + b"".join(_integer(value) for value in values) + b"t"
