"""GGUF files that packages are written as: llama.cpp loads them, they say what its converter's files say, and their
tensors are the package's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.weights.gguf_file import GGUFFile
from mlcbuild.compiler.weights.gguf_weights import GGUFWeights
from mlcbuild.compiler.weights.operations import carry_out
from tests.compiler import schemes
from tests.compiler.gguf_case import GGUFCase
from tests.compiler.gguf_cases import CASES
from tests.compiler.gguf_parity import read_file
from tests.compiler.gguf_writing import file_of
from tests.compiler.llama_cpp import LlamaCppModel
from tests.compiler.packaged import byte_level_tokenizer, gguf_of, write_tokenizer, write_weights
from tests.compiler.resolving import parameters_of
from tests.compiler.tiny_models import Array

SPECIAL = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
_PREDICTING = "qwen3_5-predicting"  # Its file has a layer that no package has.
_NOT_WRITTEN = ("phimoe", _PREDICTING, "qwen3_5_moe-fused")
_WRITTEN = {name: case for name, case in CASES.items() if name not in _NOT_WRITTEN and case.kind == "F32"}
# Keys of the converter without which llama.cpp computes the same, and those that say what it does without them.
_NOTES = {
    "phi3": {"attention.sliding_window", "rope.scaling.original_context_length"},
    "baichuan": {"rope.dimension_count", "rope.freq_base"},
    "granitemoe": {"embedding_scale"},
    "qwen35moe": {"feed_forward_length"},
    "granitehybrid": {"rope.dimension_count", "rope.freq_base"},
    "gpt2": {"rope.dimension_count", "rope.freq_base"},
    "starcoder": {"rope.dimension_count", "rope.freq_base"},
    "cohere2": {"rope.scaling.type"},
    "deepseek2": {"expert_weights_norm", "expert_group_count", "expert_group_used_count"},
    "minicpm3": {"rope.scaling.attn_factor", "rope.scaling.original_context_length", "rope.scaling.type"},
}
TEXT = np.random.default_rng(7).integers(3, 300, 24).tolist()
# llama.cpp multiplies quantized matrices by activations that it quantizes to 8 bits.
_QUANTIZED = 5e-2
ROUNDED_APART = ("mamba2", "granitemoehybrid", "granitemoehybrid-dense", "qwen3_next", "qwen3_5", "qwen3_5_moe")
"""Recurrent states add up what that changes: test_gguf_rounding.py compares these with a model that rounds alike."""
_IN_CI = {
    *((name, "q4f16_1") for name in ("llama", "gemma", "gpt2", "internlm2", "mixtral", "deepseek_v3", "mamba2")),
    *(("qwen2", name) for name in ("q4f16_0", "q8f16_1")),
}


def packaged(directory: Path, config: Mapping[str, Any], tensors: Mapping[str, Array], name: str) -> Path:
    """The file of a checkpoint's tensors, quantized."""
    write_weights(directory, config, tensors, name)
    tokenizer = write_tokenizer(directory / "tokenizer", byte_level_tokenizer(config["vocab_size"]), **SPECIAL)
    return gguf_of(directory, tokenizer, name)


def opened(path: Path) -> tuple[dict[str, object], dict[str, bytes]]:
    """Metadata, and tensors as they are stored."""
    file = GGUFFile(path)
    try:
        stored = {name: file.stored(tensor) for name, tensor in file.tensors.items()}
        return dict(file.metadata), stored
    finally:
        file.close()


def logits(path: Path, *, context: int = 256) -> Array:
    model = LlamaCppModel(path)
    try:
        return model.logits(TEXT, context=context)
    finally:
        model.close()


@pytest.mark.parametrize("name", _WRITTEN)
def test_a_file_says_what_the_converters_file_says(name: str, tmp_path: Path) -> None:
    case = _WRITTEN[name]
    metadata, tensors = opened(file_of(tmp_path / "converted.gguf", case))
    own = packaged(tmp_path / "own", case.config, read_file(tmp_path / "converted.gguf").tensors, "q0f32")
    own_metadata, own_tensors = opened(own)
    assert own_tensors.keys() == tensors.keys()
    other = [one for one, stored in tensors.items() if own_tensors[one] != stored]
    for one in other:
        assert one.endswith(".ssm_a")  # -exp(A_log), of a logarithm that was rounded
        numbers, wanted = (np.frombuffer(each[one], np.float32) for each in (own_tensors, tensors))
        assert np.allclose(numbers, wanted, rtol=1e-6)
    assert _told(case, own_metadata) == _told(case, metadata)
    expected = logits(tmp_path / "converted.gguf", context=case.context)
    assert np.abs(logits(own, context=case.context) - expected).max() <= (1e-4 if other else 0.0)


def test_layers_that_predict_further_tokens_are_left_out(tmp_path: Path) -> None:
    case = CASES[_PREDICTING]
    path = file_of(tmp_path / "converted.gguf", case)
    own = packaged(tmp_path / "own", case.config, read_file(path).tensors, "q0f32")
    metadata, tensors = opened(own)
    assert tensors.keys() == opened(path)[1].keys() - case.tensors.keys()
    assert metadata["qwen35.block_count"] == 4
    assert metadata["qwen35.attention.recurrent_layers"] == [True, False, True, True]
    assert np.abs(logits(own) - logits(path)).max() <= 1e-4


def test_a_granite_4_without_recurrent_layers_is_written_as_an_older_granite(tmp_path: Path) -> None:
    case = CASES["granite"]
    older = read_file(file_of(tmp_path / "converted.gguf", case)).tensors
    config = {**case.config, "model_type": "granitemoehybrid", "position_embedding_type": "rope"}
    config |= {"layer_types": ["attention"] * case.config["num_hidden_layers"], "num_local_experts": 0}
    config["shared_intermediate_size"] = case.config["intermediate_size"]
    tensors = {name: older[name] for name in older if ".mlp." not in name}
    for number in range(case.config["num_hidden_layers"]):
        layer = f"model.layers.{number}"
        halves = [older[f"{layer}.mlp.{name}_proj.weight"] for name in ("gate", "up")]
        tensors[f"{layer}.shared_mlp.input_linear.weight"] = np.concatenate(halves)
        tensors[f"{layer}.shared_mlp.output_linear.weight"] = older[f"{layer}.mlp.down_proj.weight"]
    found = opened(packaged(tmp_path / "own", config, tensors, "q0f32"))
    assert found == opened(packaged(tmp_path / "older", case.config, older, "q0f32"))


def _told(case: GGUFCase, metadata: Mapping[str, object]) -> dict[str, object]:
    """What is said of the model and of its vocabulary."""
    notes = {f"{case.architecture}.{key}" for key in (*_NOTES.get(case.architecture, ()), "vocab_size")}
    notes |= {"general.type", "general.quantization_version", "general.file_type"}
    notes |= {"tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token", "tokenizer.ggml.token_type"}
    return {
        key: pytest.approx(value, rel=1e-6) if isinstance(value, float) else value
        for key, value in metadata.items()
        if key not in notes
    }


@pytest.mark.parametrize(
    ("name", "quantization"),
    [
        pytest.param(name, quantization, marks=() if (name, quantization) in _IN_CI else pytest.mark.exhaustive)
        for quantization in ("q4f16_0", "q4f16_1", "q8f16_1")
        for name in _WRITTEN
        if name != "minicpm3"  # its matrices have columns that are no whole groups
    ],
)
def test_quantized_matrices_are_repacked(name: str, quantization: str, tmp_path: Path) -> None:
    case = _WRITTEN[name]
    if case.architecture == "gpt-oss":  # test_gguf_rounding.py shows what comes of it where experts are chosen
        case = replace(case, config={**case.config, "num_experts_per_tok": case.config["num_local_experts"]})
    read = read_file(file_of(tmp_path / "converted.gguf", case))
    quantized = packaged(tmp_path / "own", case.config, read.tensors, quantization)
    found = read_file(quantized).tensors
    _check_parameters(case, found, read.tensors, quantization)
    if name in ROUNDED_APART:
        LlamaCppModel(quantized).close()
        return
    plain = packaged(tmp_path / "plain", case.config, found, "q0f32")
    expected = logits(plain, context=case.context)
    difference = np.linalg.norm(logits(quantized, context=case.context) - expected, axis=1)
    # Of a token for which rounded activations choose other experts, nothing can be said.
    assert np.median(difference / np.linalg.norm(expected, axis=1)) <= _QUANTIZED


def _check_parameters(
    case: GGUFCase, found: Mapping[str, Array], tensors: Mapping[str, Array], quantization: str
) -> None:
    """The model's parameters, made of what a file has, are those that the package's stand for."""
    scheme = schemes.scheme(quantization)
    stored = schemes.stored(case.config, scheme, tensors)
    for parameter in parameters_of(case.config).parameters:
        if parameter.role is ParameterRole.ABSORBED:
            continue  # halves of a matrix that is quantized as a whole, which a file has
        numbers = [stored[tensor.name] for tensor in scheme.stored(parameter)]
        expected = schemes.encoder(scheme).decode(parameter, numbers).astype(np.float32)
        made = carry_out(parameter.operations, [found[source.name] for source in parameter.sources])
        # Blocks are restored in float32, and by kernels in float16. 1 + w of norms is rounded once more.
        assert np.abs(made - expected).max() <= np.abs(expected).max() * 2**-10, parameter.name


def test_integers_and_scales_are_the_schemes(tmp_path: Path) -> None:
    """Bit for bit: a matrix of every integer, with scales that float16 has."""
    case = CASES["qwen2"]
    read = read_file(file_of(tmp_path / "converted.gguf", case))
    path = packaged(tmp_path / "own", case.config, read.tensors, "q4f16_1")
    scheme = schemes.scheme("q4f16_1")
    stored = schemes.stored(case.config, scheme, read.tensors)
    words, scales = (stored[f"model.layers.0.mlp.down_proj.q_{part}"] for part in ("weight", "scale"))
    nibbles = (words[:, :, None] >> (4 * np.arange(8, dtype=np.uint32))) & 15
    integers = nibbles.reshape(scales.shape[0], -1).astype(np.float32) - 7
    weights = GGUFWeights(path)
    found = weights.read("blk.0.ffn_down.weight").data
    weights.close()
    assert np.array_equal(found, integers * np.repeat(scales.astype(np.float32), 32, axis=1))


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    case = CASES["llama"]
    read = read_file(file_of(tmp_path / "converted.gguf", case))
    first = packaged(tmp_path / "first", case.config, read.tensors, "q4f16_1")
    assert first.read_bytes() == packaged(tmp_path / "second", case.config, read.tensors, "q4f16_1").read_bytes()
