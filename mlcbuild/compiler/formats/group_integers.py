"""The integers and scales of a matrix that a `GroupScheme` stores, by rows, whatever the scheme's layout."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlcbuild.compiler.quantization.group.encoder import GroupEncoder
from mlcbuild.compiler.quantization.group.scheme import GroupScheme
from mlcbuild.compiler.quantization.scheme import Weight
from mlcbuild.compiler.weights.tensor import Array

_PIECE_ROWS = 1 << 12


def group_integers(scheme: GroupScheme, weight: Weight, stored: Sequence[Array]) -> tuple[Array, Array]:
    """The integers, uint8 (…, columns), and the scales (…, groups), of the arrays that the scheme stores for a weight
    (…, columns). A scale is that of the scheme, and an integer q stands for (q - max_int) scale."""
    if scheme.is_by_columns(weight.role):
        words, scales = (np.ascontiguousarray(array.T) for array in stored)
    else:
        words, scales = stored
    rows = words.reshape(-1, words.shape[-1])
    encoder = GroupEncoder(scheme)
    integers = np.empty((len(rows), words.shape[-1] * scheme.elements_per_word), np.uint8)
    for begin in range(0, len(rows), _PIECE_ROWS):
        integers[begin : begin + _PIECE_ROWS] = encoder.unpack(rows[begin : begin + _PIECE_ROWS])
    return integers.reshape(*weight.shape[:-1], -1), scales


def offset_integers(integers: Array, scales: Array, *, bits: int) -> tuple[Array, Array]:
    """Codes (…, columns), uint8, that stand for (code - 2^(bits - 1)) scale, and their scales (…, groups), of integers
    that stand for (q - 2^(bits - 1) + 1) scale.

    Integers of a checkpoint that are kept may be 2^bits - 1, one more than a scheme makes of numbers: q + 1 has no room
    there. Then the scale's sign is turned, and the code is 2^bits - 1 - q.
    """
    groups = integers.reshape(*scales.shape, -1)
    top = np.uint8((1 << bits) - 1)
    turned = (groups == top).any(axis=-1)
    codes = np.where(turned[..., np.newaxis], top - groups, groups + np.uint8(1))
    return codes.reshape(integers.shape), np.where(turned, -scales, scales)
