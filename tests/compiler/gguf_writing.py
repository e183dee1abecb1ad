"""The file of a case: random numbers by the names and in the shapes that a family reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mlcbuild.compiler.models.checkpoints.parameters import JoinedLayout, TensorLayout
from tests.compiler.gguf_case import (
    LAYER_NORM,
    GGUFCase,
)
from tests.compiler.llama_cpp import dequantized, quantized
from tests.compiler.resolving import model_of, parameters_of
from tests.compiler.tiny_models import Array, byte_level_letters


def file_of(path: Path, case: GGUFCase, *, seed: int = 0, chat_template: str = "", restored: bool = False) -> Path:
    """The file of a case, with random numbers; `restored`: with those that its blocks stand for, in float32."""
    import gguf

    writer = gguf.GGUFWriter(path, case.architecture)
    kinds = {
        bool: writer.add_bool,
        int: writer.add_uint32,
        float: writer.add_float32,
        str: writer.add_string,
        list: writer.add_array,
    }
    for key, value in {**_shared_metadata(case), **case.metadata}.items():
        if value is not None:
            kinds[type(value)](f"{case.architecture}.{key}", value)
    letters = ["<pad>", "<s>", "</s>", *byte_level_letters(), "ab"]
    tokens = letters + [f"<unused{number}>" for number in range(case.config["vocab_size"] - len(letters))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * (len(tokens) - 3))
    writer.add_token_merges(["a b"])
    for number, add in enumerate((writer.add_pad_token_id, writer.add_bos_token_id, writer.add_eos_token_id)):
        add(number)
    if chat_template:
        writer.add_chat_template(chat_template)
    random = np.random.default_rng(seed)
    gates: dict[str, Array] = {}
    for layout in _layouts(case):
        numbers = _numbers(case, layout, random)
        if case.fused_experts and "ffn_gate_exps" in layout.name:
            gates[layout.name] = numbers
        elif case.fused_experts and "ffn_up_exps" in layout.name:
            gate = gates.pop(layout.name.replace("ffn_up", "ffn_gate"))
            writer.add_tensor(layout.name.replace("ffn_up", "ffn_gate_up"), np.concatenate([gate, numbers], axis=1))
        elif case.kind == "F32" or numbers.ndim == 1 or not re.fullmatch(case.stored_so, layout.name):
            writer.add_tensor(layout.name, numbers)
        else:
            own = (kind for pattern, kind in case.others.items() if re.fullmatch(pattern, layout.name))
            kind = gguf.GGMLQuantizationType[next(own, case.kind)]
            elements, size = gguf.GGML_QUANT_SIZES[kind]
            stored = quantized(numbers, kind.value, block_elements=elements, block_bytes=size)
            if restored:
                meant = dequantized(kind.name.lower().replace("_k", "_K"), stored.tobytes(), numbers.size)
                writer.add_tensor(layout.name, meant.reshape(numbers.shape))
            else:
                writer.add_tensor(layout.name, stored, raw_dtype=kind)
    for name, numbers in case.tensors.items():
        writer.add_tensor(name, numbers)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _shared_metadata(case: GGUFCase) -> dict[str, Any]:
    configuration: Any = model_of(case.config).configuration
    if "attention" not in configuration:
        return {
            "block_count": configuration["num_layers"],
            "context_length": 1 << 20,
            "embedding_length": configuration["hidden_size"],
            "feed_forward_length": 0,
            "attention.head_count": 0,
            "attention.layer_norm_rms_epsilon": configuration["norm"]["epsilon"],
        }
    attention, feed_forward = configuration["attention"], configuration["feed_forward"]
    epsilon = (
        {}
        if LAYER_NORM.keys() <= case.metadata.keys()
        else {"attention.layer_norm_rms_epsilon": configuration["norm"]["epsilon"]}
    )
    return {
        "block_count": configuration["num_layers"],
        "context_length": 512,
        "embedding_length": configuration["hidden_size"],
        "feed_forward_length": case.config.get("intermediate_size", feed_forward["intermediate_size"]),
        "attention.head_count": attention["query_heads"],
        "attention.head_count_kv": attention["key_value_heads"],
        "attention.key_length": attention["head_dim"],
        "attention.value_length": attention["head_dim"],
        "rope.dimension_count": attention["head_dim"],
        "rope.freq_base": 10000.0,
        **epsilon,
    }


def _layouts(case: GGUFCase) -> Iterator[TensorLayout]:
    """The tensors of the file, each once."""
    seen = set()
    for parameter in parameters_of(case.config).parameters:
        for source in parameter.sources:
            assert source.gguf is not None, source.name
            for layout in source.gguf.tensors if isinstance(source.gguf, JoinedLayout) else (source.gguf,):
                if layout.name not in seen:
                    seen.add(layout.name)
                    yield layout


def _numbers(case: GGUFCase, layout: TensorLayout, random: np.random.Generator) -> Array:
    numbers = random.standard_normal(layout.shape).astype(np.float32)
    if "norm" in layout.name and layout.name.endswith(".weight"):
        made: Array = 1 + numbers / 10
        return made.astype(np.float16).astype(np.float32) if case.half_norms else made
    if layout.name.endswith(".bias"):
        return numbers / 10
    if layout.name.endswith(".ssm_a"):
        return -np.exp(numbers)
    return numbers if len(layout.shape) == 1 else numbers / np.float32(layout.shape[-1] ** 0.5)
