"""The numbers of a mixed scheme: those of the scheme that stores a matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from mlcbuild.compiler.quantization.integer_grid import GridEncoder, IntegerGrid
from mlcbuild.compiler.quantization.mixed.plugins import by_name
from mlcbuild.compiler.quantization.mixed.scheme import MixedScheme
from mlcbuild.compiler.quantization.scheme import (
    BlockEncoder,
    Encoder,
    FloatEncoder,
    IntegerEncoder,
    QuantizationScheme,
    RowEncoder,
    StaticScalesEncoder,
    Weight,
)
from mlcbuild.compiler.weights.integers import IntegerMatrix
from mlcbuild.compiler.weights.scaled_floats import FloatMatrix
from mlcbuild.compiler.weights.tensor import Array

EncoderClass = Callable[[QuantizationScheme], Encoder]


class MixedEncoder:
    """A `GridEncoder`, `FloatEncoder`, `StaticScalesEncoder`, `BlockEncoder` and `RowEncoder`, by the classes that the
    schemes name as their `encoder`."""

    def __init__(self, scheme: MixedScheme, encoders: Iterable[EncoderClass]) -> None:
        self.scheme = scheme
        classes = by_name(encoders)
        self._encoders = {each.name: classes[each.encoder](each) for each in scheme.schemes}

    def encode(self, weight: Weight, numbers: Array) -> tuple[Array, ...]:
        return self._of(weight).encode(weight, numbers)

    def has_rows_apart(self, weight: Weight) -> bool:
        encoder = self._of(weight)
        return isinstance(encoder, RowEncoder) and encoder.has_rows_apart(weight)

    def decode(self, weight: Weight, stored: Sequence[Array]) -> Array:
        return self._of(weight).decode(weight, stored)

    def error_bound(self, weight: Weight, numbers: Array) -> Array:
        return self._of(weight).error_bound(weight, numbers)

    def store(self, weight: Weight, matrix: IntegerMatrix) -> tuple[Array, ...] | None:
        encoder = self._of(weight)
        return encoder.store(weight, matrix) if isinstance(encoder, IntegerEncoder) else None

    def store_floats(self, weight: Weight, matrix: FloatMatrix) -> tuple[Array, ...] | None:
        encoder = self._of(weight)
        return encoder.store_floats(weight, matrix) if isinstance(encoder, FloatEncoder) else None

    def grid(self, weight: Weight) -> IntegerGrid | None:
        encoder = self._of(weight)
        return encoder.grid(weight) if isinstance(encoder, GridEncoder) else None

    def with_static_scales(
        self, weight: Weight, stored: Sequence[Array], activation_scales: Array
    ) -> tuple[Array, ...] | None:
        encoder = self._of(weight)
        if not isinstance(encoder, StaticScalesEncoder):
            return None
        return encoder.with_static_scales(weight, stored, activation_scales)

    def static_scales_of(self, weight: Weight, largest: Array) -> Array | None:
        encoder = self._of(weight)
        return encoder.static_scales_of(weight, largest) if isinstance(encoder, StaticScalesEncoder) else None

    def block_kind(self, weight: Weight) -> str | None:
        encoder = self._of(weight)
        return encoder.block_kind(weight) if isinstance(encoder, BlockEncoder) else None

    def _of(self, weight: Weight) -> Encoder:
        return self._encoders[self.scheme.scheme_of(weight).name]
