"""Schemes that store matrices as signed bytes with one scale a row, and multiply them by signed bytes."""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.scheme import StoredTensor, Weight, as_it_is, checked_dtype
from mlcbuild.compiler.weights.held_weights import HeldWeights
from mlcbuild.errors import StageError

LARGEST = 127
_MOST_COLUMNS = (2**31 - 1) // 128**2  # of a row, so that a sum of products fits into 32 bits
_COVERED = frozenset({ParameterRole.LINEAR, ParameterRole.EXPERTS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Int8Scheme:
    """A `QuantizationScheme` of signed bytes for weights and activations.

    A weight (out, in) becomes `q_weight` (out, in) of int8, `q_scale` (out, 1) float32, and of linear layers
    `q_calibration_scale` (1,) float32: the scale of what the matrix is multiplied by, or 0 where each token has its
    own. Of experts (experts, out, in), each matrix is stored so, without the last. Embeddings and heads are not
    quantized.
    """

    name: str
    model_dtype: str
    covered: frozenset[ParameterRole] = _COVERED

    kind = "int8-quant"
    encoder = "mlcbuild.compiler.quantization.int8.encoder:Int8Encoder"
    reader = "mlcbuild.compiler.quantization.int8.reader:Int8Reader"

    def __post_init__(self) -> None:
        checked_dtype(self.name, self.model_dtype)

    @property
    def stores_static_scales(self) -> bool:
        return True

    def covers(self, role: ParameterRole) -> bool:
        return role in self.covered

    def may_keep(self, held: HeldWeights) -> bool:
        return 0 < held.signed_bits <= 8 and not held.group

    def static_scales(self, weight: Weight) -> int:
        """How many static scales of activations are stored for a matrix."""
        return int(weight.role is ParameterRole.LINEAR and self.covers(weight.role))

    def stored(self, weight: Weight) -> tuple[StoredTensor, ...]:
        if not self.covers(weight.role):
            return as_it_is(weight, self.model_dtype)
        *rows, columns = weight.shape
        if columns > _MOST_COLUMNS:
            raise StageError(
                f"{weight.name} has {columns} columns: sums of so many products of bytes do not fit into 32 bits",
                advice=("choose another quantization",),
            )
        stem = weight.name.removesuffix("weight")
        found = [
            StoredTensor(name=f"{stem}q_weight", shape=weight.shape, dtype="int8"),
            StoredTensor(name=f"{stem}q_scale", shape=(*rows, 1), dtype="float32"),
        ]
        if self.static_scales(weight):
            found.append(StoredTensor(name=f"{stem}q_calibration_scale", shape=(1,), dtype="float32"))
        return tuple(found)
