"""Export: entry functions and parameters as MLC-LLM has them, and clear errors for what cannot be exported."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm import relax

from mlcbuild.compiler import ir
from mlcbuild.compiler.models.checkpoints.parameters import read_parameters
from mlcbuild.compiler.models.description import write_model
from mlcbuild.compiler.stages import export
from mlcbuild.errors import StageError
from tests.compiler import schemes
from tests.compiler.family_cases import CASES as FAMILY_CASES
from tests.compiler.gguf_cases import CASES as GGUF_CASES
from tests.compiler.resolving import model_builders, model_of, write_resolved
from tests.compiler.tiny_llama import TINY_LLAMA


def _exported(directory: Path, quantization: str, **changes: object) -> tuple[tvm.IRModule, dict[str, Any]]:
    return _exported_model(directory, quantization, TINY_LLAMA | changes)


def _exported_model(
    directory: Path, quantization: str, config: Mapping[str, object]
) -> tuple[tvm.IRModule, dict[str, Any]]:
    write_resolved(directory, config)
    scheme = schemes.scheme(quantization)
    export.run(
        model=directory / "model.json",
        parameters=directory / "parameters.json",
        models=model_builders(),
        module=directory / "module.json",
        metadata=directory / "metadata.json",
        scheme=scheme,
        reader=schemes.reader_class(scheme),
    )
    return ir.load_module(directory / "module.json"), json.loads((directory / "metadata.json").read_text())


def _parameters(metadata: dict[str, Any]) -> dict[str, tuple[list[int], str]]:
    return {item["name"]: (item["shape"], item["dtype"]) for item in metadata["params"]}


def _arguments(module: tvm.IRModule, name: str) -> list[str]:
    return [str(parameter.name) for parameter in module[name].params]


def test_entry_functions_take_what_mlc_llms_engine_gives_them(tmp_path: Path) -> None:
    module, _ = _exported(tmp_path, "q0f32")
    assert _arguments(module, "embed") == ["input_ids", "packed_params"]
    for name in ("prefill", "decode"):
        assert _arguments(module, name) == ["input_embed", "paged_kv_cache", "packed_params"]
    assert _arguments(module, "batch_prefill") == [
        "input_embeds",
        "logit_positions",
        "paged_kv_cache",
        "packed_params",
    ]
    for name in ("batch_decode", "batch_verify"):
        assert _arguments(module, name) == ["input_embeds", "paged_kv_cache", "packed_params"]
    assert len(module["create_paged_kv_cache"].params) == 5


def test_logits_are_float32_whatever_the_model_computes_in(tmp_path: Path) -> None:
    module, _ = _exported(tmp_path, "q4f16_1")
    for name in ("prefill", "decode", "batch_prefill", "batch_decode", "batch_verify"):
        assert str(module[name].ret_ty.fields[0].dtype) == "float32"


_MODELS: dict[str, Any] = {**FAMILY_CASES, **{f"{name}.gguf": case for name, case in GGUF_CASES.items()}}
# Some of their matrices have 24 or 48 columns.
_NOT_IN_GROUPS = (
    *("deepseek_v2-groups", "deepseek_v3", "minicpm3", "minicpm3.gguf"),
    *("llama4", "qwen3_next", "qwen3_5_moe", "qwen3_5-vision"),
)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in ("phi", "gpt_oss.gguf") else pytest.mark.exhaustive) for name in _MODELS],
)
def test_every_family_is_exported_in_float16(name: str, tmp_path: Path) -> None:
    """Biases of heads and of routers are float16, and what they are added to is float32."""
    config = _MODELS[name].config
    module, _ = _exported_model(tmp_path, "q0f16" if name in _NOT_IN_GROUPS else "q4f16_1", config)
    if model_of(config).limits.is_encoder:
        assert str(module["prefill"].ret_ty.dtype) == "float16"
        return
    assert str(module["decode"].ret_ty.fields[0].dtype) == "float32"


def test_quantized_matrices_are_words_and_scales(tmp_path: Path) -> None:
    _, metadata = _exported(tmp_path, "q4f16_1")
    parameters = _parameters(metadata)
    assert parameters["model.embed_tokens.q_weight"] == ([320, 8], "uint32")
    assert parameters["model.embed_tokens.q_scale"] == ([320, 2], "float16")
    assert parameters["model.layers.1.self_attn.qkv_proj.q_weight"] == ([128, 8], "uint32")
    assert parameters["model.layers.0.mlp.gate_up_proj.q_scale"] == ([256, 2], "float16")
    assert parameters["model.layers.0.mlp.down_proj.q_weight"] == ([64, 16], "uint32")
    assert parameters["model.norm.weight"] == ([64], "float16")
    assert not any(name.startswith("lm_head") for name in parameters)


def test_a_head_of_its_own_is_a_parameter(tmp_path: Path) -> None:
    _, metadata = _exported(tmp_path, "q0f16", tie_word_embeddings=False)
    assert _parameters(metadata)["lm_head.weight"] == ([320, 64], "float16")


def test_biases_stay_in_the_models_type(tmp_path: Path) -> None:
    _, metadata = _exported(tmp_path, "q4f32_1", attention_bias=True, mlp_bias=True)
    parameters = _parameters(metadata)
    assert parameters["model.layers.0.self_attn.qkv_proj.bias"] == ([128], "float32")
    assert parameters["model.layers.0.mlp.down_proj.bias"] == ([64], "float32")


def test_the_head_size_may_differ_from_hidden_size_by_heads(tmp_path: Path) -> None:
    _, metadata = _exported(tmp_path, "q0f32", head_dim=32)
    parameters = _parameters(metadata)
    assert parameters["model.layers.0.self_attn.qkv_proj.weight"] == ([256, 64], "float32")
    assert parameters["model.layers.0.self_attn.o_proj.weight"] == ([64, 128], "float32")


def test_metadata_says_what_an_engine_has_to_know(tmp_path: Path) -> None:
    _, metadata = _exported(tmp_path, "q4f16_1")
    expected = {
        "model_type": "llama",
        "quantization": "q4f16_1",
        "pipeline_parallel_stages": 1,
        "disaggregation": False,
        "kv_state_kind": "kv_cache",
        "model_task": "chat",
    }
    assert {name: metadata[name] for name in expected} == expected
    assert all(item["preprocs"] == [] for item in metadata["params"])


def test_sizes_that_a_library_may_override_are_not_exports_business(tmp_path: Path) -> None:
    _exported(tmp_path, "q4f16_1")
    before = [(tmp_path / name).read_bytes() for name in ("module.json", "metadata.json")]
    _exported(tmp_path, "q4f16_1", max_position_embeddings=128)
    assert [(tmp_path / name).read_bytes() for name in ("module.json", "metadata.json")] == before


@pytest.mark.parametrize("quantization", schemes.NAMES)
@pytest.mark.parametrize("tied", [False, True])
def test_parameters_are_those_that_weights_are_stored_as(tmp_path: Path, quantization: str, tied: bool) -> None:
    _, metadata = _exported(tmp_path, quantization, tie_word_embeddings=tied, attention_bias=True, mlp_bias=True)
    scheme = schemes.scheme(quantization)
    listed = read_parameters(tmp_path / "parameters.json").parameters
    stored = {item.name: (list(item.shape), item.dtype) for one in listed for item in scheme.stored(one)}
    assert _parameters(metadata) == stored


def test_export_parses_no_script_and_writes_no_locations(tmp_path: Path) -> None:
    module, _ = _exported(tmp_path, "q4f16_1")
    assert "ir.Span" not in (tmp_path / "module.json").read_text()
    kernels = {str(v.name_hint) for v, f in module.functions_items() if not isinstance(f, relax.Function)}
    assert {name.rstrip("0123456789") for name in kernels} <= {"dequantize", "last_token"}


@pytest.mark.parametrize("name", ["llama", "deepseek_v2", "qwen3_next", "mamba2"])
def test_a_model_exported_twice_by_one_process_is_the_same(name: str, tmp_path: Path) -> None:
    written = []
    for place in ("first", "second"):
        (tmp_path / place).mkdir()
        module, _ = _exported_model(tmp_path / place, "q0f32", FAMILY_CASES[name].config)
        written.append((tmp_path / place / "module.json").read_bytes())
    assert written[0] == written[1]
    if name != "mamba2":
        assert "packed_params" not in _arguments(module, "create_paged_kv_cache")
        assert len(_arguments(module, "create_paged_kv_cache")) == 5


def test_an_unsupported_model_type_is_told_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"\"model_type\" is \"lama\"[^\n]*\n  known: .*did you mean \"llama\""):
        _exported(tmp_path, "q0f32", model_type="lama")


def test_a_missing_model_type_is_told(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r'"model_type" is missing'):
        _exported(tmp_path, "q0f32", model_type=None)


def test_a_group_that_does_not_divide_a_matrix_is_told_with_the_matrix(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"mlp\.down_proj\.weight has 120 columns, which groups of 32 do not divide"):
        _exported(tmp_path, "q4f16_1", intermediate_size=120)


def test_a_model_with_other_parameters_than_its_family_lists_is_refused(tmp_path: Path) -> None:
    write_resolved(tmp_path, TINY_LLAMA)
    write_model(
        model_of(TINY_LLAMA | {"intermediate_size": 256, "tie_word_embeddings": False}), tmp_path / "model.json"
    )
    with pytest.raises(StageError, match=r"the family llama has other parameters than its family\.py lists") as caught:
        export.run(
            model=tmp_path / "model.json",
            parameters=tmp_path / "parameters.json",
            models=model_builders(),
            module=tmp_path / "module.json",
            metadata=tmp_path / "metadata.json",
            scheme=schemes.scheme("q0f32"),
            reader=schemes.reader_class(schemes.scheme("q0f32")),
        )
    assert caught.value.advice[0] == (
        "model.layers.0.mlp.gate_up_proj.weight: 256×64 float32 in the list, 512×64 float32 in the model"
    )
    assert "lm_head.weight: absent in the list, 320×64 float32 in the model" in caught.value.advice
    assert not (tmp_path / "module.json").exists()
