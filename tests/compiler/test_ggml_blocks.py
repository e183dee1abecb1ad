"""Blocks of ggml's types stand for the numbers of the integers and scales that they are made of, to the bit."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from mlcbuild.compiler.formats.gguf.blocks import blocks_of

TYPES = {4: gguf.GGMLQuantizationType.Q4_0, 8: gguf.GGMLQuantizationType.Q8_0}


@pytest.mark.parametrize("bits", TYPES)
@pytest.mark.parametrize("highest", [-1, 0], ids=["as schemes make them", "all integers"])
def test_blocks_stand_for_the_same_numbers(bits: int, highest: int) -> None:
    random = np.random.default_rng(bits)
    integers = random.integers(0, (1 << bits) + highest, (64, 96), dtype=np.uint8)
    scales = random.standard_normal((64, 3)).astype(np.float16)
    blocks = blocks_of(integers, scales, bits=bits)
    raw = np.frombuffer(blocks.tobytes(), np.uint8).reshape(64, -1)
    found = gguf.dequantize(raw, TYPES[bits])
    offsets = integers.astype(np.float32) - (2 ** (bits - 1) - 1)
    expected = offsets * np.repeat(scales.astype(np.float32), 32, axis=1)
    assert (found == expected).all()
    assert (integers == (1 << bits) - 1).any() == (highest == 0)
