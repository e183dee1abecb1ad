"""Checkpoints that packages are written as for compressed-tensors: what its package makes of them, and transformers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from mlcbuild.compiler.formats.compressed_tensors import checkpoint_files
from mlcbuild.compiler.models.checkpoints.parameters import Parameter
from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.scheme import QuantizationScheme
from mlcbuild.compiler.weights.tensor import dtype_of
from mlcbuild.errors import StageError
from tests.compiler import schemes
from tests.compiler.packaged import SHARD, checkpoint_of, write_weights
from tests.compiler.resolving import parameters_of
from tests.compiler.test_quantized_checkpoints import package, tensors_of
from tests.compiler.tiny_models import Array
from tests.parity_packages import parity_package

CONFIG: dict[str, object] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 256,
    "intermediate_size": 384,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 320,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
FORMS = {
    "q4f16_1": "pack-quantized",
    "q4f16_0": "pack-quantized",
    "q4bf16_1": "pack-quantized",
    "q4f32_1": "pack-quantized",
    "q8f16_1": "pack-quantized",
    "q4f16_autoawq": "pack-quantized",
    "q4f16_ft": "pack-quantized",
    "q8f16_ft": "pack-quantized",
    "e4m3_e4m3_f16": "float-quantized",
    "fp8_e4m3fn_bf16_channel_scale": "float-quantized",
    "fp8_e4m3fn_bf16_block_scale": "float-quantized",
    "int8_int8_f16": "int-quantized",
    "mxfp4_bf16": "mxfp4-pack-quantized",
    "nvfp4_bf16": "nvfp4-pack-quantized",
}


def random_tensors(config: Mapping[str, object], *, seed: int = 0) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {
        tensor.name: (random.standard_normal(tensor.shape) * 0.1).astype(np.float32)
        for parameter in parameters_of(config).parameters
        for tensor in parameter.sources
    }


def written(
    directory: Path,
    config: Mapping[str, object],
    tensors: Mapping[str, Array],
    quantization: str | QuantizationScheme,
) -> Path:
    write_weights(directory, config, tensors, quantization)
    return checkpoint_of(directory, quantization)


def decompressed(folder: Path) -> dict[str, Array]:
    """The numbers of a checkpoint as the package compressed-tensors restores them, in float32."""
    torch, safetensors = parity_package("torch"), parity_package("safetensors.torch")
    compressors = parity_package("compressed_tensors.compressors")
    quantization = parity_package("compressed_tensors.quantization")
    document = json.loads((folder / "config.json").read_text())
    config = quantization.QuantizationConfig.model_validate(document["quantization_config"])
    dtype = getattr(torch, document["torch_dtype"])
    found: dict[str, Array] = {}
    modules: dict[str, dict[str, Any]] = {}
    for name, tensor in safetensors.load_file(folder / "model.safetensors").items():
        module, _, kind = name.rpartition(".")
        modules.setdefault(module, {})[kind] = tensor
    for module, tensors in modules.items():
        if "weight_scale" in tensors:
            scheme = next((one for one in config.config_groups.values() if module in one.targets), None)
            scheme = scheme or config.config_groups["group_0"]
            assert module not in config.ignore
            compressor = compressors.BaseCompressor.get_value_from_registry(scheme.format or config.format)
            assert set(compressor.compression_param_names(scheme)) == set(tensors) - {"input_scale"}
            tensors = compressor.decompress(tensors, scheme)
        for kind in {"weight", "bias"} & tensors.keys():
            found[f"{module}.{kind}"] = tensors[kind].to(dtype).float().numpy()
    return found


@pytest.mark.parametrize("name", FORMS)
def test_compressed_tensors_restores_the_numbers_of_the_package(name: str, tmp_path: Path) -> None:
    tensors = random_tensors(CONFIG)
    folder = written(tmp_path, CONFIG, tensors, name)
    document = json.loads((folder / "config.json").read_text())
    assert document["quantization_config"]["format"] == FORMS[name]
    scheme = schemes.scheme(name)
    expected = schemes.restored(CONFIG, scheme, schemes.stored(CONFIG, scheme, tensors))
    found = decompressed(folder)
    assert found.keys() == expected.keys()
    for tensor, numbers in expected.items():
        if name == "nvfp4_bf16" and not np.array_equal(found[tensor], numbers):
            # It divides by the global scale, in whose type the product is rounded.
            np.testing.assert_allclose(found[tensor], numbers, rtol=2**-8)
        else:
            np.testing.assert_array_equal(found[tensor], numbers, err_msg=tensor)


def test_schemes_of_one_model_have_groups_of_their_own(tmp_path: Path) -> None:
    table = {"default": "q4f16_1", "model.layers.0.mlp.*": "e4m3_e4m3_f16", "model.layers.1.mlp.down_proj": "q0f16"}
    scheme, tensors = schemes.mixed(CONFIG, table), random_tensors(CONFIG)
    folder = written(tmp_path, CONFIG, tensors, scheme)
    quantization = json.loads((folder / "config.json").read_text())["quantization_config"]
    assert quantization["format"] == "mixed-precision"
    targets = [group["targets"] for group in quantization["config_groups"].values()]
    assert targets == [["Linear"], [f"model.layers.0.mlp.{name}_proj" for name in ("gate", "up", "down")]]
    assert quantization["ignore"] == ["model.layers.1.mlp.down_proj", "lm_head"]
    expected = schemes.restored(CONFIG, scheme, schemes.stored(CONFIG, scheme, tensors))
    found = decompressed(folder)
    assert all(np.array_equal(found[name], numbers) for name, numbers in expected.items())


def _linear(config: Mapping[str, object], scheme: QuantizationScheme) -> list[str]:
    """The tensors of a package that are stored for linear layers."""
    listed = parameters_of(config).parameters
    return [
        tensor.name
        for parameter in listed
        if parameter.role in (ParameterRole.LINEAR, ParameterRole.EXPERTS)
        for tensor in scheme.stored(parameter)
    ]


@pytest.mark.parametrize("name", FORMS)
def test_what_is_written_is_read_back_as_it_was(name: str, tmp_path: Path) -> None:
    """Stored bytes of linear layers: NVFP4's scales are found again, to within a rounding."""
    scheme = schemes.scheme(name)
    folder = written(tmp_path / "first", CONFIG, random_tensors(CONFIG), name)
    read = package(tmp_path / "again", folder, json.loads((folder / "config.json").read_text()), name)
    first = tensors_of(tmp_path / "first")
    assert read.keys() == first.keys()
    if name != "nvfp4_bf16":
        assert [one for one in _linear(CONFIG, scheme) if read[one] != first[one]] == []
    for parameter in parameters_of(CONFIG).parameters:
        one, other = (_decoded(scheme, parameter, tensors) for tensors in (first, read))
        bound = schemes.encoder(scheme).error_bound(parameter, one)
        assert (np.abs(one.astype(np.float64) - other.astype(np.float64)) <= bound).all()


def _decoded(scheme: QuantizationScheme, parameter: Parameter, tensors: Mapping[str, bytes]) -> Array:
    stored = [
        np.frombuffer(tensors[one.name], dtype_of(one.dtype)).reshape(one.shape) for one in scheme.stored(parameter)
    ]
    return schemes.encoder(scheme).decode(parameter, stored)


def test_large_checkpoints_have_shards_with_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = written(tmp_path / "whole", CONFIG, random_tensors(CONFIG), "q4f16_1")
    monkeypatch.setattr(checkpoint_files, "SHARD_BYTES", 100_000)
    folder = written(tmp_path / "it", CONFIG, random_tensors(CONFIG), "q4f16_1")
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    names = sorted(set(index["weight_map"].values()))
    assert names == [f"model-{number:05}-of-{len(names):05}.safetensors" for number in range(1, len(names) + 1)]
    assert len(names) > 3
    expected = load_file(whole / "model.safetensors")
    found = {name: array for one in names for name, array in load_file(folder / one).items()}
    assert found.keys() == expected.keys() == index["weight_map"].keys()
    assert all(np.array_equal(found[name], array) for name, array in expected.items())
    assert index["metadata"]["total_size"] == sum(array.nbytes for array in expected.values())
    with safe_open(folder / names[0], "numpy") as file:
        assert file.metadata() == {"format": "pt"}


def _calibrated(directory: Path, name: str) -> None:
    """Give a package's weights scales of activations, as a calibration does."""
    write_weights(directory, CONFIG, random_tensors(CONFIG), name)
    shard = directory / SHARD
    data = bytearray(shard.read_bytes())
    (record,) = json.loads((directory / "tensor-cache.json").read_text())["records"]
    for entry in record["records"]:
        if entry["name"].endswith(("q_calibration_scale", "activation_scale")):
            begin = entry["byteOffset"]
            data[begin : begin + entry["nbytes"]] = np.full(entry["nbytes"] // 4, 0.25, "<f4").tobytes()
    shard.write_bytes(data)


def test_stored_scales_of_activations_are_written(tmp_path: Path) -> None:
    _calibrated(tmp_path, "e4m3_e4m3_f16")
    folder = checkpoint_of(tmp_path, "e4m3_e4m3_f16")
    group = json.loads((folder / "config.json").read_text())["quantization_config"]["config_groups"]["group_0"]
    assert (group["input_activations"]["strategy"], group["input_activations"]["dynamic"]) == ("tensor", False)
    with safe_open(folder / "model.safetensors", "numpy") as file:
        names = file.keys()
        scales = {name: file.get_tensor(name) for name in names if name.endswith("input_scale")}
    assert len(scales) == 14
    assert all(one.tolist() == [0.25] for one in scales.values())


def test_stored_scales_that_compressed_tensors_does_not_have_are_refused(tmp_path: Path) -> None:
    _calibrated(tmp_path, "fp8_e4m3fn_bf16_block_scale_static_activation")
    with pytest.raises(StageError, match="no scales of activations for each 128 places"):
        checkpoint_of(tmp_path, "fp8_e4m3fn_bf16_block_scale_static_activation")


def test_what_is_not_quantized_is_listed_by_name(tmp_path: Path) -> None:
    """A tied head, columns that are no whole groups, blocks of rows that are cut, and rows with a form of their own."""
    config = {**CONFIG, "intermediate_size": 200, "num_key_value_heads": 1, "tie_word_embeddings": True}
    tensors = random_tensors(config)

    def told(name: str) -> tuple[list[str], list[list[str]]]:
        found = json.loads((written(tmp_path / name, config, tensors, name) / "config.json").read_text())
        quantization = found["quantization_config"]
        return quantization["ignore"], [group["targets"] for group in quantization["config_groups"].values()]

    down = [f"model.layers.{layer}.mlp.down_proj" for layer in range(2)]
    cut = [f"model.layers.{layer}.{part}" for layer in range(2) for part in _CUT]
    assert told("q4f16_autoawq") == ([*down, "lm_head"], [["Linear"]])
    assert told("fp8_e4m3fn_bf16_block_scale") == ([*cut, "lm_head"], [["Linear"]])
    assert told("fp8_e4m3fn_bf16_channel_scale") == (["lm_head"], [["Linear"]])


# 200 rows of a gate are before those of its up; the 64 of k and of v are in one block, whose scale both have.
_CUT = ("mlp.gate_proj", "mlp.up_proj")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"group_size": 64}, "is 64; read are 16, 32"),
        ({"num_bits": 8}, "is 8; floats of 4 bits are read"),
        ({"type": "int"}, 'is "int"; floats are read'),
        ({"dynamic": True}, "is set; scales of weights are read"),
        ({"strategy": "channel"}, 'it is "group"'),
    ],
)
def test_other_floats_of_4_bits_are_refused(change: dict[str, object], message: str, tmp_path: Path) -> None:
    folder = written(tmp_path, CONFIG, random_tensors(CONFIG), "mxfp4_bf16")
    document = json.loads((folder / "config.json").read_text())
    document["quantization_config"]["config_groups"]["group_0"]["weights"].update(change)
    with pytest.raises(StageError, match=message):
        parameters_of(document)
