"""MXFP4 of Hugging Face's checkpoints: the numbers of transformers, one expert in memory at a time, and what is told of
damaged ones."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcbuild.compiler.stages import import_weights
from mlcbuild.compiler.weights.checkpoint import Checkpoint, sources_of
from mlcbuild.compiler.weights.gguf_file import GGUFFile
from mlcbuild.compiler.weights.mxfp4 import MXFP4Weights, dequantize
from mlcbuild.compiler.weights.safetensors_file import SafetensorsFile, write_safetensors
from mlcbuild.compiler.weights.source import open_source
from mlcbuild.compiler.weights.tensor import Rows, Tensor, TensorDescription
from mlcbuild.errors import StageError
from tests.compiler.gguf_cases import CASES
from tests.compiler.gguf_writing import file_of
from tests.compiler.resolving import model_of, parameters_of, readers, write_resolved
from tests.compiler.staged_weights import imported
from tests.compiler.tiny_models import Array
from tests.parity_packages import parity_package

_CONFIG: Mapping[str, Any] = {
    "model_type": "gpt_oss",
    "hidden_size": 64,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 64,
    "num_local_experts": 3,
    "num_experts_per_tok": 2,
    "tie_word_embeddings": False,
    "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]},
}
_EXPERTS = "model.layers.0.mlp.experts"


def _wide(bits: Array) -> Array:
    return (bits.astype(np.uint32) << 16).view(np.float32)


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 3))
@settings(deadline=None, max_examples=30)
def test_numbers_are_those_of_transformers(seed: int, rows: int, columns: int) -> None:
    torch = parity_package("torch")
    mxfp4 = parity_package("transformers.integrations.mxfp4")
    random = np.random.default_rng(seed)
    blocks = random.integers(0, 256, (2, rows, columns, 16), dtype=np.uint8)
    scales = random.integers(100, 150, (2, rows, columns), dtype=np.uint8)
    found = _wide(dequantize(blocks, scales))
    expected = mxfp4.convert_moe_packed_tensors(torch.from_numpy(blocks), torch.from_numpy(scales))
    np.testing.assert_array_equal(found, expected.float().numpy().transpose(0, 2, 1))


def test_every_scale_is_a_power_of_two_and_the_last_is_no_number() -> None:
    scales = np.arange(256, dtype=np.uint8)
    ones = np.full((256, 16), 0x22, np.uint8)
    found = _wide(dequantize(ones, scales)).reshape(256, 32)
    np.testing.assert_array_equal(found[:255, 0].astype(np.float64), 2.0 ** (np.arange(255.0) - 127))
    assert np.isnan(found[255]).all()


def _checkpoint(*, seed: int = 0) -> dict[str, Array]:
    """The tensors of a checkpoint as it was published, those in bfloat16 as their bits."""
    random = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for tensor in sources_of(parameters_of(_CONFIG).parameters):
        if ".experts." not in tensor.name or "_bias" in tensor.name:
            name = tensor.others[0].name if tensor.others else tensor.name
            numbers = random.standard_normal(tensor.shape).astype(np.float32)
            found[name] = (numbers.view(np.uint32) >> 16).astype("<u2")
    for name, rows, columns in (("gate_up_proj", 64, 64), ("down_proj", 64, 32)):
        found[f"{_EXPERTS}.{name}_blocks"] = random.integers(0, 256, (3, rows, columns // 32, 16), dtype=np.uint8)
        found[f"{_EXPERTS}.{name}_scales"] = random.integers(110, 130, (3, rows, columns // 32), dtype=np.uint8)
    return found


def _write(path: Path, tensors: Mapping[str, Array]) -> Path:
    types = {np.dtype("u1"): "uint8", np.dtype("<u2"): "bfloat16"}
    described = [
        TensorDescription(name=name, dtype=types[array.dtype], shape=array.shape) for name, array in tensors.items()
    ]
    write_safetensors(path, described, lambda one: Tensor(description=one, data=tensors[one.name]))
    return path


def _dequantized(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """The same checkpoint as transformers has it in memory."""
    found = {name: array for name, array in tensors.items() if array.dtype != np.uint8}
    for name in ("gate_up_proj", "down_proj"):
        blocks, scales = (tensors[f"{_EXPERTS}.{name}_{part}"] for part in ("blocks", "scales"))
        found[f"{_EXPERTS}.{name}"] = np.ascontiguousarray(dequantize(blocks, scales).transpose(0, 2, 1))
    return found


def _imported(directory: Path, source: Path) -> list[bytes]:
    directory.mkdir()
    manifest = imported(directory, source, _CONFIG)
    return [(directory / "shards" / entry["file"]).read_bytes() for entry in manifest["shards"]]


def test_shards_are_those_of_the_checkpoint_in_bfloat16(tmp_path: Path) -> None:
    tensors = _checkpoint()
    one = _imported(tmp_path / "one", _write(tmp_path / "mxfp4.safetensors", tensors))
    other = _imported(tmp_path / "other", _write(tmp_path / "bfloat16.safetensors", _dequantized(tensors)))
    assert one == other


class _Watched(SafetensorsFile):
    """A file that remembers the largest part of a tensor of bytes that was read."""

    largest = 0

    def read(self, name: str, rows: Rows | None = None) -> Tensor:
        tensor = super().read(name, rows)
        if tensor.data.dtype == np.uint8:
            self.largest = max(self.largest, tensor.data.size)
        return tensor


def test_one_expert_is_read_at_a_time(tmp_path: Path) -> None:
    watched = _Watched(_write(tmp_path / "m.safetensors", _checkpoint()))
    checkpoint = Checkpoint(MXFP4Weights(watched), parameters_of(_CONFIG), where="it")
    for tensor in sources_of(parameters_of(_CONFIG).parameters):
        checkpoint.read(tensor.name)
    assert watched.largest == 64 * 64 // 2


def test_blocks_and_scales_may_be_in_several_files(tmp_path: Path) -> None:
    tensors = _checkpoint()
    scales = {name for name in tensors if name.endswith("_scales")}
    folder = tmp_path / "parts"
    folder.mkdir()
    for number, names in enumerate((tensors.keys() - scales, scales)):
        _write(folder / f"{number}.safetensors", {name: tensors[name] for name in sorted(names)})
    index = {"weight_map": {name: f"{int(name in scales)}.safetensors" for name in tensors}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    whole = _imported(tmp_path / "whole", _write(tmp_path / "m.safetensors", tensors))
    assert _imported(tmp_path / "apart", folder) == whole


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"down_proj_scales": None}, "lacks its scales, .*down_proj_scales"),
        ({"down_proj_scales": np.zeros((3, 64, 2), np.uint8)}, r"is no MXFP4: its blocks are uint8 \[3, 64, 1, 16\]"),
        ({"down_proj_blocks": np.zeros((3, 64, 1, 8), np.uint8)}, r"is no MXFP4: its blocks are uint8 \[3, 64, 1, 8\]"),
        ({"down_proj_blocks": np.zeros((3, 32, 1, 16), np.uint8), "down_proj_scales": np.zeros((3, 32, 1), np.uint8)},
         r"of another shape: \S+down_proj_blocks is 3×32×32 and has to be 3×64×32"),
        ({"down_proj_blocks": None}, r"missing: \S+experts\.0\.down_proj\.weight"),
    ],
)  # fmt: skip
def test_damaged_checkpoints_are_told(tmp_path: Path, changes: Mapping[str, Array | None], message: str) -> None:
    tensors = {**_checkpoint(), **{f"{_EXPERTS}.{name}": array for name, array in changes.items()}}
    path = _write(tmp_path / "m.safetensors", {name: array for name, array in tensors.items() if array is not None})
    with pytest.raises(StageError, match=message) as raised:
        Checkpoint(open_source(path), parameters_of(_CONFIG), where=str(path))
    assert str(raised.value)


def _check_truncated(directory: Path, source: Path, document: Mapping[str, Any], *, size: int) -> None:
    """A file that is cut off at `size` is refused with the bytes that it has and should have; nothing is written."""
    whole = source.stat().st_size
    os.truncate(source, size)
    directory.mkdir()
    write_resolved(directory, document)
    with pytest.raises(
        StageError, match=rf"{source.name} is truncated: it ends at byte {size} and should have {whole}"
    ):
        import_weights.run(
            readers=readers(),
            source=source,
            parameters=directory / "parameters.json",
            manifest=directory / "manifest.json",
            shards=directory / "shards",
        )
    assert not (directory / "manifest.json").exists()
    assert not (directory / "shards").exists()


@pytest.mark.parametrize("cut", [1, 16, 17, 6144])
def test_truncated_blocks_of_safetensors_are_told(tmp_path: Path, cut: int) -> None:
    tensors, last = _checkpoint(), f"{_EXPERTS}.gate_up_proj_blocks"
    assert tensors[last].nbytes == 6144
    blocks = tensors.pop(last)
    path = _write(tmp_path / "m.safetensors", {**tensors, last: blocks})
    _check_truncated(tmp_path / "out", path, _CONFIG, size=path.stat().st_size - cut)


@pytest.mark.parametrize("kept", [0, 16, 17, 18, 17 * 64])
def test_truncated_blocks_of_gguf_are_told(tmp_path: Path, kept: int) -> None:
    case = CASES["gpt_oss-mxfp4"]
    path = file_of(tmp_path / "m.gguf", case)
    file = GGUFFile(path)
    begin = file.tensors["blk.0.ffn_down_exps.weight"].begin
    file.close()
    _check_truncated(tmp_path / "out", path, case.config, size=begin + kept)


def test_other_methods_of_quantization_are_refused() -> None:
    assert model_of(_CONFIG).family == "gpt_oss"
    changes: Mapping[str, object]
    for changes in (
        {"quantization_config": {"quant_method": "aqlm"}},
        {"quantization": {"quant_method": "mxfp4"}},
        {"model_type": "llama"},
    ):
        with pytest.raises(StageError, match="quantized already"):
            model_of({**_CONFIG, **changes})
