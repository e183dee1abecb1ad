"""Schemes that store matrices as symmetric integers in groups along the reduction axis, with one scale a group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.scheme import StoredTensor, Weight, as_it_is, checked_dtype
from mlcbuild.compiler.weights.held_weights import HeldWeights
from mlcbuild.errors import StageError

WORD_BITS = 32
WORD_DTYPE = "uint32"
# A lookup reads rows of an embedding, and experts are stacked: MLC-LLM stores neither by columns.
_BY_COLUMNS = frozenset({ParameterRole.LINEAR, ParameterRole.FINAL_FC})


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScheme:
    """A `QuantizationScheme` of integers in groups.

    A weight (out, in) of `groups` groups a row becomes `q_weight` (out, groups * words_per_group) of uint32 and
    `q_scale` (out, groups) of the model's dtype: the layout that MLC-LLM calls NK. Of experts (experts, out, in), each
    matrix does. In the layout KN, those of linear layers are stored with their two axes exchanged, and all others as in
    NK.
    """

    name: str
    model_dtype: str
    bits: int
    group_size: int  # weights along the reduction axis that share a scale
    layout: Literal["NK", "KN"] = "NK"
    partial_groups: bool = False  # whether a row's last group may be short; its words are then filled up with zeros
    covered: frozenset[ParameterRole] = frozenset(
        {ParameterRole.EMBEDDING, ParameterRole.LINEAR, ParameterRole.FINAL_FC, ParameterRole.EXPERTS}
    )

    kind = "group-quant"
    encoder = "mlcbuild.compiler.quantization.group.encoder:GroupEncoder"
    reader = "mlcbuild.compiler.quantization.group.reader:GroupReader"

    def __post_init__(self) -> None:
        checked_dtype(self.name, self.model_dtype)
        if not 2 <= self.bits <= 8:
            raise ValueError(f"integers have 2 to 8 bits, not {self.bits}")
        if self.group_size <= 0 or self.group_size % self.elements_per_word:
            raise ValueError(
                f"a group holds whole words of {self.elements_per_word} integers: {self.group_size} does not"
            )
        if self.layout not in ("NK", "KN"):
            raise ValueError(f"a layout is NK or KN, not {self.layout!r}")

    @property
    def elements_per_word(self) -> int:
        """Integers in one word of storage; bits left over at its high end are zero."""
        return WORD_BITS // self.bits

    @property
    def words_per_group(self) -> int:
        return self.group_size // self.elements_per_word

    @property
    def max_int(self) -> int:
        """The largest magnitude, and the offset that makes the stored integers unsigned."""
        return (1 << (self.bits - 1)) - 1

    def groups(self, columns: int) -> int:
        """Groups of a row; the last may be short."""
        return -(-columns // self.group_size)

    def covers(self, role: ParameterRole) -> bool:
        return role in self.covered

    def may_keep(self, held: HeldWeights) -> bool:
        return 0 < held.signed_bits <= self.bits and held.group % self.group_size == 0

    def is_by_columns(self, role: ParameterRole) -> bool:
        """Whether what is stored for a matrix (out, in) has `out` as its last axis."""
        return self.layout == "KN" and role in _BY_COLUMNS

    def stored(self, weight: Weight) -> tuple[StoredTensor, ...]:
        if not self.covers(weight.role):
            return as_it_is(weight, self.model_dtype)
        *rows, columns = weight.shape
        if columns % self.group_size and not self.partial_groups:
            raise StageError(
                f"{weight.name} has {columns} columns, which groups of {self.group_size} do not divide",
                advice=("choose a quantization without groups, such as q0f16 or q0f32",),
            )
        groups = self.groups(columns)
        words = groups * self.words_per_group
        by_columns = self.is_by_columns(weight.role)
        stem = weight.name.removesuffix("weight")
        return (
            StoredTensor(
                name=f"{stem}q_weight", shape=(words, *rows) if by_columns else (*rows, words), dtype=WORD_DTYPE
            ),
            StoredTensor(
                name=f"{stem}q_scale", shape=(groups, *rows) if by_columns else (*rows, groups), dtype=self.model_dtype
            ),
        )
