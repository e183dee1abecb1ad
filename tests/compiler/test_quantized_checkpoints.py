"""Checkpoints that are quantized already: what they stand for, what of them is kept, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from mlcbuild.compiler.models.checkpoints.operations import Concatenate, Permute, Reshape, Slice
from mlcbuild.compiler.weights.integers import IntegerMatrix, carried_out
from mlcbuild.compiler.weights.operations import carry_out
from mlcbuild.compiler.weights.quantized_source import with_quantized
from mlcbuild.compiler.weights.source import WeightSource, open_source
from mlcbuild.errors import StageError
from tests.compiler.quantized_checkpoints import (
    Quantizer,
    awq,
    eight_bits,
    four_bits,
    gptq,
    pack_quantized,
    quantized_tensors,
    write,
)
from tests.compiler.resolving import parameters_of, readers
from tests.compiler.staged_weights import imported, quantized
from tests.compiler.tiny_llama import TINY_LLAMA
from tests.compiler.tiny_models import Array

AWQ: dict[str, object] = {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True}
GPTQ: dict[str, object] = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": False}
NF4: dict[str, object] = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
INT8: dict[str, object] = {"quant_method": "bitsandbytes", "load_in_8bit": True, "llm_int8_threshold": 6.0}


def packed_config(**weights: object) -> dict[str, object]:
    """A `quantization_config` as llm-compressor writes it."""
    arguments = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32, **weights}
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        "config_groups": {
            "group_0": {"targets": ["Linear"], "weights": arguments, "input_activations": None, "format": None}
        },
    }


FORMATS: dict[str, tuple[dict[str, object], Quantizer]] = {
    "awq": (AWQ, awq(32)),
    "gptq": (GPTQ, gptq(32, 4)),
    "gptq act-order": ({**GPTQ, "desc_act": True}, gptq(32, 4, act_order=True)),
    "gptq 3 bits": ({**GPTQ, "bits": 3}, gptq(64, 3)),
    "gptq 8 bits of the second version": ({**GPTQ, "bits": 8, "checkpoint_format": "gptq_v2"}, gptq(32, 8, offset=0)),
    "pack-quantized": (packed_config(), pack_quantized(32, 4)),
    "pack-quantized by rows": (
        packed_config(num_bits=8, strategy="channel", group_size=None),
        pack_quantized(-1, 8),
    ),
    "pack-quantized asymmetric": (packed_config(symmetric=False), pack_quantized(32, 4, symmetric=False)),
    "nf4": (NF4, four_bits(64)),
    "nf4 nested": ({**NF4, "bnb_4bit_use_double_quant": True}, four_bits(64, nested=16)),
    "int8": (INT8, eight_bits),
}
Q_PROJ = "model.layers.0.self_attn.q_proj"


def config_of(quantization: Mapping[str, object]) -> dict[str, object]:
    return {**TINY_LLAMA, "quantization_config": dict(quantization)}


def opened(path: Path, quantization: Mapping[str, object]) -> WeightSource:
    return with_quantized(open_source(path), parameters_of(config_of(quantization)).quantized, readers())


def package(directory: Path, source: Path, config: Mapping[str, object], scheme: str) -> dict[str, bytes]:
    """The weights of a package of a checkpoint, by name."""
    directory.mkdir(exist_ok=True)
    imported(directory, source, config)
    quantized(directory, scheme)
    return tensors_of(directory)


def tensors_of(directory: Path) -> dict[str, bytes]:
    """What a package's weights hold, by name."""
    found: dict[str, bytes] = {}
    for record in json.loads((directory / "tensor-cache.json").read_text())["records"]:
        data = (directory / record["dataPath"]).read_bytes()
        for entry in record["records"]:
            found[entry["name"]] = data[entry["byteOffset"] : entry["byteOffset"] + entry["nbytes"]]
    return found


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_restored_is_what_the_format_defines(name: str, tmp_path: Path) -> None:
    quantization, quantizer = FORMATS[name]
    stored, restored = quantized_tensors(config_of(quantization), quantizer)
    source = opened(write(tmp_path / "model.safetensors", stored), quantization)
    assert source.descriptions.keys() == restored.keys()
    for tensor, numbers in restored.items():
        found = source.read(tensor)
        np.testing.assert_array_equal(found.data, numbers)
        if numbers.ndim == 2:
            np.testing.assert_array_equal(source.read(tensor, (8, 24)).data, numbers[8:24])


@pytest.mark.parametrize("name", FORMATS)
def test_the_weights_of_a_package_are_those_of_the_restored_checkpoint(name: str, tmp_path: Path) -> None:
    quantization, quantizer = FORMATS[name]
    stored, restored = quantized_tensors(config_of(quantization), quantizer)
    one = package(tmp_path / "one", write(tmp_path / "one.safetensors", stored), config_of(quantization), "q0f16")
    other = package(tmp_path / "other", write(tmp_path / "other.safetensors", restored), TINY_LLAMA, "q0f16")
    assert one == other


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bits": 8}, '"bits" is 8; AWQ is read with 4'),
        ({"version": "gemv"}, '"version" is "gemv"; the layout that is read is "gemm"'),
        ({"zero_point": False}, '"zero_point" is false'),
        ({"group_size": 0}, '"group_size" is 0'),
        ({"rotation": "hadamard"}, '"rotation" is not known'),
        ({"bits": "4"}, '"bits" is "4"'),
        ({"quant_method": "aqlm"}, r"quantized already \(aqlm\)(.|\n)*known: .*awq"),
    ],
)
def test_fields_that_are_not_read_are_refused(changes: Mapping[str, object], message: str) -> None:
    with pytest.raises(StageError, match=message):
        parameters_of(config_of({**AWQ, **changes}))


def test_older_names_of_fields_and_those_of_kernels_are_read() -> None:
    older = {"quant_method": "awq", "w_bit": 4, "q_group_size": 64, "version": "GEMM", "zero_point": True}
    kernels = {"do_fuse": True, "fuse_max_seq_len": 512, "modules_to_not_convert": ["lm_head"]}
    found = parameters_of(config_of({**older, **kernels})).quantized
    assert found is not None
    assert (found.format, found.configuration) == ("awq", {"group_size": 64})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scales": None}, rf"{Q_PROJ} is quantized by AWQ, and lacks {Q_PROJ}\.scales"),
        ({"scales": np.ones((1, 64), np.float16)}, r"qweight \[64, 8\], qzeros \[2, 8\], scales \[1, 64\]"),
        ({"qzeros": np.zeros((2, 8), np.float16)}, r"qzeros is float16 and has to be int32"),
        ({"weight": np.zeros((64, 64), np.float16)}, r"q_proj\.weight is there as it is, and quantized"),
        ({"scales": np.full((2, 64), np.inf, np.float16)}, r"q_proj\.weight holds .* not a finite float16"),
        (
            {
                "qweight": np.zeros((32, 8), np.int32),
                "qzeros": np.zeros((1, 8), np.int32),
                "scales": np.ones((1, 64), np.float16),
            },
            r"of another shape: \S+q_proj\.weight is 64×32 and has to be 64×64",
        ),
    ],
)
def test_damaged_awq_checkpoints_are_told(changes: Mapping[str, Array | None], message: str, tmp_path: Path) -> None:
    stored, _ = quantized_tensors(config_of(AWQ), awq(32))
    changed = {**stored, **{f"{Q_PROJ}.{name}": array for name, array in changes.items()}}
    path = write(tmp_path / "model.safetensors", {name: array for name, array in changed.items() if array is not None})
    with pytest.raises(StageError, match=message):
        package(tmp_path, path, config_of(AWQ), "q0f16")


def test_modules_that_are_left_as_they_are_are_read_so(tmp_path: Path) -> None:
    stored, restored = quantized_tensors(config_of(AWQ), awq(32))
    for part in ("qweight", "qzeros", "scales"):
        del stored[f"{Q_PROJ}.{part}"]
    stored[f"{Q_PROJ}.weight"] = restored[f"{Q_PROJ}.weight"]
    source = opened(write(tmp_path / "model.safetensors", stored), {**AWQ, "modules_to_not_convert": ["q_proj"]})
    np.testing.assert_array_equal(source.read(f"{Q_PROJ}.weight").data, restored[f"{Q_PROJ}.weight"])


def _matrix(rows: int, columns: int, groups: int, *, seed: int = 0) -> IntegerMatrix:
    random = np.random.default_rng(seed)
    return IntegerMatrix(
        codes=random.integers(0, 16, (rows, columns), np.uint8),
        zeros=random.integers(0, 16, (rows, groups), np.uint8),
        scales=random.uniform(0.1, 1, (rows, groups)).astype(np.float16),
        scale_dtype="float16",
    )


@pytest.mark.parametrize(
    "operations",
    [
        (Concatenate(axis=0),),
        (Concatenate(axis=0), Slice(axis=0, begin=3, end=11)),
        (Concatenate(axis=0), Reshape(shape=(2, 4, 2, 64)), Permute(axes=(2, 0, 1, 3)), Reshape(shape=(16, 64))),
    ],
)
def test_operations_on_rows_keep_integers(operations: tuple[Concatenate | Slice | Reshape | Permute, ...]) -> None:
    matrices = [_matrix(8, 64, 2), _matrix(8, 64, 4, seed=1)]
    made = carried_out(operations, matrices)
    assert made is not None
    assert made.group_size == 16
    expected = carry_out(operations, [one.restored() for one in matrices])
    np.testing.assert_array_equal(made.restored(), expected)


def test_operations_that_tear_groups_apart_are_found() -> None:
    assert carried_out((Permute(axes=(1, 0)),), [_matrix(64, 64, 2)]) is None
