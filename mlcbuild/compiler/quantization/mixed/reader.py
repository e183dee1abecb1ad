"""How a model's layers compute with matrices of several schemes: each by the reader of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tvm.relax.frontend import nn

from mlcbuild.compiler.quantization.mixed.layers import layer_kind
from mlcbuild.compiler.quantization.mixed.plugins import by_name
from mlcbuild.compiler.quantization.mixed.scheme import MixedScheme
from mlcbuild.compiler.quantization.reader import Reader
from mlcbuild.compiler.quantization.scheme import QuantizationScheme, Weight

ReaderClass = Callable[[QuantizationScheme], Reader]


class MixedReader(Reader):
    """The `Reader` of a scheme made of several, by the classes that these name as their `reader`."""

    scheme: MixedScheme

    def __init__(self, scheme: MixedScheme, readers: Iterable[ReaderClass]) -> None:
        super().__init__(scheme)
        classes = by_name(readers)
        self._readers = {each.name: classes[each.reader](each) for each in scheme.schemes}

    def of(self, weight: Weight) -> Reader:
        return self._readers[self.scheme.scheme_of(weight).name]

    def layer_kind(self, name: str) -> str:
        return layer_kind(self.scheme, name)

    def restored(self, weight: Weight, stored: Sequence[nn.Tensor]) -> nn.Tensor:
        return self.of(weight).restored(weight, stored)
