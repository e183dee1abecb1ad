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
