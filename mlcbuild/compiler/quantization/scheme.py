"""What a quantization scheme is: the one interface that every scheme in `schemes/` has.

A scheme is three objects, so that no action's key counts more of it than the action uses:

- `SCHEME` of `schemes/<name>.py`, a `QuantizationScheme`: what is stored for a parameter, and in which type the model
  computes. It imports neither NumPy nor tvm, so that checks made before a build can ask it.
- the `Encoder` that it names makes the stored numbers with NumPy.
- the `Reader` that it names (`quantization.reader`) is what a model's layers compute with: how kernels read the stored
  tensors.

Encoders and readers are classes that are called with the scheme. `group/` has those of integers in groups,
`unquantized/` those of matrices stored as they are. Names of schemes and their meanings are MLC-LLM's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from mlcbuild.compiler.models.parameter_role import ParameterRole

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.held_weights import HeldWeights
    from mlcbuild.compiler.weights.integers import IntegerMatrix
    from mlcbuild.compiler.weights.scaled_floats import FloatMatrix
    from mlcbuild.compiler.weights.tensor import Array

MODEL_DTYPES = ("float16", "bfloat16", "float32")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """A tensor in the weights of a package, as a library expects it."""

    name: str
    shape: tuple[int, ...]
    dtype: str


class Weight(Protocol):
    """A parameter as far as a scheme looks at it; `models.checkpoints.parameters.Parameter` is one."""

    @property
    def name(self) -> str: ...  # MLC-LLM's, of a matrix `<module>.weight`

    @property
    def role(self) -> ParameterRole: ...

    @property
    def shape(self) -> tuple[int, ...]: ...  # of a matrix (out, in), of experts (experts, out, in)


class QuantizationScheme(Protocol):
    """How a model's parameters are stored, and the type in which the model computes."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str:
        """MLC-LLM's word for the kind of arithmetic, such as `group-quant`."""

    @property
    def model_dtype(self) -> str:
        """The type of activations, norms and biases: one of `MODEL_DTYPES`."""

    @property
    def encoder(self) -> str:
        """The class of the scheme's `Encoder`, as `package.module:name`."""

    @property
    def reader(self) -> str:
        """The class of the scheme's `quantization.reader.Reader`, as `package.module:name`."""

    def covers(self, role: ParameterRole) -> bool:
        """Whether parameters of that role are quantized; any other is stored as it is, in `kept_dtype`."""

    def stored(self, weight: Weight) -> tuple[StoredTensor, ...]:
        """What is stored for a parameter. Raises StageError, naming it, where its shape cannot be stored so."""


@runtime_checkable
class KeepingScheme(QuantizationScheme, Protocol):
    """A scheme that may store matrices of a quantized checkpoint as they are."""

    def may_keep(self, held: HeldWeights) -> bool:
        """Whether what a checkpoint holds, as far as its `config.json` says, has numbers that are stored so. Tensors
        may show that a matrix has not."""


@runtime_checkable
class StaticScalesScheme(QuantizationScheme, Protocol):
    """A scheme of an arithmetic in which what matrices are multiplied by may have static scales."""

    @property
    def stores_static_scales(self) -> bool: ...

    def static_scales(self, weight: Weight) -> int:
        """How many static scales are stored for a matrix."""


class Encoder(Protocol):
    """The numbers of one scheme, made and read back with NumPy.

    Arrays of weights are (out, in) in the scheme's `model_dtype`, others in `kept_dtype`; all are finite. Those of
    experts are (experts, out, in), and what is stored for some of the experts is the same, whether they are given alone
    or with others.
    """

    def encode(self, weight: Weight, numbers: Array) -> tuple[Array, ...]:
        """The numbers of `scheme.stored(weight)`, in its order."""

    def decode(self, weight: Weight, stored: Sequence[Array]) -> Array:
        """What stored numbers stand for, in `model_dtype`: bit for bit what a kernel on a CPU reads."""

    def error_bound(self, weight: Weight, numbers: Array) -> Array:
        """How far, element by element, `decode(encode(numbers))` may be from the numbers, in float64."""


@runtime_checkable
class RowEncoder(Encoder, Protocol):
    """An encoder that may be given a matrix in pieces."""

    def has_rows_apart(self, weight: Weight) -> bool:
        """Whether what is stored for some rows of a matrix is the same, whether `encode` is given them alone or all."""


@runtime_checkable
class IntegerEncoder(Encoder, Protocol):
    """An encoder that can store integers of a quantized checkpoint as they are."""

    def store(self, weight: Weight, matrix: IntegerMatrix) -> tuple[Array, ...] | None:
        """The numbers of `scheme.stored(weight)`, which stand for (code - zero) * scale exactly before the product is
        rounded. None where the scheme has no such numbers: other groups, bits, zeros, or scales beyond its type."""


@runtime_checkable
class FloatEncoder(Encoder, Protocol):
    """An encoder that can store floats of 8 bits of a quantized checkpoint as they are."""

    def store_floats(self, weight: Weight, matrix: FloatMatrix) -> tuple[Array, ...] | None:
        """The numbers of `scheme.stored(weight)`, which stand for float * scale before that is rounded. None where the
        scheme has no such numbers: other floats, or scales of other blocks."""


@runtime_checkable
class StaticScalesEncoder(Encoder, Protocol):
    """An encoder of a scheme that may store static scales of what matrices are multiplied by."""

    def with_static_scales(
        self, weight: Weight, stored: Sequence[Array], activation_scales: Array
    ) -> tuple[Array, ...] | None:
        """What is stored for a parameter, with the scales (n,) float32 of n equal parts of its columns; None where the
        scheme has none for it, or those of other parts."""

    def static_scales_of(self, weight: Weight, largest: Array) -> Array | None:
        """The scales (n,) float32 of n equal parts of a parameter's columns, of the largest magnitudes (in,) float32
        that each column was multiplied by. A part that was multiplied by zeros alone has 0, which says that it has no
        static scale. None where the scheme has none for the parameter."""


@runtime_checkable
class BlockEncoder(Encoder, Protocol):
    """An encoder whose one stored tensor are rows of blocks of ggml, (…, bytes of a row) in uint8, which a GGUF file
    may have as they are."""

    def block_kind(self, weight: Weight) -> str | None:
        """The type of a parameter's blocks, in `weights.block_types`; None for one that is not stored in blocks."""


def kept_dtype(weight: Weight, model_dtype: str) -> str:
    """The type of a parameter that is not quantized, in a model that computes in `model_dtype`."""
    return "float32" if weight.role is ParameterRole.FLOAT32 else model_dtype


def as_it_is(weight: Weight, model_dtype: str) -> tuple[StoredTensor, ...]:
    """What is stored for a parameter that a scheme does not quantize."""
    return (StoredTensor(name=weight.name, shape=weight.shape, dtype=kept_dtype(weight, model_dtype)),)


def checked_dtype(name: str, dtype: str) -> None:
    """Raises ValueError for a type that models do not compute in."""
    if dtype not in MODEL_DTYPES:
        raise ValueError(f"{name}: not a type that models compute in: {dtype!r}")
