"""How kernels read integers with one scale a row: as those of a group that is a whole row."""

from __future__ import annotations

from collections.abc import Sequence

from tvm.relax.frontend import nn

from mlcbuild.compiler.quantization.ft.scheme import FtScheme
from mlcbuild.compiler.quantization.group.reader import GroupReader
from mlcbuild.compiler.quantization.reader import Reader
from mlcbuild.compiler.quantization.scheme import Weight


class FtReader(Reader):
    """The `Reader` of a scheme of integers with one scale a row."""

    scheme: FtScheme

    def restored(self, weight: Weight, stored: Sequence[nn.Tensor]) -> nn.Tensor:
        if not self.scheme.covers(weight.role):
            return stored[0]
        return GroupReader(self.scheme.groups_of(weight)).restored(weight, stored)
