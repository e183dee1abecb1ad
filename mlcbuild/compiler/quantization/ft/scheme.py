"""Schemes that store linear layers as symmetric integers with one scale a row: the arithmetic of FasterTransformer."""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.group.scheme import WORD_BITS, GroupScheme
from mlcbuild.compiler.quantization.scheme import StoredTensor, Weight, as_it_is, checked_dtype
from mlcbuild.compiler.weights.held_weights import HeldWeights

_FALLBACK_GROUP = 32  # of what those kernels do not multiply by


@dataclass(frozen=True, slots=True, kw_only=True)
class FtScheme:
    """A `QuantizationScheme` of integers with one scale a row.

    A weight (out, in) of a linear layer becomes `q_weight` (out, words) of uint32, in the layout that `GroupScheme` has
    for a group that is a whole row, and `q_scale` (out, 1) of the model's dtype. Embeddings, heads, experts, and linear
    layers whose `out` fills no whole words of those kernels, are integers in groups of 32, as in MLC-LLM.
    """

    name: str
    model_dtype: str
    bits: int
    covered: frozenset[ParameterRole] = frozenset(
        {ParameterRole.EMBEDDING, ParameterRole.LINEAR, ParameterRole.FINAL_FC, ParameterRole.EXPERTS}
    )

    kind = "ft-quant"
    encoder = "mlcbuild.compiler.quantization.ft.encoder:FtEncoder"
    reader = "mlcbuild.compiler.quantization.ft.reader:FtReader"

    def __post_init__(self) -> None:
        checked_dtype(self.name, self.model_dtype)
        if self.bits not in (4, 8):
            raise ValueError(f"integers have 4 or 8 bits, not {self.bits}")

    def covers(self, role: ParameterRole) -> bool:
        return role in self.covered

    def may_keep(self, held: HeldWeights) -> bool:
        return 0 < held.signed_bits <= self.bits and not held.group

    def has_row_scales(self, weight: Weight) -> bool:
        """Whether a parameter has one scale a row, and not one a group of 32."""
        return weight.role is ParameterRole.LINEAR and weight.shape[0] % (WORD_BITS // self.bits) == 0

    def groups_of(self, weight: Weight) -> GroupScheme:
        """The groups in which a parameter that is quantized is stored: its rows, or those of 32."""
        if not self.has_row_scales(weight):
            return GroupScheme(name=self.name, model_dtype=self.model_dtype, bits=self.bits, group_size=_FALLBACK_GROUP)
        per_word = WORD_BITS // self.bits
        row = -(-weight.shape[-1] // per_word) * per_word
        return GroupScheme(
            name=self.name, model_dtype=self.model_dtype, bits=self.bits, group_size=row, partial_groups=True
        )

    def stored(self, weight: Weight) -> tuple[StoredTensor, ...]:
        if not self.covers(weight.role):
            return as_it_is(weight, self.model_dtype)
        return self.groups_of(weight).stored(weight)
