"""Checkpoints of every format give the same tensors, and damage is told."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import random
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from mlcbuild.compiler.weights.checkpoint import Checkpoint, sources_of
from mlcbuild.compiler.weights.source import WeightSource, open_source
from mlcbuild.errors import StageError
from tests.compiler.resolving import parameters_of
from tests.compiler.tiny_models import TINY, Array, checkpoint, write_gguf, write_torch


def read_all(source: WeightSource, dtype: str = "float32") -> dict[str, Array]:
    tensors = {name: source.read(name).numbers(dtype) for name in source.descriptions}
    source.close()
    return tensors


def read_gguf(path: Path) -> dict[str, Array]:
    """All tensors by Hugging Face's names, as the tiny model's family finds them."""
    parameters = parameters_of(TINY)
    source = open_source(path)
    found = Checkpoint(source, parameters, where=str(path))
    tensors = {tensor.name: found.read(tensor.name).numbers("float32") for tensor in sources_of(parameters.parameters)}
    source.close()
    return tensors


def assert_same(found: dict[str, Array], expected: dict[str, Array]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found[name], tensor, err_msg=name)


def test_safetensors_file_is_read_as_its_library_wrote_it(tmp_path: Path) -> None:
    tensors = checkpoint()
    save_file(tensors, tmp_path / "model.safetensors")
    assert_same(read_all(open_source(tmp_path)), tensors)


def test_safetensors_shards_are_read_through_their_index(tmp_path: Path) -> None:
    tensors = checkpoint()
    names = sorted(tensors)
    files = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, members in files.items():
        save_file({name: tensors[name] for name in members}, tmp_path / file)
    weight_map = {name: file for file, members in files.items() for name in members}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert_same(read_all(open_source(tmp_path)), tensors)


def test_bfloat16_safetensors_widen_exactly(tmp_path: Path) -> None:
    bits = np.array([[0x3F80, 0xC049, 0x0001, 0x7F7F]], "<u2")
    header = json.dumps({"w": {"dtype": "BF16", "shape": [1, 4], "data_offsets": [0, 8]}}).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bits.tobytes())
    expected = (bits.astype(np.uint32) << 16).view(np.float32)
    assert_same(read_all(open_source(path)), {"w": expected})


def test_float16_checkpoint_keeps_its_bits(tmp_path: Path) -> None:
    tensors = {"w": np.array([1.5, -65504, 6e-8], np.float16)}
    save_file(tensors, tmp_path / "model.safetensors")
    assert_same(read_all(open_source(tmp_path), "float16"), tensors)


def test_gguf_undoes_the_interleaving_of_query_and_key_rows(tmp_path: Path) -> None:
    tensors = checkpoint()
    assert_same(read_gguf(write_gguf(tmp_path / "m.gguf", tensors)), tensors)


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_gguf_quantized_types_are_close_to_what_was_quantized(tmp_path: Path, kind: str) -> None:
    tensors = checkpoint()
    found = read_gguf(write_gguf(tmp_path / "m.gguf", tensors, kind=kind))
    # The coarsest type, Q4_0, has sixteen steps of an eighth of a block's largest weight; one end is a step short.
    for name, tensor in tensors.items():
        assert np.abs(found[name] - tensor).max() <= np.abs(tensor).max() / 8 * 1.001, name
        assert tensor.ndim == 1 or not np.array_equal(found[name], tensor), name


@pytest.mark.parametrize("kind", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"])
def test_gguf_k_quants_are_read_row_by_row(tmp_path: Path, kind: str) -> None:
    import gguf

    quantized_type = gguf.GGMLQuantizationType[kind]
    block, size = gguf.GGML_QUANT_SIZES[quantized_type]
    stored = np.random.default_rng(2).integers(0, 255, (6, 512 // block * size), np.uint8)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_head_count(2)
    writer.add_tensor("blk.0.attn_norm.weight", np.ones(8, np.float32))
    writer.add_tensor("blk.0.ffn_down.weight", stored, raw_dtype=quantized_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    source = open_source(tmp_path / "m.gguf")
    found = source.read("blk.0.ffn_down.weight").data
    source.close()
    assert found.shape == (6, 512)
    with np.errstate(all="ignore"):
        for row in range(6):
            np.testing.assert_array_equal(found[row], gguf.quants.dequantize(stored[row], quantized_type))


def test_torch_checkpoint_is_read_without_torch(tmp_path: Path) -> None:
    tensors = checkpoint()
    turned = frozenset({"model.layers.0.self_attn.o_proj.weight", "lm_head.weight"})
    path = write_torch(tmp_path / "pytorch_model.bin", tensors, transposed=turned)
    assert_same(read_all(open_source(tmp_path)), tensors)
    assert_same(read_all(open_source(path)), tensors)


def test_torch_checkpoint_below_a_key_of_a_training_framework_is_read(tmp_path: Path) -> None:
    tensors = {"w": np.arange(6, dtype=np.float16).reshape(2, 3)}
    path = write_torch(tmp_path / "x.pth", tensors, wrapper="state_dict")
    assert_same(read_all(open_source(path), "float16"), tensors)


class _Harmful:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("made-by-a-pickle",)


def test_torch_checkpoint_that_calls_code_is_refused_and_nothing_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import zipfile

    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile(tmp_path / "evil.bin", "w") as archive:
        archive.writestr("evil/data.pkl", pickle.dumps({"w": _Harmful()}, protocol=2))
    with pytest.raises(StageError, match=r"w is no tensor that can be read without running code.*mkdir"):
        open_source(tmp_path / "evil.bin")
    assert not (tmp_path / "made-by-a-pickle").exists()


def test_legacy_torch_checkpoint_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "old.bin"
    path.write_bytes(pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2))
    with pytest.raises(StageError, match=r"before torch 1\.6"):
        open_source(path)


def test_truncated_gguf_says_where_it_ends_and_should_end(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", checkpoint())
    size = path.stat().st_size
    os.truncate(path, size - 1000)
    with pytest.raises(StageError, match=rf"ends at byte {size - 1000} and should have (\d+)") as caught:
        open_source(path)
    assert size - 64 <= int(str(caught.value).split("should have ")[1].split()[0]) <= size


@pytest.mark.parametrize("size", [3, 20, 30, 200, 1500])
def test_gguf_truncated_inside_its_header_says_what_it_was_reading(tmp_path: Path, size: int) -> None:
    path = write_gguf(tmp_path / "m.gguf", checkpoint())
    os.truncate(path, size)
    with pytest.raises(StageError, match=r"truncated|no checkpoint"):
        open_source(path)


def test_truncated_safetensors_says_where_it_ends_and_should_end(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file(checkpoint(), path)
    size = path.stat().st_size
    os.truncate(path, size - 8)
    with pytest.raises(StageError, match=rf"ends at byte {size - 8} and should have {size}"):
        open_source(path)


def test_truncated_torch_checkpoint_is_told(tmp_path: Path) -> None:
    path = write_torch(tmp_path / "m.bin", checkpoint())
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(StageError, match=r"m\.bin is truncated or damaged"):
        open_source(path)


def test_flipped_bit_in_a_torch_checkpoint_is_found_by_its_checksum(tmp_path: Path) -> None:
    path = write_torch(tmp_path / "m.bin", {"w": np.ones((8, 8), np.float32)})
    data = bytearray(path.read_bytes())
    data[data.index(np.ones(8, np.float32).tobytes()) + 5] ^= 4
    path.write_bytes(data)
    source = open_source(path)
    with pytest.raises(StageError, match="damaged"):
        source.read("w")
    source.close()


def test_any_damage_to_an_archive_is_told_or_read(tmp_path: Path) -> None:
    path = write_torch(tmp_path / "m.bin", {"w": np.ones((2, 2), np.float32)})
    whole, places = path.read_bytes(), random.Random(0)
    for _ in range(400):
        place = places.randrange(len(whole))
        path.write_bytes(whole[:place] + places.choice((b"\0", b"\1", b"\xff")) + whole[place + 1 :])
        with contextlib.suppress(StageError):
            source = open_source(path)
            for name in source.descriptions:
                source.read(name)
            source.close()


def test_formats_in_a_directory_are_taken_in_order(tmp_path: Path) -> None:
    def first(seed: int) -> Array:
        return checkpoint(seed=seed)["model.norm.weight"]

    def found(name: str = "model.norm.weight") -> Array:
        return read_all(open_source(tmp_path))[name]

    write_gguf(tmp_path / "m.gguf", checkpoint(seed=3))
    assert np.array_equal(found("output_norm.weight"), first(3))
    write_torch(tmp_path / "pytorch_model.bin", checkpoint(seed=2))
    assert np.array_equal(found(), first(2))
    save_file(checkpoint(seed=1), tmp_path / "model.safetensors")
    assert np.array_equal(found(), first(1))


def test_reading_writes_nothing_into_the_source(tmp_path: Path) -> None:
    save_file(checkpoint(), tmp_path / "model.safetensors")
    before = sorted(path.name for path in tmp_path.iterdir())
    tmp_path.chmod(0o555)
    try:
        read_all(open_source(tmp_path))
    finally:
        tmp_path.chmod(0o755)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_directory_without_weights_is_told(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(StageError, match="holds no weights"):
        open_source(tmp_path)


def test_index_that_names_a_file_outside_is_refused(tmp_path: Path) -> None:
    save_file({"w": np.ones(2, np.float32)}, tmp_path / "outside.safetensors")
    inside = tmp_path / "inside"
    inside.mkdir()
    index = {"weight_map": {"w": "../outside.safetensors"}}
    (inside / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(StageError, match="which is not there"):
        open_source(inside)
