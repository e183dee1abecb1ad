"""Each quantized type of GGUF files gives the numbers that llama.cpp gives, to the bit."""

from __future__ import annotations

import contextlib
import random
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest

from mlcbuild.compiler.weights import gguf_weights
from mlcbuild.compiler.weights.gguf_weights import GGUFWeights
from mlcbuild.errors import StageError
from tests.compiler.llama_cpp import dequantized
from tests.compiler.tiny_models import Array

TYPES = (
    *("Q1_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q8_K"),
    *("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS"),
    *("TQ1_0", "TQ2_0", "MXFP4", "NVFP4"),
)


def write_one_tensor(path: Path, kind: str, stored: Array) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("w", stored, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("kind", TYPES)
def test_numbers_are_those_of_llama_cpp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Any bytes are blocks: these are of all codes, scales and signs. Several pieces, of which the last is smaller."""
    monkeypatch.setattr(gguf_weights, "_PIECE_ELEMENTS", 3000)
    elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    rows, blocks = 23, 1024 // elements * 3
    stored = np.random.default_rng(0).integers(0, 256, (rows, blocks * size), np.uint8)
    source = GGUFWeights(write_one_tensor(tmp_path / "m.gguf", kind, stored))
    read = source.read("w").data
    source.close()
    expected = dequantized(kind.lower().replace("_k", "_K"), stored.tobytes(), read.size)
    assert read.shape == (rows, blocks * elements)
    same = (read.reshape(-1).view(np.uint32) == expected.view(np.uint32)) | (
        np.isnan(read.reshape(-1)) & np.isnan(expected)
    )
    assert same.all(), np.flatnonzero(~same)[:10]


def test_every_type_that_the_library_knows_is_read_or_holds_no_weights() -> None:
    plain = {"F32", "F16", "BF16"}
    others = {"Q8_1", "I8", "I16", "I32", "I64", "F64"}
    assert {kind.name for kind in gguf.GGMLQuantizationType} == {*TYPES, *plain, *others}


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((), r"the tensor w has rows of 1 elements, in blocks of 256"),
        ((100, 3), r"the tensor w has rows of 100 elements, in blocks of 256"),
        ((256, 1 << 62), r"is truncated: it ends at byte \d+ and should have \d+"),
        ((1 << 63, 1 << 63), r"is truncated: it ends at byte"),
        ((256, 3), r"is truncated: it ends at byte"),
        ((256, 1, 1, 1, 1), r"the tensor w has 5 axes"),
    ],
)
def test_shapes_that_cannot_be_are_told(tmp_path: Path, shape: tuple[int, ...], message: str) -> None:
    """A header with one tensor of type Q4_K, fastest axis first, and the bytes of two of its blocks."""
    sizes = b"".join(struct.pack("<Q", size) for size in shape)
    entry = struct.pack("<Q", 1) + b"w" + struct.pack("<I", len(shape)) + sizes + struct.pack("<IQ", 12, 0)
    content = (b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + entry).ljust(96, b"\0") + bytes(288)
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(StageError, match=message):
        GGUFWeights(tmp_path / "m.gguf")


def test_any_damage_to_a_header_is_told_or_read(tmp_path: Path) -> None:
    path = write_one_tensor(tmp_path / "m.gguf", "Q4_K", np.zeros((2, 144), np.uint8))
    whole, source = path.read_bytes(), random.Random(0)
    for _ in range(400):
        broken = bytearray(whole)
        for _ in range(source.randrange(1, 5)):
            broken[source.randrange(8, 120)] = source.choice((0, 1, 255, source.randrange(256)))
        path.write_bytes(broken)
        with contextlib.suppress(StageError):
            weights = GGUFWeights(path)
            for name in weights.descriptions:
                weights.read(name)
            weights.close()


def test_integers_are_no_weights(tmp_path: Path) -> None:
    source = GGUFWeights(write_one_tensor(tmp_path / "m.gguf", "I32", np.zeros((2, 32), np.int32)))
    with pytest.raises(StageError, match=r"the tensor w is of type I32, which holds no weights"):
        source.read("w")
    source.close()
