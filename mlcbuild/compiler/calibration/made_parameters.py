"""Parameters by MLC-LLM's names, already made of a checkpoint's tensors: what calibration reads, changes and hands on.

A method of calibration changes parameters, and a checkpoint has what these are made of. So it makes each parameter of
an imported shard, and writes a shard that has the parameters themselves. Quantize takes it with a list in which every
parameter is its own one source, and knows of no calibration. Of experts, each is a source: `<name>.<number>`.

Static scales of activations, of a checkpoint or of a method, go on with parameters whose numbers stay.

What stays as it is has the bytes in the end that it would have without calibration: its numbers keep their type, and
integers, floats of 8 bits and blocks of a quantized checkpoint stay such. What operations compute (`1 + w` of some
norms) is float32 here, and rounded once, by Quantize.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from mlcbuild.compiler.models.checkpoints.operations import AddOne, LogOfNegative, Stack, UnitRows
from mlcbuild.compiler.models.checkpoints.parameters import CheckpointTensor, Parameter, ParameterList
from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.weights.block_types import BLOCK_TYPES
from mlcbuild.compiler.weights.ggml_blocks import BlockMatrix
from mlcbuild.compiler.weights.imported_shard import ACTIVATIONS, SCALES, ZEROS, ImportedShard, block_part_of
from mlcbuild.compiler.weights.integers import IntegerMatrix
from mlcbuild.compiler.weights.kept_matrices import (
    has_blocks,
    has_floats,
    has_integers,
    kept_blocks,
    kept_floats,
    kept_integers,
)
from mlcbuild.compiler.weights.operations import carry_out
from mlcbuild.compiler.weights.safetensors_file import write_safetensors
from mlcbuild.compiler.weights.scaled_floats import FloatMatrix
from mlcbuild.compiler.weights.tensor import BYTES, FLOAT8, Array, Tensor, TensorDescription
from mlcbuild.errors import StageError

_COMPUTING = (AddOne, LogOfNegative, UnitRows)  # the operations that do more than move numbers
Value = Array | IntegerMatrix | FloatMatrix | BlockMatrix


def made(listed: ParameterList) -> ParameterList:
    """The list by which Quantize reads made shards: each parameter is its own source, and each expert one."""
    return ParameterList(parameters=tuple(map(_made, listed.parameters)))


def _made(parameter: Parameter) -> Parameter:
    whole = CheckpointTensor(name=parameter.name, shape=parameter.shape)
    sources: tuple[CheckpointTensor, ...] = (whole,)
    operations = tuple[Stack, ...]()
    if parameter.role is ParameterRole.EXPERTS:
        count, *shape = parameter.shape
        sources = tuple(
            CheckpointTensor(name=expert_name(parameter.name, number), shape=tuple(shape)) for number in range(count)
        )
        operations = (Stack(axis=0),)
    return Parameter(
        name=parameter.name, role=parameter.role, shape=parameter.shape, sources=sources, operations=operations
    )


def expert_name(parameter: str, number: int) -> str:
    """The tensor of a made shard that has the matrix of an expert."""
    return f"{parameter}.{number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Integers:
    """A matrix that becomes an `IntegerMatrix` with so many groups a row."""

    groups: int
    scale_dtype: str = "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """A parameter that becomes other numbers, in float32."""


class Change(Protocol):
    """What a method does to parameters."""

    def becomes(self, parameter: Parameter) -> Integers | Numbers | None:
        """The form in which a parameter goes on; None for one that stays as it is."""

    def changed(self, parameter: Parameter, numbers: Array, expert: int | None) -> Array | IntegerMatrix:
        """The parameter in that form, of its float32 numbers; of stacked experts (out, in) of one, by its number."""


@runtime_checkable
class ActivationChange(Change, Protocol):
    """A change that also gives static scales of activations."""

    def activation_scales(self, parameter: Parameter) -> Array | None:
        """Those of what a parameter that stays as it is is multiplied by (`weights.imported_shard`); None for what the
        shard has."""


class Unchanged:
    """The change that is none."""

    def becomes(self, parameter: Parameter) -> Integers | Numbers | None:  # noqa: ARG002
        return None

    def changed(self, parameter: Parameter, numbers: Array, expert: int | None) -> Array | IntegerMatrix:  # noqa: ARG002
        return numbers


def parameters_in(shard: ImportedShard, listed: ParameterList) -> list[Parameter]:
    """The parameters that are made of a shard. Raises StageError where it has a part of one."""
    there = shard.descriptions
    found = [one for one in listed.parameters if any(tensor.name in there for tensor in one.sources)]
    for parameter in found:
        missing = [tensor.name for tensor in parameter.sources if tensor.name not in there]
        if missing:
            raise StageError(f"the shard has only a part of {parameter.name}: it lacks {', '.join(missing)}")
    return found


def made_numbers(shard: ImportedShard, parameter: Parameter) -> Iterator[Array]:
    """The float32 numbers of a parameter of the shard: its whole, or (out, in) of one expert after the other. Raises
    StageError for numbers that are not finite."""
    for part in parameter.parts:
        numbers = carry_out(part.operations, [shard.read(tensor.name).numbers("float32") for tensor in part.sources])
        yield from numbers if parameter.role is ParameterRole.EXPERTS else (numbers,)


def write_made_shard(path: Path, shard: ImportedShard, listed: ParameterList, change: Change | None = None) -> None:
    """Write the parameters of an imported shard, one expert or parameter in memory at a time. Equal input gives equal
    bytes."""
    change = change or Unchanged()
    described: list[TensorDescription] = []
    makers: list[Callable[[], Iterator[Value]]] = []
    for parameter in parameters_in(shard, listed):
        form = change.becomes(parameter)
        kept = _kept_form(shard, parameter) if form is None else None
        for tensor in _made(parameter).sources:
            described += _descriptions(tensor, form or kept)
        makers.append(_maker(shard, parameter, change, form, kept))
        scales = None if form is not None else _activation_scales(shard, parameter, change)
        if scales is not None:
            name = parameter.name + ACTIVATIONS
            described.append(TensorDescription(name=name, dtype="float32", shape=scales.shape))
            makers.append(functools.partial(iter, (scales,)))
    arrays = (array for maker in makers for value in maker() for array in _arrays(value))
    write_safetensors(path, described, lambda one: Tensor(description=one, data=next(arrays)))


def _activation_scales(shard: ImportedShard, parameter: Parameter, change: Change) -> Array | None:
    """Those that a parameter's tensor of a made shard has. Experts have none."""
    if parameter.role is ParameterRole.EXPERTS:
        return None
    found = change.activation_scales(parameter) if isinstance(change, ActivationChange) else None
    return shard.activation_scales([tensor.name for tensor in parameter.sources]) if found is None else found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Floats:
    """A matrix that stays floats of 8 bits, with so many groups a row."""

    groups: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _AsStored:
    """Numbers of a checkpoint's type, which operations only move."""

    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Blocks:
    """A matrix that stays in blocks of a type of ggml."""

    kind: str


_Form = Integers | Numbers | _Floats | _Blocks | _AsStored


def _kept_form(shard: ImportedShard, parameter: Parameter) -> _Form:
    """How a parameter that stays as it is can be written without loss. Operations are tried on one part alone: those of
    all experts are the same."""
    value = None
    if has_integers(shard, parameter) or has_floats(shard, parameter) or has_blocks(shard, parameter):
        forms = {_form_of(_kept_value(shard, part)) for part in parameter.parts}
        value = forms.pop() if len(forms) == 1 else None
    if value is not None:
        return value
    types = {shard.descriptions[tensor.name].dtype for tensor in parameter.sources}
    if len(types) > 1 or any(isinstance(one, _COMPUTING) for one in parameter.operations):
        return Numbers()
    return _AsStored(dtype=types.pop())


def _form_of(value: IntegerMatrix | FloatMatrix | BlockMatrix | None) -> _Form | None:
    if isinstance(value, BlockMatrix):
        return _Blocks(kind=value.kind)
    if isinstance(value, IntegerMatrix):
        return Integers(groups=value.scales.shape[-1], scale_dtype=value.scale_dtype)
    return None if value is None else _Floats(groups=value.scales.shape[-1])


def _kept_value(shard: ImportedShard, part: Parameter) -> IntegerMatrix | FloatMatrix | BlockMatrix | None:
    """What operations make of integers, floats of 8 bits or blocks; None where that has no groups with one scale each,
    or has blocks of several types."""
    if has_blocks(shard, part):
        kind = next(found for tensor in part.sources if (found := shard.block_kind(tensor.name)) is not None)
        kept = kept_blocks(shard, part, kind)
        return None if kept is None or not kept.are_kept.all() else BlockMatrix(kind=kind, data=kept.data)
    return kept_integers(shard, part) if has_integers(shard, part) else kept_floats(shard, part)


def _descriptions(tensor: CheckpointTensor, form: _Form | None) -> list[TensorDescription]:
    def one(suffix: str, dtype: str, shape: tuple[int, ...]) -> TensorDescription:
        return TensorDescription(name=tensor.name + suffix, dtype=dtype, shape=shape)

    match form:
        case Integers(groups=groups, scale_dtype=dtype):
            by_group = (*tensor.shape[:-1], groups)
            return [one("", BYTES, tensor.shape), one(ZEROS, BYTES, by_group), one(SCALES, dtype, by_group)]
        case _Floats(groups=groups):
            return [one("", FLOAT8, tensor.shape), one(SCALES, "float32", (*tensor.shape[:-1], groups))]
        case _Blocks(kind=kind):
            row = BLOCK_TYPES[kind].row_bytes(tensor.shape[-1])
            return [
                TensorDescription(name=block_part_of(tensor.name, kind), dtype=BYTES, shape=(*tensor.shape[:-1], row))
            ]
        case _AsStored(dtype=dtype):
            return [one("", dtype, tensor.shape)]
    return [one("", "float32", tensor.shape)]


def _maker(
    shard: ImportedShard, parameter: Parameter, change: Change, form: Integers | Numbers | None, kept: _Form | None
) -> Callable[[], Iterator[Value]]:
    """What makes the values of a parameter's tensors, in their order."""
    is_stacked = parameter.role is ParameterRole.EXPERTS

    def changed() -> Iterator[Value]:
        for number, numbers in enumerate(made_numbers(shard, parameter)):
            yield change.changed(parameter, numbers, number if is_stacked else None)

    def stays() -> Iterator[Value]:
        for part in parameter.parts:
            if isinstance(kept, _AsStored):
                value: Value | None = carry_out(part.operations, _bits(shard, part))
            else:
                value = _kept_value(shard, part)
            assert value is not None
            yield from _each_of(value) if is_stacked else (value,)

    if form is not None:
        return changed
    return (lambda: made_numbers(shard, parameter)) if isinstance(kept, Numbers) else stays


def _bits(shard: ImportedShard, part: Parameter) -> Sequence[Array]:
    return [shard.read(tensor.name).data for tensor in part.sources]


def _each_of(value: Value) -> Iterator[Value]:
    """The matrices of stacked ones."""
    if isinstance(value, IntegerMatrix):
        for codes, zeros, scales in zip(value.codes, value.zeros, value.scales, strict=True):
            yield IntegerMatrix(codes=codes, zeros=zeros, scales=scales, scale_dtype=value.scale_dtype)
    elif isinstance(value, FloatMatrix):
        for bits, scales in zip(value.bits, value.scales, strict=True):
            yield FloatMatrix(bits=bits, scales=scales)
    elif isinstance(value, BlockMatrix):
        for data in value.data:
            yield BlockMatrix(kind=value.kind, data=data)
    else:
        yield from value


def _arrays(value: Value) -> tuple[Array, ...]:
    """The arrays that are written for a value, in the order of `_descriptions`."""
    if isinstance(value, IntegerMatrix):
        return value.codes, value.zeros, value.scales
    if isinstance(value, FloatMatrix):
        return value.bits, value.scales
    if isinstance(value, BlockMatrix):
        return (value.data,)
    return (value,)
