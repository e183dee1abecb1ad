"""Checkpoints in floats of 8 bits: what they stand for, what of them is kept, and what is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mlcbuild.compiler.models.checkpoints.operations import Concatenate, Permute
from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.float8.encoder import Float8Encoder
from mlcbuild.compiler.weights.operations import carry_out
from mlcbuild.compiler.weights.quantized_source import with_quantized
from mlcbuild.compiler.weights.scaled_floats import FloatMatrix, carried_out
from mlcbuild.compiler.weights.source import WeightSource, open_source
from mlcbuild.errors import StageError
from tests.compiler import schemes
from tests.compiler.quantized_checkpoints import Quantizer, float8, quantized_tensors, write
from tests.compiler.resolving import parameters_of, readers
from tests.compiler.schemes import matrix
from tests.compiler.staged_weights import imported, quantized
from tests.compiler.test_quantized_checkpoints import tensors_of
from tests.compiler.tiny_llama import TINY_LLAMA
from tests.compiler.tiny_models import Array

# Heads of 128, so that q, k and v begin where blocks do.
WIDE: dict[str, object] = TINY_LLAMA | {
    "hidden_size": 256,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 128,
}
FP8: dict[str, object] = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic"}
_WEIGHTS = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel", "dynamic": False}
_ACTIVATIONS = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "token", "dynamic": True}


def compressed(weights: Mapping[str, object] = {}, activations: Mapping[str, object] = {}) -> dict[str, object]:
    """As llm-compressor writes FP8-dynamic."""
    group = {"targets": ["Linear"], "weights": _WEIGHTS | dict(weights)}
    return {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "config_groups": {"group_0": group | {"input_activations": _ACTIVATIONS | dict(activations)}},
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        "quantization_status": "compressed",
    }


FORMATS: dict[str, tuple[dict[str, object], Quantizer]] = {
    "blocks": ({**FP8, "weight_block_size": [128, 128]}, float8(128, 128, scale="weight_scale_inv")),
    "odd blocks": ({**FP8, "weight_block_size": [24, 48]}, float8(24, 48, scale="weight_scale_inv")),
    "matrices": (FP8, float8(0, 0, scale="weight_scale")),
    "rows": (compressed(), float8(1, 0, scale="weight_scale")),
}
Q_PROJ = "model.layers.0.self_attn.q_proj"


def config_of(quantization: Mapping[str, object]) -> dict[str, object]:
    return {**WIDE, "quantization_config": dict(quantization)}


def opened(path: Path, quantization: Mapping[str, object]) -> WeightSource:
    return with_quantized(open_source(path), parameters_of(config_of(quantization)).quantized, readers())


def package(directory: Path, source: Path, quantization: Mapping[str, object], scheme: str) -> dict[str, bytes]:
    """The weights of a package of a checkpoint."""
    directory.mkdir(exist_ok=True)
    imported(directory, source, config_of(quantization) if quantization else WIDE)
    quantized(directory, scheme)
    return tensors_of(directory)


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_restored_is_what_the_format_defines(name: str, tmp_path: Path) -> None:
    quantization, quantizer = FORMATS[name]
    stored, restored = quantized_tensors(config_of(quantization), quantizer)
    source = opened(write(tmp_path / "model.safetensors", stored), quantization)
    assert source.descriptions.keys() == restored.keys()
    for tensor, numbers in restored.items():
        np.testing.assert_array_equal(source.read(tensor).data, numbers)
        if numbers.ndim == 2:
            np.testing.assert_array_equal(source.read(tensor, (8, 30)).data, numbers[8:30])


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("scheme", ["q0f32", pytest.param("q4f16_1", marks=pytest.mark.exhaustive)])
def test_other_schemes_have_what_the_restored_checkpoint_gives(name: str, scheme: str, tmp_path: Path) -> None:
    quantization, quantizer = FORMATS[name]
    stored, restored = quantized_tensors(config_of(quantization), quantizer)
    one = package(tmp_path / "one", write(tmp_path / "one.safetensors", stored), quantization, scheme)
    other = package(tmp_path / "other", write(tmp_path / "other.safetensors", restored), {}, scheme)
    assert one == other


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        ("blocks", "fp8_e4m3fn_bf16_block_scale"),
        ("matrices", "fp8_e4m3fn_bf16_block_scale"),
        ("matrices", "fp8_e4m3fn_bf16_channel_scale"),
        ("rows", "fp8_e4m3fn_bf16_channel_scale"),
    ],
)
def test_floats_are_kept_bit_for_bit_where_the_scheme_has_such_scales(name: str, scheme: str, tmp_path: Path) -> None:
    quantization, quantizer = FORMATS[name]
    stored, _ = quantized_tensors(config_of(quantization), quantizer)
    found = package(tmp_path, write(tmp_path / "model.safetensors", stored), quantization, scheme)
    own = schemes.scheme(scheme)
    for parameter in parameters_of(WIDE).parameters:
        if not own.covers(parameter.role):
            continue
        whole = np.concatenate([stored[source.name].view(np.uint8) for source in parameter.sources])
        assert found[parameter.name] == whole.tobytes()
        arrays = [
            np.frombuffer(found[one.name], getattr(ml_dtypes, one.dtype, one.dtype)).reshape(one.shape)
            for one in own.stored(parameter)
        ]
        numbers = np.concatenate([_restored(stored, source.name) for source in parameter.sources])
        expected = numbers.astype(ml_dtypes.bfloat16)
        np.testing.assert_array_equal(schemes.encoder(own).decode(parameter, arrays), expected)


def _restored(stored: Mapping[str, Array], name: str) -> Array:
    weight = stored[name].astype(np.float32)
    scales = next(stored[name + suffix] for suffix in ("_scale_inv", "_scale") if name + suffix in stored)
    if scales.ndim == 1:
        return weight * scales
    height, width = (-(-size // count) for size, count in zip(weight.shape, scales.shape, strict=True))
    whole: Array = np.repeat(np.repeat(scales, height, axis=0), width, axis=1)
    return weight * whole[: weight.shape[0], : weight.shape[1]]


def test_scales_of_several_matrices_do_not_fit_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """q, k and v are one matrix, which `e4m3_e4m3_f16` has one scale for."""
    quantization, quantizer = FORMATS["matrices"]
    stored, _ = quantized_tensors(config_of(quantization), quantizer)
    found = package(tmp_path, write(tmp_path / "model.safetensors", stored), quantization, "e4m3_e4m3_f16")
    told = capsys.readouterr().out
    assert "model.layers.0.self_attn.qkv_proj.weight: floats restored, and quantized again" in told
    assert "model.layers.0.self_attn.o_proj.weight: floats kept as they are" in told
    o_proj = "model.layers.0.self_attn.o_proj"
    assert found[f"{o_proj}.q_weight"] == stored[f"{o_proj}.weight"].tobytes()
    assert found[f"{o_proj}.q_scale"] == stored[f"{o_proj}.weight_scale"].tobytes()


@pytest.mark.parametrize(
    ("quantization", "message"),
    [
        ({**FP8, "fmt": "e5m2"}, '"fmt" is "e5m2"'),
        ({**FP8, "activation_scheme": "smooth"}, '"activation_scheme" is "smooth"'),
        ({**FP8, "weight_block_size": [128]}, r'"weight_block_size" is \[128\]'),
        ({**FP8, "weight_block_size": [0, 128]}, r'"weight_block_size" is \[0, 128\]'),
        ({**FP8, "weight_block_size": [True, 128]}, r'"weight_block_size" is \[True, 128\]'),
        ({**FP8, "weight_block_size": "128"}, "\"weight_block_size\" is '128'"),
        ({**FP8, "rotation": "hadamard"}, '"rotation" is not known'),
        (compressed({"num_bits": 4}), "num_bits.* is 4; floats of 8 bits"),
        (compressed({"type": "int"}), 'type.* is "int"; floats are read'),
        (compressed({"strategy": "group"}), 'strategy.* is "group"'),
        (compressed({"dynamic": True}), "dynamic.* is set"),
        (compressed({"symmetric": False}), "symmetric.* is false"),
        (compressed({}, {"dynamic": False}), 'strategy.* is "token"; read are tensor'),
        (compressed({}, {"dynamic": "local"}), "dynamic.* is neither true nor false"),
        ({**compressed(), "config_groups": {}}, "config_groups.* has no group with weights"),
        ({**compressed(), "kv_cache_scheme": {"num_bits": 8}}, "kv_cache_scheme.* is not known"),
        ({**compressed(), "sparsity_config": {"format": "sparse-24-bitmask"}}, 'is of the format "sparse-24-bitmask"'),
    ],
)
def test_fields_that_are_not_read_are_refused(quantization: Mapping[str, object], message: str) -> None:
    with pytest.raises(StageError, match=message):
        parameters_of(config_of(quantization))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight_scale_inv": None}, rf"{Q_PROJ} is quantized by fp8, and lacks {Q_PROJ}\.weight_scale_inv"),
        ({"weight": None}, rf"{Q_PROJ} is quantized by fp8, and lacks {Q_PROJ}\.weight"),
        ({"weight": np.zeros((256, 256), np.float16)}, r"q_proj\.weight is float16 and has to be float8_e4m3fn"),
        ({"weight_scale_inv": np.ones((2, 2), np.int32)}, r"weight_scale_inv is int32 and has to be float32"),
        ({"weight_scale_inv": np.ones((2, 1), np.float32)}, r"weight \[256, 256\], weight_scale_inv \[2, 1\]"),
        ({"weight_scale_inv": np.ones(4, np.float32)}, r"weight \[256, 256\], weight_scale_inv \[4\]"),
        ({"weight_scale_inv": np.full((2, 2), np.inf, np.float32)}, r"weight_scale_inv holds inf at \(0, 0\)"),
        (
            {"weight": np.full((256, 256), 0x7F, np.uint8).view(ml_dtypes.float8_e4m3fn)},
            r"q_proj\.weight holds nan at \(0, 0\)",
        ),
        (
            {
                "weight": np.zeros((128, 256), ml_dtypes.float8_e4m3fn),
                "weight_scale_inv": np.ones((1, 2), np.float32),
            },
            r"of another shape: \S+q_proj\.weight is 128×256 and has to be 256×256",
        ),
    ],
)
@pytest.mark.parametrize("scheme", ["fp8_e4m3fn_bf16_block_scale"])
def test_damaged_checkpoints_are_told(
    changes: Mapping[str, Array | None], message: str, scheme: str, tmp_path: Path
) -> None:
    quantization, quantizer = FORMATS["blocks"]
    stored, _ = quantized_tensors(config_of(quantization), quantizer)
    changed: dict[str, Any] = {**stored, **{f"{Q_PROJ}.{name}": array for name, array in changes.items()}}
    path = write(tmp_path / "model.safetensors", {name: array for name, array in changed.items() if array is not None})
    with pytest.raises(StageError, match=message):
        package(tmp_path, path, quantization, scheme)


def test_modules_that_are_left_as_they_are_are_read_so(tmp_path: Path) -> None:
    quantization, quantizer = FORMATS["blocks"]
    stored, restored = quantized_tensors(config_of(quantization), quantizer)
    del stored[f"{Q_PROJ}.weight_scale_inv"]
    stored[f"{Q_PROJ}.weight"] = restored[f"{Q_PROJ}.weight"]
    source = opened(write(tmp_path / "model.safetensors", stored), {**quantization, "modules_to_not_convert": ["q"]})
    np.testing.assert_array_equal(source.read(f"{Q_PROJ}.weight").data, restored[f"{Q_PROJ}.weight"])


def _matrix(rows: int, columns: int, groups: int, *, seed: int = 0) -> FloatMatrix:
    random = np.random.default_rng(seed)
    return FloatMatrix(
        bits=random.integers(0, 0x7F, (rows, columns), dtype=np.uint8),
        scales=random.uniform(0.1, 1, (rows, groups)).astype(np.float32),
    )


def test_operations_on_rows_keep_floats() -> None:
    matrices = [_matrix(8, 64, 2), _matrix(8, 64, 4, seed=1)]
    made = carried_out((Concatenate(axis=0),), matrices)
    assert made is not None
    assert made.group_size == 16
    expected = carry_out((Concatenate(axis=0),), [one.restored() for one in matrices])
    np.testing.assert_array_equal(made.restored(), expected)
    assert carried_out((Permute(axes=(1, 0)),), [_matrix(64, 64, 2)]) is None


def test_experts_are_kept_and_roles_that_are_not_covered_are_not() -> None:
    scheme = schemes.scheme("fp8_e4m3fn_bf16_channel_scale")
    encoder = schemes.encoder(scheme)
    assert isinstance(encoder, Float8Encoder)
    one = _matrix(8, 64, 1)
    stacked = FloatMatrix(bits=one.bits[None], scales=one.scales[None])
    arrays = encoder.store_floats(matrix((1, 8, 64), role=ParameterRole.EXPERTS), stacked)
    assert arrays is not None
    assert [array.shape for array in arrays] == [(1, 8, 64), (1, 8, 1)]
    assert encoder.store_floats(matrix((8, 64), role=ParameterRole.EMBEDDING), one) is None
    assert encoder.store_floats(matrix((8, 64)), dataclasses.replace(one, scales=_matrix(8, 64, 2).scales)) is None
