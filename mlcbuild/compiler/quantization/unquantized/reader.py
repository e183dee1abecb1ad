"""Matrices that are stored as they are need no kernel to be read."""

from __future__ import annotations

from collections.abc import Sequence

from tvm.relax.frontend import nn

from mlcbuild.compiler.quantization.reader import Reader
from mlcbuild.compiler.quantization.scheme import Weight


class UnquantizedReader(Reader):
    """The `Reader` of a scheme that quantizes nothing."""

    def restored(self, weight: Weight, stored: Sequence[nn.Tensor]) -> nn.Tensor:  # noqa: ARG002
        return stored[0]
