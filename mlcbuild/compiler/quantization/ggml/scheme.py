"""Schemes that store matrices in the blocks of a type of ggml, byte for byte as GGUF files have them."""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.scheme import StoredTensor, Weight, as_it_is, checked_dtype
from mlcbuild.compiler.weights.block_types import BLOCK_TYPES, KEPT_AS_BLOCKS, BlockType
from mlcbuild.errors import StageError

FALLBACK = "Q8_0"


@dataclass(frozen=True, slots=True, kw_only=True)
class GgmlScheme:
    """A `QuantizationScheme` of blocks of the type `block`.

    A weight (out, in) becomes `q_weight` (out, bytes of a row) of uint8: the bytes of a GGUF file's tensor. Of experts
    (experts, out, in), each matrix does. Rows that are no whole blocks are stored in those of Q8_0.
    """

    name: str
    model_dtype: str
    block: str
    covered: frozenset[ParameterRole] = frozenset(
        {ParameterRole.EMBEDDING, ParameterRole.LINEAR, ParameterRole.FINAL_FC, ParameterRole.EXPERTS}
    )

    kind = "ggml-quant"
    encoder = "mlcbuild.compiler.quantization.ggml.encoder:GgmlEncoder"
    reader = "mlcbuild.compiler.quantization.ggml.reader:GgmlReader"

    def __post_init__(self) -> None:
        checked_dtype(self.name, self.model_dtype)
        if self.block not in (FALLBACK, *KEPT_AS_BLOCKS):
            raise ValueError(f"{self.name}: not a type of blocks: {self.block!r}")

    def covers(self, role: ParameterRole) -> bool:
        return role in self.covered

    def block_of(self, weight: Weight) -> BlockType:
        """The blocks of a weight that is covered. Raises StageError for one whose rows are no whole blocks of Q8_0
        either."""
        columns = weight.shape[-1]
        fits = [kind for kind in (self.block, FALLBACK) if columns % BLOCK_TYPES[kind].elements == 0]
        if not fits:
            raise StageError(
                f"{weight.name} has {columns} columns, which blocks of {BLOCK_TYPES[FALLBACK].elements} do not divide",
                advice=("choose a quantization without groups, such as q0f16 or q0f32",),
            )
        return BLOCK_TYPES[fits[0]]

    def stored(self, weight: Weight) -> tuple[StoredTensor, ...]:
        if not self.covers(weight.role):
            return as_it_is(weight, self.model_dtype)
        *rows, columns = weight.shape
        stem = weight.name.removesuffix("weight")
        shape = (*rows, self.block_of(weight).row_bytes(columns))
        return (StoredTensor(name=f"{stem}q_weight", shape=shape, dtype="uint8"),)
