"""The numbers of parameters that are stored as they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlcbuild.compiler.quantization.scheme import QuantizationScheme, Weight
from mlcbuild.compiler.weights.tensor import Array


class UnquantizedEncoder:
    """A `RowEncoder` that changes nothing."""

    def __init__(self, scheme: QuantizationScheme) -> None:
        self.scheme = scheme

    def encode(self, weight: Weight, numbers: Array) -> tuple[Array, ...]:  # noqa: ARG002
        return (numbers,)

    def has_rows_apart(self, weight: Weight) -> bool:  # noqa: ARG002
        return True

    def decode(self, weight: Weight, stored: Sequence[Array]) -> Array:  # noqa: ARG002
        return stored[0]

    def error_bound(self, weight: Weight, numbers: Array) -> Array:  # noqa: ARG002
        return np.zeros(numbers.shape)
