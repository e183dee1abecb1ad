"""Schemes that store every parameter as it is, in the type that the model computes in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlcbuild.compiler.quantization.scheme import StoredTensor, Weight, as_it_is, checked_dtype

if TYPE_CHECKING:
    from mlcbuild.compiler.models.parameter_role import ParameterRole


@dataclass(frozen=True, slots=True, kw_only=True)
class UnquantizedScheme:
    """A `QuantizationScheme` that quantizes nothing."""

    name: str
    model_dtype: str

    kind = "no-quant"
    encoder = "mlcbuild.compiler.quantization.unquantized.encoder:UnquantizedEncoder"
    reader = "mlcbuild.compiler.quantization.unquantized.reader:UnquantizedReader"

    def __post_init__(self) -> None:
        checked_dtype(self.name, self.model_dtype)

    def covers(self, role: ParameterRole) -> bool:  # noqa: ARG002
        return False

    def stored(self, weight: Weight) -> tuple[StoredTensor, ...]:
        return as_it_is(weight, self.model_dtype)
