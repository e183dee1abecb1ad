"""A scheme made of several: each matrix is stored by one of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlcbuild.compiler.quantization.mixed.precision import Precision
from mlcbuild.errors import StageError

if TYPE_CHECKING:
    from mlcbuild.compiler.models.parameter_role import ParameterRole
    from mlcbuild.compiler.quantization.scheme import QuantizationScheme, StoredTensor, Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedScheme:
    """A `QuantizationScheme` of the `schemes` that a precision names; of all it asks those. Raises StageError for
    schemes that compute in different types, and for a name that is none of theirs."""

    precision: Precision
    schemes: tuple[QuantizationScheme, ...]

    kind = "mixed"
    encoder = "mlcbuild.compiler.quantization.mixed.encoder:MixedEncoder"
    reader = "mlcbuild.compiler.quantization.mixed.reader:MixedReader"

    def __post_init__(self) -> None:
        known = {scheme.name for scheme in self.schemes}
        for name in self.precision.schemes:
            if name not in known:
                raise StageError(
                    f'"{name}" is none of the schemes to choose from', advice=(f"known: {', '.join(sorted(known))}",)
                )
        check_one_dtype(self._named(name) for name in self.precision.schemes)

    @property
    def name(self) -> str:
        """`q4f16_1+q8f16_1`: the default, then the others, sorted."""
        return "+".join(self.precision.schemes)

    @property
    def model_dtype(self) -> str:
        return self._named(self.precision.default).model_dtype

    def covers(self, role: ParameterRole) -> bool:
        return any(self._named(name).covers(role) for name in self.precision.schemes)

    def stored(self, weight: Weight) -> tuple[StoredTensor, ...]:
        return self.scheme_of(weight).stored(weight)

    def scheme_of(self, weight: Weight) -> QuantizationScheme:
        """The scheme that stores a parameter."""
        return self._named(self.precision.scheme(weight.name))

    def _named(self, name: str) -> QuantizationScheme:
        return next(scheme for scheme in self.schemes if scheme.name == name)


def scheme_of(scheme: QuantizationScheme, weight: Weight) -> QuantizationScheme:
    """The scheme that stores a parameter: of a mixed one, that of its parts."""
    return scheme.scheme_of(weight) if isinstance(scheme, MixedScheme) else scheme


def check_one_dtype(schemes: Iterable[QuantizationScheme]) -> None:
    """Raises StageError for schemes that compute in different types: the layers of a model hand on one."""
    first, *others = schemes
    for scheme in others:
        if scheme.model_dtype != first.model_dtype:
            raise StageError(
                f"{first.name} computes in {first.model_dtype} and {scheme.name} in {scheme.model_dtype}: "
                "the schemes of one target must compute in one type",
                advice=(f"choose schemes of {first.model_dtype}, as {first.name} is",),
            )


def assign(precision: Precision, weights: Iterable[Weight], schemes: Sequence[QuantizationScheme]) -> MixedScheme:
    """The scheme of a model with these parameters. Raises StageError for a name or pattern that decides about no matrix
    of the model, and what `MixedScheme` raises."""
    mixed = MixedScheme(precision=precision, schemes=tuple(schemes))
    quantized = [weight.name for weight in weights if mixed.covers(weight.role)]
    try:
        assigned = precision.assigned(quantized)
    except StageError as error:
        raise StageError(error.message, advice=(_examples(quantized),)) from None
    return MixedScheme(precision=assigned, schemes=tuple(schemes))


def _examples(names: Sequence[str]) -> str:
    """Some of a model's matrices, those of a layer or so, and of those the last."""
    shown = [name.removesuffix(".weight") for name in (*names[:6], *names[-2:])]
    return f"matrices of the model are: {', '.join(dict.fromkeys(shown))}"
