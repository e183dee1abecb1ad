"""Families with experts: logits against transformers, and fields of config.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import pytest

from mlcbuild.compiler.models.gguf.architecture import gguf_architecture
from mlcbuild.compiler.stages import import_weights
from mlcbuild.compiler.weights.gguf_file import GGUFFile
from mlcbuild.compiler.weights.safetensors_file import SafetensorsFile, write_safetensors
from mlcbuild.compiler.weights.tensor import Tensor, TensorDescription
from mlcbuild.errors import StageError
from mlcbuild.rules.families import families
from tests.compiler import schemes
from tests.compiler.checkpoint_layouts import checkpoint_layouts
from tests.compiler.parity import check_logits
from tests.compiler.pipeline import CUDA_TARGET, compile_library
from tests.compiler.resolving import model_of, parameters_of, readers, write_resolved
from tests.compiler.running import random_model
from tests.compiler.tiny_models import Array

_BASE: dict[str, object] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "num_experts_per_tok": 2,
}
MODELS: dict[str, dict[str, object]] = {
    "mixtral": _BASE | {"model_type": "mixtral", "num_local_experts": 4, "sliding_window": None},
    "qwen2_moe": _BASE
    | {
        "model_type": "qwen2_moe",
        "num_experts": 6,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 64,
    },
    "qwen3_moe": _BASE
    | {
        "model_type": "qwen3_moe",
        "head_dim": 32,
        "num_experts": 6,
        "moe_intermediate_size": 32,
        "norm_topk_prob": True,
        "mlp_only_layers": [0],
        "num_hidden_layers": 3,
    },
    "olmoe": _BASE | {"model_type": "olmoe", "num_experts": 6, "num_key_value_heads": 4},
    "granitemoe": _BASE
    | {
        "model_type": "granitemoe",
        "num_local_experts": 4,
        "attention_multiplier": 0.2,
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.5,
        "logits_scaling": 2.0,
    },
    "deepseek": _BASE
    | {
        "model_type": "deepseek",
        "n_routed_experts": 6,
        "n_shared_experts": 2,
        "moe_intermediate_size": 32,
        "first_k_dense_replace": 1,
        "num_hidden_layers": 3,
    },
    "phimoe": _BASE
    | {"model_type": "phimoe", "num_local_experts": 4, "attention_bias": True, "lm_head_bias": True}
    | {"router_jitter_noise": 0.3},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "quantization"),
    [
        ("qwen2_moe", "q4f32_1"),
        *(
            pytest.param(name, quantization, marks=pytest.mark.exhaustive)
            for name, quantization in [
                ("mixtral", "q0f32"),
                ("mixtral", "q4f32_1"),
                ("mixtral", "q0f16"),
                ("mixtral", "q3f16_0"),
                ("mixtral", "q8f32_1"),
                ("qwen2_moe", "q3f16_1"),
                ("qwen2_moe", "q4f16_2"),
                ("qwen2_moe", "q0f32"),
                ("qwen3_moe", "q0f32"),
                ("olmoe", "q0f32"),
                ("granitemoe", "q0f32"),
                ("phimoe", "q0f32"),
            ]
        ),
    ],
)
def test_logits_equal_those_of_transformers(name: str, quantization: str, tmp_path: Path, kernel_store: Path) -> None:
    difference = check_logits(MODELS[name], quantization, tmp_path, kernel_store=kernel_store)
    assert quantization != "q0f32" or difference < 1e-4


@pytest.mark.slow
@pytest.mark.exhaustive
def test_deepseek_computes_what_a_qwen2_moe_does_whose_shared_expert_is_not_gated(
    tmp_path: Path, kernel_store: Path
) -> None:
    """transformers has no class of the first DeepSeek with experts. A gate of zero halves what the shared expert makes,
    and twice its last matrix makes up for that."""
    import torch

    config = MODELS["deepseek"]
    sizes = {name: config[name] for name in (*_BASE, "moe_intermediate_size", "num_hidden_layers") if name in config}
    model = random_model(
        sizes
        | {"model_type": "qwen2_moe", "num_experts": 6, "shared_expert_intermediate_size": 64, "mlp_only_layers": [0]}
        | {"qkv_bias": False}
    )
    tensors = {name: tensor.detach().numpy().copy() for name, tensor in model.named_parameters()}
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if name.endswith("shared_expert_gate.weight"):
                tensor.zero_()
            if name.endswith("shared_expert.down_proj.weight"):
                tensor.mul_(2)
    own = {name.replace(".shared_expert.", ".shared_experts."): tensor for name, tensor in tensors.items()}
    weights = schemes.stored(config, schemes.scheme("q0f32"), own)
    difference = check_logits(config, "q0f32", tmp_path, kernel_store=kernel_store, known=(model, weights))
    assert difference < 1e-4


@pytest.mark.exhaustive
def test_a_library_for_gpus_builds(tmp_path: Path) -> None:
    target = {**CUDA_TARGET, "arch": "sm_90a"}
    assert compile_library(MODELS["qwen2_moe"] | {"hidden_size": 128}, "q4f16_1", target, tmp_path).is_file()
    kernels = json.loads((tmp_path / "manifest.json").read_text())
    assert "expert_matmul" in json.dumps(kernels)


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("mixtral", {}, ["moe.gate.weight", "moe.e1_e3.weight", "moe.e2.weight"]),
        (
            "qwen2_moe",
            {},
            [
                *("mlp.gate.weight", "mlp.moe_gate_up_proj.weight", "mlp.moe_down_proj.weight"),
                *("mlp.shared_expert.gate_up_proj.weight", "mlp.shared_expert.down_proj.weight"),
                "mlp.shared_expert_gate.weight",
            ],
        ),
        (
            "qwen3_moe",
            {"mlp_only_layers": [1]},
            ["mlp.gate.weight", "mlp.moe_gate_up_proj.weight", "mlp.moe_down_proj.weight"],
        ),
        ("qwen3_moe", {}, ["mlp.gate_up_proj.weight", "mlp.down_proj.weight"]),
    ],
)
def test_parameters_have_mlcs_names(name: str, changes: dict[str, object], expected: list[str]) -> None:
    names = [parameter.name for parameter in parameters_of(MODELS[name] | changes).parameters]
    first = [each.removeprefix("model.layers.0.") for each in names if each.startswith("model.layers.0.")]
    assert [each for each in first if each.startswith(("mlp.", "moe."))] == expected


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("mixtral", {"num_experts_per_tok": 5}, '"num_experts_per_tok" is 5; it has to be from 1 to 4'),
        ("mixtral", {"num_experts": 8}, '"num_experts" is 8, and "num_local_experts", which means the same, is 4'),
        ("mixtral", {"num_local_experts": 0}, '"num_local_experts" is 0'),
        ("qwen2_moe", {"use_sliding_window": True, "sliding_window": None}, '"sliding_window" is missing; layers'),
        ("qwen2_moe", {"layer_types": ["sliding_attention"] * 2}, '"use_sliding_window" is not true'),
        ("qwen3_moe", {"decoder_sparse_step": 4}, '"decoder_sparse_step" is 4, and no layer of 3 has experts'),
        ("qwen3_moe", {"mlp_only_layers": "all"}, '"mlp_only_layers" has to be a list of numbers'),
        ("qwen3_moe", {"use_sliding_window": True, "sliding_window": 0}, '"sliding_window" is 0'),
        ("olmoe", {"clip_qkv": 0}, '"clip_qkv" is 0'),
        ("phimoe", {"num_experts_per_tok": 1}, '"num_experts_per_tok" is 1; a sparse mixer chooses 2'),
        ("phimoe", {"tie_word_embeddings": True}, '"lm_head_bias" is true'),
        ("deepseek", {"scoring_func": "sigmoid"}, '"scoring_func" is "sigmoid"'),
        ("deepseek", {"first_k_dense_replace": 3}, '"first_k_dense_replace" is 3'),
    ],
)
def test_a_field_that_asks_for_what_is_not_computed_is_named(
    name: str, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(StageError, match=message):
        model_of(MODELS[name] | changes)


@pytest.mark.parametrize(
    ("name", "changes", "kinds"),
    [
        ("qwen3_moe", {}, ("dense", "experts", "experts")),
        ("qwen3_moe", {"mlp_only_layers": None, "decoder_sparse_step": 2}, ("dense", "experts", "dense")),
        ("qwen3_moe", {"mlp_only_layers": []}, ()),
        ("deepseek", {}, ("dense", "experts", "experts")),
        ("deepseek", {"moe_layer_freq": 2}, ("dense", "dense", "experts")),
    ],
)
def test_layers_without_experts_are_a_kind_of_their_own(
    name: str, changes: dict[str, object], kinds: tuple[str, ...]
) -> None:
    assert model_of(MODELS[name] | changes).layers.kinds == kinds


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *("mixtral", "granitemoe"),
        *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("qwen2_moe", "qwen3_moe", "olmoe", "phimoe")),
    ],
)
def test_what_transformers_saves_is_read_with_an_expert_a_tensor_or_all_in_one(name: str, tmp_path: Path) -> None:
    model = random_model(MODELS[name])
    shards = []
    for layout, as_published in (("apart", True), ("fused", False)):
        model.save_pretrained(tmp_path / layout, save_original_format=as_published)
        write_resolved(tmp_path, json.loads((tmp_path / layout / "config.json").read_text()))
        shards.append(_imported(tmp_path / f"{layout}_shards", tmp_path / layout))
    files = [tmp_path / layout / "model.safetensors" for layout in ("apart", "fused")]
    apart, fused = (SafetensorsFile(file).descriptions for file in files)
    assert name == "granitemoe" or any(".experts.0." in tensor for tensor in apart)
    assert any(tensor.endswith("experts.gate_up_proj") for tensor in fused)
    assert shards[0] == shards[1]


_GGUF: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "mixtral": ("llama", {}),
    "qwen2_moe": ("qwen2moe", {"expert_feed_forward_length": 32, "expert_shared_feed_forward_length": 64}),
    "qwen3_moe": ("qwen3moe", {"expert_feed_forward_length": 32}),
    "olmoe": ("olmoe", {}),
}


@pytest.mark.parametrize("name", _GGUF)
def test_a_gguf_file_is_the_same_model(name: str, tmp_path: Path) -> None:
    config = MODELS[name] | {"mlp_only_layers": []}
    write_resolved(tmp_path, config)
    tensors = checkpoint_layouts(parameters_of(config))
    path = _write_gguf(tmp_path / "model.gguf", name, config, tensors["gguf"])
    file = GGUFFile(path)
    document = gguf_architecture(file, families()).config(file)
    file.close()
    assert document["model_type"] == name
    assert parameters_of(document) == parameters_of(config)
    found = {field: value for field, value in model_of(document).model_config.items() if field != "rms_norm_eps"}
    assert found == {field: model_of(config).model_config[field] for field in found}
    described = [
        TensorDescription(name=key, dtype="float32", shape=array.shape) for key, array in tensors["apart"].items()
    ]
    apart = tmp_path / "model.safetensors"
    write_safetensors(apart, described, lambda one: Tensor(description=one, data=tensors["apart"][one.name]))
    shards = [_imported(tmp_path / source.suffix[1:], source) for source in (apart, path)]
    assert shards[0] == shards[1]


def _imported(directory: Path, source: Path) -> list[bytes]:
    directory.mkdir()
    import_weights.run(
        readers=readers(),
        source=source,
        parameters=source.parent / "parameters.json",
        manifest=directory / "manifest.json",
        shards=directory / "shards",
    )
    shards = json.loads((directory / "manifest.json").read_text())["shards"]
    return [(directory / "shards" / shard["file"]).read_bytes() for shard in shards]


def _write_gguf(path: Path, name: str, config: Mapping[str, Any], tensors: Mapping[str, Array]) -> Path:
    architecture, sizes = _GGUF[name]
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6 if name == "mixtral" else 1e4)
    writer.add_expert_count(config.get("num_experts") or config["num_local_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    for key, size in sizes.items():
        writer.add_uint32(f"{architecture}.{key}", size)
    for key, tensor in tensors.items():
        writer.add_tensor(key, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
