"""Quantization schemes with what their plug-ins name, and weights as they store them."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mlcbuild.compiler.models.checkpoints.operations import AddOne
from mlcbuild.compiler.models.checkpoints.parameters import CheckpointTensor, Parameter, TensorLayout
from mlcbuild.compiler.models.parameter_role import ParameterRole
from mlcbuild.compiler.quantization.mixed.encoder import MixedEncoder
from mlcbuild.compiler.quantization.mixed.precision import Precision
from mlcbuild.compiler.quantization.mixed.scheme import MixedScheme, assign
from mlcbuild.compiler.quantization.scheme import Encoder, QuantizationScheme, kept_dtype
from mlcbuild.compiler.weights.operations import carry_out
from mlcbuild.compiler.weights.tensor import dtype_of
from mlcbuild.rules.schemes import NAMES, scheme
from tests.compiler.resolving import parameters_of
from tests.compiler.tiny_models import Array

if TYPE_CHECKING:
    from mlcbuild.compiler.quantization.reader import Reader

__all__ = [
    "NAMES",
    "encoder",
    "encoder_class",
    "matrix",
    "mixed",
    "reader",
    "reader_class",
    "restored",
    "scheme",
    "stored",
]


def matrix(shape: tuple[int, ...], *, name: str = "w.weight", role: ParameterRole = ParameterRole.LINEAR) -> Parameter:
    """A parameter of one tensor."""
    source = CheckpointTensor(name=name, shape=shape)
    return Parameter(name=name, role=role, shape=shape, sources=(source,))


def mixed(document: Mapping[str, object], table: Mapping[str, str]) -> MixedScheme:
    """The scheme of a model with a table of quantization."""
    precision = Precision.of_table(table)
    return assign(precision, parameters_of(document).parameters, list(map(scheme, precision.schemes)))


def encoder_class(of: QuantizationScheme) -> Callable[[Any], Encoder]:
    if isinstance(of, MixedScheme):
        return functools.partial(MixedEncoder, encoders=list(map(encoder_class, of.schemes)))
    found: Callable[[QuantizationScheme], Encoder] = _loaded(of.encoder)
    return found


def encoder(of: QuantizationScheme) -> Encoder:
    return encoder_class(of)(of)


def reader_class(of: QuantizationScheme) -> Callable[[Any], Reader]:
    if isinstance(of, MixedScheme):
        from mlcbuild.compiler.quantization.mixed.reader import MixedReader

        return functools.partial(MixedReader, readers=list(map(reader_class, of.schemes)))
    found: Callable[[QuantizationScheme], Reader] = _loaded(of.reader)
    return found


def reader(of: QuantizationScheme) -> Reader:
    return reader_class(of)(of)


def stored(document: Mapping[str, object], of: QuantizationScheme, tensors: Mapping[str, Array]) -> dict[str, Array]:
    """The float32 tensors of a checkpoint, by Hugging Face's names, as a package of the scheme has them, by
    MLC-LLM's."""
    found: dict[str, Array] = {}
    for parameter in parameters_of(document).parameters:
        parts = [tensor_of(tensors, tensor) for tensor in parameter.sources]
        whole = carry_out(parameter.operations, parts).astype(dtype_of(kept_dtype(parameter, of.model_dtype)))
        arrays = encoder(of).encode(parameter, whole)
        found |= {tensor.name: array for tensor, array in zip(of.stored(parameter), arrays, strict=True)}
    return found


def restored(document: Mapping[str, object], of: QuantizationScheme, weights: Mapping[str, Array]) -> dict[str, Array]:
    """The float32 tensors that a package's weights stand for, by Hugging Face's names."""
    found: dict[str, Array] = {}
    for parameter in parameters_of(document).parameters:
        whole = encoder(of).decode(parameter, [weights[tensor.name] for tensor in of.stored(parameter)])
        wide = whole.astype(np.float32)
        is_stacked = parameter.role is ParameterRole.EXPERTS
        for part, numbers in zip(parameter.parts, wide if is_stacked else [wide], strict=True):
            sizes = np.cumsum([tensor.shape[0] for tensor in part.sources])[:-1]
            times = sum(operation.times for operation in part.operations if isinstance(operation, AddOne))
            arrays = np.split(numbers - times, sizes)
            found |= {  # a tensor that several parameters are made of, as the first has it
                tensor.name: array
                for tensor, array in zip(part.sources, arrays, strict=True)
                if tensor.name not in found
            }
    return found


def tensor_of(tensors: Mapping[str, Array], wanted: CheckpointTensor) -> Array:
    """A tensor of a checkpoint, which may have it in another layout."""
    if wanted.name in tensors:
        return tensors[wanted.name]
    layout = _layout(tensors, wanted)
    return carry_out(layout.operations, [tensors[layout.name]])


def replace_tensor(tensors: Mapping[str, Array], wanted: CheckpointTensor, numbers: Array) -> None:
    """Write a tensor of a checkpoint in place, in the layout that it has there."""
    if wanted.name in tensors:
        tensors[wanted.name][...] = numbers
        return
    layout = _layout(tensors, wanted)
    whole = tensors[layout.name]
    places = carry_out(layout.operations, [np.arange(whole.size).reshape(whole.shape)])
    whole.reshape(-1)[places] = numbers


def _layout(tensors: Mapping[str, Array], wanted: CheckpointTensor) -> TensorLayout:
    return next(other for other in wanted.others if other.name in tensors)


def _loaded(plugin: str) -> Any:
    module, _, name = plugin.partition(":")
    return getattr(importlib.import_module(module), name)
