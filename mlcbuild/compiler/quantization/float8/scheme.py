"""Schemes that store matrices in floats of 8 bits, and round what they are multiplied by to the same floats.

Names and shapes are those of MLC-LLM's per-tensor and block-scale quantizations.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.minifloat import E4M3, Minifloat
from mlcbuild.compiler.quantization.scheme import StoredTensor, Weight, as_it_is, checked_dtype
from mlcbuild.compiler.weights.held_weights import HeldWeights

_COVERED = frozenset({ParameterRole.LINEAR, ParameterRole.EXPERTS})


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightScales:
    """What one scale is for: a block of `rows` and `columns` of a matrix, 0 for all of them.

    Scales of blocks are (⌈out / rows⌉, ⌈in / columns⌉) float32, of experts (experts, …); that of a whole matrix is
    (1,), and of experts (experts,).
    """

    name: str
    rows: int = 0
    columns: int = 0

    def shape(self, matrix: tuple[int, ...]) -> tuple[int, ...]:
        *experts, out, columns = matrix
        if not self.rows and not self.columns:
            return tuple(experts) or (1,)
        return (*experts, -(-out // (self.rows or out)), -(-columns // (self.columns or columns)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationScales:
    """What one scale of activations is for: `group` places of a token's row, 0 for all of them.

    A token has scales of its own numbers, largest / the largest float of 8 bits, unless a linear layer has stored
    `static` ones that are above zero: (⌈in / group⌉,) float32.
    """

    group: int = 0
    static: str = ""  # the name of the stored scales; "" for none

    def groups(self, columns: int) -> int:
        return -(-columns // self.group) if self.group else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Float8Scheme:
    """A `QuantizationScheme` of floats of 8 bits.

    Without scales, weights and activations are stored as they are, rounded. Matrices of linear layers and of experts
    are quantized, embeddings and heads are not.
    """

    name: str
    model_dtype: str
    kind: str
    format: Minifloat
    weight: str  # what a stored matrix is called in place of `weight`
    scales: WeightScales | None = None
    activations: ActivationScales | None = None  # None: without scales
    covered: frozenset[ParameterRole] = field(default=_COVERED)

    encoder = "mlcbuild.compiler.quantization.float8.encoder:Float8Encoder"
    reader = "mlcbuild.compiler.quantization.float8.reader:Float8Reader"

    def __post_init__(self) -> None:
        checked_dtype(self.name, self.model_dtype)
        if self.scales is None and self.activations is not None:
            raise ValueError(f"{self.name}: activations have scales, and weights have none")

    def covers(self, role: ParameterRole) -> bool:
        return role in self.covered

    def may_keep(self, held: HeldWeights) -> bool:
        """Floats of a matrix with one scale are those of blocks with equal ones, and of rows."""
        if held.float_bits != 8 or self.scales is None or self.format != E4M3:
            return False
        rows, columns = self.scales.rows, self.scales.columns
        return held.block is None or (bool(rows and columns) and held.block[0] % rows == held.block[1] % columns == 0)

    @property
    def stores_static_scales(self) -> bool:
        return self.activations is not None and bool(self.activations.static)

    def static_scales(self, weight: Weight) -> int:
        """How many static scales of activations are stored for a matrix."""
        is_linear = self.covers(weight.role) and weight.role is not ParameterRole.EXPERTS
        if self.activations is None or not self.stores_static_scales or not is_linear:
            return 0
        return self.activations.groups(weight.shape[-1])

    def stored(self, weight: Weight) -> tuple[StoredTensor, ...]:
        if not self.covers(weight.role):
            return as_it_is(weight, self.model_dtype)
        stem = weight.name.removesuffix("weight")
        found = [StoredTensor(name=f"{stem}{self.weight}", shape=weight.shape, dtype=self.format.dtype)]
        if self.scales is not None:
            shape = self.scales.shape(weight.shape)
            found.append(StoredTensor(name=f"{stem}{self.scales.name}", shape=shape, dtype="float32"))
        count = self.static_scales(weight)
        if count and self.activations is not None:
            found.append(StoredTensor(name=f"{stem}{self.activations.static}", shape=(count,), dtype="float32"))
        return tuple(found)
