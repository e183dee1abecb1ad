"""A shard of parameters that are made already is quantized to the bytes of the imported shard that it is made of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcbuild.compiler.calibration.made_parameters import (
    Integers,
    Numbers,
    expert_name,
    made,
    made_numbers,
    parameters_in,
    write_made_shard,
)
from mlcbuild.compiler.models.checkpoints.parameters import Parameter, read_parameters, write_parameters
from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.stages import import_weights, quantize
from mlcbuild.compiler.weights.imported_shard import ImportedShard
from mlcbuild.compiler.weights.integers import IntegerMatrix
from tests.compiler import schemes
from tests.compiler.family_cases import CASES
from tests.compiler.quantized_checkpoints import awq, gptq, quantized_tensors, write
from tests.compiler.resolving import parameters_of, readers
from tests.compiler.test_quantized_checkpoints import AWQ, GPTQ, config_of
from tests.compiler.tiny_models import Array
from tests.compiler.windowed_cases import WINDOWED

_MIXTRAL = WINDOWED["mixtral-window"].config


def _random(config: Mapping[str, Any], dtype: str) -> dict[str, Array]:
    """A random checkpoint; bfloat16 as its bits."""
    random = np.random.default_rng(0)
    sources = [tensor for parameter in parameters_of(config).parameters for tensor in parameter.sources]
    found = {tensor.name: random.standard_normal(tensor.shape).astype(np.float32) for tensor in sources}
    if dtype == "bfloat16":
        return {name: (array.view(np.uint32) >> 16).astype(np.uint16) for name, array in found.items()}
    return {name: array.astype(dtype) for name, array in found.items()}


def _imported(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Array]) -> Path:
    """The one shard of a checkpoint, beside its parameters.json."""
    write_parameters(parameters_of(config), folder / "parameters.json")
    import_weights.run(
        readers=readers(),
        source=write(folder / "model.safetensors", tensors),
        parameters=folder / "parameters.json",
        manifest=folder / "manifest.json",
        shards=folder / "shards",
    )
    (shard,) = (folder / "shards").iterdir()
    return shard


def _quantized(folder: Path, shard: Path, name: str, *, parameters: str = "parameters.json") -> bytes:
    scheme = schemes.scheme(name)
    quantize.run(
        shard=shard,
        parameters=folder / parameters,
        shard_out=folder / "out.bin",
        records=folder / "records.json",
        scheme=scheme,
        encoder=schemes.encoder_class(scheme),
        index=0,
        allow_requantize=True,
    )
    return (folder / "out.bin").read_bytes() + (folder / "records.json").read_bytes()


def _check_equal(folder: Path, shard: Path, name: str) -> None:
    listed = read_parameters(folder / "parameters.json")
    write_parameters(made(listed), folder / "made.json")
    write_made_shard(folder / "made.safetensors", ImportedShard(shard), listed)
    directly = _quantized(folder, shard, name)
    assert _quantized(folder, folder / "made.safetensors", name, parameters="made.json") == directly


@pytest.mark.parametrize(
    ("config", "dtype", "scheme"),
    [
        (CASES["llama"].config, "bfloat16", "q4f16_1"),
        (CASES["gemma"].config, "float32", "q4f32_1"),  # whose norms add one
        (_MIXTRAL, "float16", "q4f16_1"),
        (_MIXTRAL, "bfloat16", "q0f32"),
    ],
)
def test_a_made_shard_is_quantized_to_the_same_bytes(
    config: Mapping[str, Any], dtype: str, scheme: str, tmp_path: Path
) -> None:
    _check_equal(tmp_path, _imported(tmp_path, config, _random(config, dtype)), scheme)


@pytest.mark.parametrize(
    ("quantization", "quantizer", "scheme"), [(AWQ, awq(32), "q4f16_1"), (GPTQ, gptq(32, 4), "q3f16_1")]
)
def test_integers_of_a_checkpoint_stay_what_they_are(
    quantization: dict[str, object], quantizer: Any, scheme: str, tmp_path: Path
) -> None:
    config = config_of(quantization)
    stored, _ = quantized_tensors(config, quantizer)
    shard = _imported(tmp_path, config, stored)
    _check_equal(tmp_path, shard, scheme)
    made_shard = ImportedShard(tmp_path / "made.safetensors")
    assert made_shard.has_integers("model.layers.0.self_attn.qkv_proj.weight")


class _Doubled:
    """Every matrix of experts doubled, and those of linear layers as integers of one group a row."""

    def becomes(self, parameter: Parameter) -> Integers | Numbers | None:
        if parameter.role is ParameterRole.LINEAR:
            return Integers(groups=1)
        return Numbers() if parameter.role is ParameterRole.EXPERTS else None

    def changed(self, parameter: Parameter, numbers: Array, expert: int | None) -> Array | IntegerMatrix:
        if parameter.role is ParameterRole.EXPERTS:
            assert expert is not None
            doubled: Array = 2 * numbers
            return doubled
        rows = numbers.shape[0]
        return IntegerMatrix(
            codes=np.full(numbers.shape, 3, np.uint8),
            zeros=np.ones((rows, 1), np.uint8),
            scales=np.full((rows, 1), 0.5, np.float32),
            scale_dtype="float32",
        )


def test_a_change_is_written_and_the_rest_stays(tmp_path: Path) -> None:
    shard = ImportedShard(_imported(tmp_path, _MIXTRAL, _random(_MIXTRAL, "float16")))
    listed = parameters_of(_MIXTRAL)
    write_made_shard(tmp_path / "made.safetensors", shard, listed, _Doubled())
    found = ImportedShard(tmp_path / "made.safetensors")
    parameters = {parameter.name: parameter for parameter in parameters_in(shard, listed)}
    experts = "model.layers.1.moe.e1_e3.weight"
    for number, matrix in enumerate(made_numbers(shard, parameters[experts])):
        np.testing.assert_array_equal(found.read(expert_name(experts, number)).data, 2 * matrix)
    assert (found.read("model.layers.0.self_attn.o_proj.weight").data == 1.0).all()
    norm = found.read("model.norm.weight")
    assert norm.description.dtype == "float16"
    np.testing.assert_array_equal(norm.data, shard.read("model.norm.weight").data)
