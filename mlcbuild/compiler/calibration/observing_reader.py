"""The reading side of a model that is observed: it computes in float32, and notes what matrices are multiplied by."""

from __future__ import annotations

from collections.abc import Sequence

from tvm.relax.frontend import nn

from mlcbuild.compiler.quantization.scheme import QuantizationScheme, Weight
from mlcbuild.compiler.quantization.unquantized.reader import UnquantizedReader


class ObservingReader(UnquantizedReader):
    """`observed` are the inputs of matrices in the order in which layers are traced, each with all that read it."""

    def __init__(self, scheme: QuantizationScheme) -> None:
        super().__init__(scheme)
        self.observed: list[tuple[nn.Tensor, list[str]]] = []

    def activations(self, weight: Weight, stored: Sequence[nn.Tensor], x: nn.Tensor) -> nn.Tensor:  # noqa: ARG002
        for seen, names in self.observed:
            if seen._expr.same_as(x._expr):
                names.append(weight.name)
                return x
        self.observed.append((x, [weight.name]))
        return x
