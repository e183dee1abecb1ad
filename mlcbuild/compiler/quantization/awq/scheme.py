"""Schemes that store the matrices of linear layers as AWQ does: integers of 4 bits, with a scale and a zero point a
group, in the layout of AutoAWQ's GEMM kernels, which is MLC-LLM's too."""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.scheme import StoredTensor, Weight, as_it_is, checked_dtype
from mlcbuild.compiler.weights.held_weights import HeldWeights
from mlcbuild.errors import StageError

BITS = 4
WORD_DTYPE = "uint32"
LANES = 8  # integers in a word, each of another output
PLACES = (0, 4, 1, 5, 2, 6, 3, 7)  # where a word has each of its outputs, counted in integers from its low end
LARGEST = (1 << BITS) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AwqScheme:
    """A `QuantizationScheme` of integers with zero points.

    A weight (out, in) of `groups` groups a row, the last of which may be short, becomes `qweight` (in, out / 8) and
    `qzeros` (groups, out / 8) of uint32, and `scales` (groups, out) of the model's dtype. Of experts (experts, out,
    in), each matrix does.
    """

    name: str
    model_dtype: str
    group_size: int  # weights along the reduction axis that share a scale and a zero point
    covered: frozenset[ParameterRole] = frozenset({ParameterRole.LINEAR, ParameterRole.EXPERTS})

    kind = "awq"
    encoder = "mlcbuild.compiler.quantization.awq.encoder:AwqEncoder"
    reader = "mlcbuild.compiler.quantization.awq.reader:AwqReader"

    def __post_init__(self) -> None:
        checked_dtype(self.name, self.model_dtype)
        if self.group_size <= 0:
            raise ValueError(f"a group holds weights, not {self.group_size}")

    def groups(self, columns: int) -> int:
        """Groups of a row; the last may be short."""
        return -(-columns // self.group_size)

    def covers(self, role: ParameterRole) -> bool:
        return role in self.covered

    def may_keep(self, held: HeldWeights) -> bool:
        return 0 < held.integer_bits <= BITS and held.group % self.group_size == 0

    def stored(self, weight: Weight) -> tuple[StoredTensor, ...]:
        if not self.covers(weight.role):
            return as_it_is(weight, self.model_dtype)
        *experts, rows, columns = weight.shape
        if rows % LANES:
            raise StageError(
                f"{weight.name} has {rows} rows, which {LANES}, the integers in a word, do not divide",
                advice=("choose a quantization whose words lie along a row, such as q4f16_1",),
            )
        groups, words = self.groups(columns), rows // LANES
        stem = weight.name.removesuffix("weight")
        return (
            StoredTensor(name=f"{stem}qweight", shape=(*experts, columns, words), dtype=WORD_DTYPE),
            StoredTensor(name=f"{stem}qzeros", shape=(*experts, groups, words), dtype=WORD_DTYPE),
            StoredTensor(name=f"{stem}scales", shape=(*experts, groups, rows), dtype=self.model_dtype),
        )
