"""A file's format is found by its bytes, and no format is taken for another."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from mlcbuild.compiler.weights.file_format import WeightFormat, weight_format
from mlcbuild.compiler.weights.source import gguf_files, open_source
from mlcbuild.errors import StageError
from tests.compiler.tiny_models import checkpoint, write_gguf, write_torch

POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 13476939516\n"
)


def write_safetensors_with_header_of(path: Path, length: int) -> Path:
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode().ljust(length)
    path.write_bytes(struct.pack("<Q", length) + header + np.array([1, 2], "<f4").tobytes())
    return path


@pytest.mark.parametrize("name", ["model.safetensors", "blob"])
@pytest.mark.parametrize("first_byte", range(256))
def test_a_safetensors_file_is_read_whatever_its_first_byte(tmp_path: Path, name: str, first_byte: int) -> None:
    """The format's library pads headers to a multiple of 8; others do not. 0x80 is how a pickle begins."""
    path = write_safetensors_with_header_of(tmp_path / name, 256 + first_byte)
    assert load_file(path)["w"].tolist() == [1, 2]
    assert open_source(path).read("w").data.tolist() == [1, 2]
    assert gguf_files(path) == ()


@pytest.mark.parametrize("second_byte", range(2, 6))
def test_a_header_whose_length_is_a_pickles_first_two_bytes_is_read(tmp_path: Path, second_byte: int) -> None:
    path = write_safetensors_with_header_of(tmp_path / "model.safetensors", 0x80 + 256 * second_byte)
    assert open_source(path).read("w").data.tolist() == [1, 2]


def test_a_header_whose_length_is_a_zip_files_first_bytes_is_read(tmp_path: Path) -> None:
    path = write_safetensors_with_header_of(tmp_path / "model.safetensors", int.from_bytes(b"PK\x03\x04", "little"))
    assert open_source(path).read("w").data.tolist() == [1, 2]


def test_formats_are_known_by_their_bytes_under_any_name(tmp_path: Path) -> None:
    tensors = checkpoint()
    save_file(tensors, tmp_path / "one.bin")
    write_torch(tmp_path / "two.safetensors", tensors)
    write_gguf(tmp_path / "three.bin", tensors)
    assert weight_format(tmp_path / "one.bin") is WeightFormat.SAFETENSORS
    assert weight_format(tmp_path / "two.safetensors") is WeightFormat.TORCH
    assert weight_format(tmp_path / "three.bin") is WeightFormat.GGUF


def an_old_torch_checkpoint() -> bytes:
    return pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)


def a_big_endian_gguf() -> bytes:
    return b"GGUF" + struct.pack(">IQQ", 3, 0, 0) + bytes(16)


def a_big_endian_torch_checkpoint() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("m/data.pkl", b"\x80\x02}.")
        archive.writestr("m/byteorder", b"big")
    return stream.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.safetensors", POINTER, r"is a Git LFS pointer, .* has 13,476,939,516 bytes\n.*`git lfs pull`"),
        ("model.gguf", POINTER, r"is a Git LFS pointer"),
        ("pytorch_model.bin", POINTER, r"is a Git LFS pointer"),
        ("model.safetensors", b"/annex/objects/SHA256E-s4--abc.safetensors\n", r"is a git-annex pointer"),
        ("model.safetensors", b"<!DOCTYPE html><html>", r"is a web page"),
        ("model.safetensors", b"", r"is empty"),
        ("model.safetensors", bytes(4096), r"is not a safetensors file: it begins with"),
        ("pytorch_model.bin", an_old_torch_checkpoint(), r"before torch 1\.6"),
        ("ggml-model.bin", b"tjgg" + bytes(32), r"a format that llama\.cpp had before GGUF"),
        ("model.gguf", a_big_endian_gguf(), r"is of big-endian byte order, .*\n.*gguf-convert-endian"),
        ("pytorch_model.bin", a_big_endian_torch_checkpoint(), r"is of big-endian byte order, .*\n.*save it again"),
    ],
)
def test_what_cannot_be_read_is_said_for_what_it_is(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    for source in (tmp_path, tmp_path / name):
        with pytest.raises(StageError, match=message) as raised:
            open_source(source)
        assert str(tmp_path / name) in raised.value.message


@pytest.mark.parametrize(
    ("standard", "others"),
    [
        ("model.safetensors", ("adapter_model.safetensors", "model.fp16.safetensors", "consolidated.safetensors")),
        ("pytorch_model.bin", ("rng_state.pth", "rng_state_0.pth", "training_args.bin", "adapter_model.bin", "x.pt")),
        ("weights.bin", ("rng_state.pth", "optimizer.pt", "scheduler.pt", "scaler.pt", "adapter_model.bin")),
    ],
)
def test_the_file_of_the_standard_name_is_the_model(tmp_path: Path, standard: str, others: tuple[str, ...]) -> None:
    def write(name: str, value: float) -> None:
        tensors = {"w": np.full(2, value, np.float32)}
        if name.endswith(".safetensors"):
            save_file(tensors, tmp_path / name)
        else:
            write_torch(tmp_path / name, tensors)

    for other in others:
        write(other, 9)
    write(standard, 1)
    assert open_source(tmp_path).read("w").data.tolist() == [1, 1]


def test_one_file_comes_before_an_index_as_in_transformers(tmp_path: Path) -> None:
    save_file({"w": np.ones(2, np.float32)}, tmp_path / "model.safetensors")
    save_file({"w": np.zeros(2, np.float32)}, tmp_path / "model-00001-of-00001.safetensors")
    index = {"weight_map": {"w": "model-00001-of-00001.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert open_source(tmp_path).read("w").data.tolist() == [1, 1]


def test_training_state_beside_a_gguf_file_is_not_the_model(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", checkpoint())
    write_torch(tmp_path / "rng_state.pth", {"w": np.ones(2, np.float32)})
    assert gguf_files(tmp_path) == (tmp_path / "m.gguf",)
    source = open_source(tmp_path)
    assert "output_norm.weight" in source.descriptions
    source.close()


def test_an_adapter_is_not_a_model(tmp_path: Path) -> None:
    save_file({"w": np.ones(2, np.float32)}, tmp_path / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "base_model_name_or_path": "meta-llama/Llama-3.2-1B"}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(StageError, match=r'adapter \(LORA\), not a model(.|\n)*"meta-llama/Llama-3\.2-1B"'):
        open_source(tmp_path)


def test_several_gguf_files_are_told_with_what_to_do(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_gguf(tmp_path / f"{name}.gguf", checkpoint())
    for read in (open_source, gguf_files):
        with pytest.raises(StageError, match=r"holds 2 GGUF files, which are not parts of one: a\.gguf"):
            read(tmp_path)


def test_a_tensor_that_a_header_has_twice_is_told(tmp_path: Path) -> None:
    entry = '"w":{"dtype":"F32","shape":[1],"data_offsets":'
    header = f"{{{entry}[0,4]}},{entry}[4,8]}}}}".encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    with pytest.raises(StageError, match=r'"w" is there twice'):
        open_source(path)
