"""Schemes that store matrices in floats of 4 bits, E2M1, in groups along the reduction axis that have a scale each.

Numbers lie in the order of the row, the first in the lowest bits, as in the checkpoints of gpt-oss (MXFP4) and of
compressed-tensors (NVFP4): only that eight of them are called one uint32. Kernels restore weights; activations are not
rounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.minifloat import E4M3
from mlcbuild.compiler.quantization.scheme import StoredTensor, Weight, as_it_is, checked_dtype
from mlcbuild.compiler.weights.held_weights import HeldWeights
from mlcbuild.errors import StageError

WORD_DTYPE = "uint32"
PER_WORD = 8
_COVERED = frozenset({ParameterRole.LINEAR, ParameterRole.EXPERTS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Float4Scheme:
    """A `QuantizationScheme` of floats of 4 bits.

    A weight (out, in) becomes `q_weight` (out, in / 8) of uint32 and `q_scale` (out, in / group). Scales are powers of
    two, 2^(e - 127) for a byte e (MXFP4), or E4M3 (NVFP4), which `q_global_scale` (1,) float32 multiplies. Of experts
    (experts, out, in), each matrix is stored so, and global scales are (experts,).
    """

    name: str
    model_dtype: str
    group_size: int
    scales: Literal["E8M0", "E4M3"]
    covered: frozenset[ParameterRole] = _COVERED

    kind = "float4-quant"
    encoder = "mlcbuild.compiler.quantization.float4.encoder:Float4Encoder"
    reader = "mlcbuild.compiler.quantization.float4.reader:Float4Reader"

    def __post_init__(self) -> None:
        checked_dtype(self.name, self.model_dtype)
        if self.group_size <= 0 or self.group_size % PER_WORD:
            raise ValueError(f"{self.name}: a group holds whole words of {PER_WORD}: {self.group_size} does not")

    @property
    def scale_dtype(self) -> str:
        return "uint8" if self.scales == "E8M0" else E4M3.dtype

    @property
    def has_global_scale(self) -> bool:
        return self.scales == "E4M3"

    def covers(self, role: ParameterRole) -> bool:
        return role in self.covered

    def may_keep(self, held: HeldWeights) -> bool:
        return held.float_bits == 4 and held.group == self.group_size

    def stored(self, weight: Weight) -> tuple[StoredTensor, ...]:
        if not self.covers(weight.role):
            return as_it_is(weight, self.model_dtype)
        *rows, columns = weight.shape
        if columns % self.group_size:
            raise StageError(
                f"{weight.name} has {columns} columns, which groups of {self.group_size} do not divide",
                advice=("choose a quantization without groups, such as q0f16 or q0f32",),
            )
        stem = weight.name.removesuffix("weight")
        words, groups = (*rows, columns // PER_WORD), (*rows, columns // self.group_size)
        found = [
            StoredTensor(name=f"{stem}q_weight", shape=words, dtype=WORD_DTYPE),
            StoredTensor(name=f"{stem}q_scale", shape=groups, dtype=self.scale_dtype),
        ]
        if self.has_global_scale:
            shape = tuple(rows[:-1]) or (1,)
            found.append(StoredTensor(name=f"{stem}q_global_scale", shape=shape, dtype="float32"))
        return tuple(found)
