"""Blocks of a GGUF file that are integers with a scale, as they are: ggml's Q4_0 and Q8_0.

Form: `block_q4_0` and `block_q8_0` of ggml-common.h. A block has a float16 scale d and 32 integers: (q - 8) d, where
the integers i and i + 16 are the low and the high half of byte i, or q d with signed bytes.
"""

from __future__ import annotations

import numpy as np

from mlcbuild.compiler.weights.integers import IntegerMatrix
from mlcbuild.compiler.weights.tensor import Array

GROUP = 32
KINDS = ("Q4_0", "Q8_0")


def integers_of(blocks: Array, kind: str) -> IntegerMatrix:
    """The integers of blocks (…, groups, bytes) of one of `KINDS`. Scales are float32: what they restore is what
    llama.cpp computes with."""
    scales = np.ascontiguousarray(blocks[..., :2]).view("<f2")[..., 0].astype("<f4")
    stored = blocks[..., 2:]
    if kind == "Q4_0":
        codes = np.concatenate([stored & np.uint8(15), stored >> np.uint8(4)], axis=-1)
    else:
        codes = stored + np.uint8(128)  # the byte of a signed number; wraps
    zero = 8 if kind == "Q4_0" else 128
    return IntegerMatrix(
        codes=codes.reshape(*scales.shape[:-1], -1),
        zeros=np.full(scales.shape, zero, np.uint8),
        scales=scales,
        scale_dtype="float32",
    )
