"""How a scheme stores a parameter: the names, shapes and types in the weights of a package, and the
numbers."""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.compiler.models.parameters import Parameter, Role
from mlcbuild.compiler.quantization import group as group_quantization
from mlcbuild.compiler.quantization.scheme import GroupQuantization, QuantizationScheme
from mlcbuild.compiler.weights.tensor import Array
from mlcbuild.errors import StageError


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """A tensor as a library expects it."""

    name: str
    shape: tuple[int, ...]
    dtype: str


def group_of(parameter: Parameter, scheme: QuantizationScheme) -> GroupQuantization | None:
    """How a parameter's integers are grouped; None where it is stored as it is."""
    group = scheme.group
    if group is None or parameter.role is Role.VECTOR:
        return None
    if parameter.role is Role.EMBEDDING and not group.quantize_embedding:
        return None
    if parameter.role is Role.FINAL_FC and not group.quantize_final_fc:
        return None
    return group


def stored_tensors(parameter: Parameter, scheme: QuantizationScheme) -> tuple[StoredTensor, ...]:
    """What a parameter becomes: itself, or `q_weight` and `q_scale`. Raises StageError where groups do not
    fit."""
    group = group_of(parameter, scheme)
    if group is None:
        return (StoredTensor(name=parameter.name, shape=parameter.shape, dtype=scheme.model_dtype),)
    rows, columns = parameter.shape
    if columns % group.group_size:
        raise StageError(
            f"{parameter.name} has {columns} columns, which groups of {group.group_size} do not divide",
            advice=("choose a quantization without groups, such as q0f16 or q0f32",),
        )
    groups = columns // group.group_size
    stem = parameter.name.removesuffix("weight")
    return (
        StoredTensor(name=f"{stem}q_weight", shape=(rows, groups * group.words_per_group), dtype=group.storage_dtype),
        StoredTensor(name=f"{stem}q_scale", shape=(rows, groups), dtype=scheme.model_dtype),
    )


def stored_numbers(parameter: Parameter, scheme: QuantizationScheme, weights: Array) -> tuple[Array, ...]:
    """The numbers of `stored_tensors`, in its order; `weights` are of the model's dtype."""
    group = group_of(parameter, scheme)
    if group is None:
        return (weights,)
    return group_quantization.quantize(weights, group, name=parameter.name)
