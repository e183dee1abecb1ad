"""What a GGUF file says of a model: its architecture, and metadata that llama.cpp and we read as the same model.

Metadata are believed only if reading them gives the model again: a model of which a file cannot say everything, a
window in some layers or a factor, is refused with what it cannot say.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from mlcbuild.compiler import json_values
from mlcbuild.compiler.formats.gguf.planned_file import PlannedFile
from mlcbuild.compiler.formats.gguf.tensor_plan import tensors_of
from mlcbuild.compiler.models.checkpoints.parameters import Parameter, ParameterList
from mlcbuild.compiler.models.description import ModelDescription
from mlcbuild.compiler.models.gguf.writing import decoder_metadata
from mlcbuild.compiler.models.gguf.written import GGUFMetadata, Value, WrittenModel
from mlcbuild.compiler.models.resolving import AnyFamily, resolve
from mlcbuild.compiler.weights.gguf_parts import GGUFValue
from mlcbuild.errors import StageError

# Names of modules and how a head is stored: they change nothing that a model computes.
_NAMES = ("names", "head_apart")
_ADVICE = "a model_package says all of it"


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedModel:
    """`as_read` are the model's parameters, in its order, as they are made of the tensors of such a file."""

    architecture: str
    metadata: GGUFMetadata
    as_read: tuple[Parameter, ...]


def describe(
    model: ModelDescription, parameters: ParameterList, document: Mapping[str, object], families: Iterable[AnyFamily]
) -> DescribedModel:
    """The model of a `config.json`, as a GGUF file has it. Raises StageError for a model of no architecture of
    llama.cpp's, and for what a file of the architecture does not say."""
    every = tuple(families)
    family = next(one for one in every if one.name == model.family)
    name = _architecture(family, model)
    architecture = next(one.gguf[name] for one in every if name in one.gguf)
    written = WrittenModel(
        description=model,
        configuration=json_values.decode(family.configuration, model.configuration, where="model.json"),
        document=_of_text(document),
    )
    metadata = (architecture.metadata or decoder_metadata)(written)
    file = PlannedFile(
        metadata={key: _as_read(value) for key, value in with_prefix(name, metadata.values).items()},
        shapes=[(tensor.name, tensor.shape) for tensor in _tensors(parameters)],
        factors={key: tuple(map(_float32, numbers)) for key, numbers in metadata.factors.items()},
    )
    read, listed = resolve(architecture.config(file), every, (), where="the GGUF file")
    _check_same(name, model, read)
    _check_parameters(name, parameters.parameters, listed.parameters)
    return DescribedModel(architecture=name, metadata=metadata, as_read=listed.parameters)


def with_prefix(architecture: str, values: Mapping[str, Value]) -> dict[str, Value]:
    return {f"{architecture}.{key}": value for key, value in values.items()}


def _architecture(family: AnyFamily, model: ModelDescription) -> str:
    given = family.gguf_names.get(model.model_type)
    name = given(model) if callable(given) else given
    if name is None and len(family.gguf) == 1:
        (name,) = family.gguf
    if name is None:
        raise StageError(
            f'no GGUF file holds a model of type "{model.model_type}"',
            advice=("a model_package does", "see `mlcbuild help families`"),
        )
    return name


def _of_text(document: Mapping[str, object]) -> Mapping[str, object]:
    text = document.get("text_config")
    return {**document, **text} if isinstance(text, dict) else document


def _tensors(parameters: ParameterList) -> Iterator[TensorShape]:
    for parameter in parameters.parameters:
        for source in parameter.sources:
            if source.gguf is not None:
                yield from (TensorShape(tensor.name, tensor.shape) for tensor in tensors_of([source.gguf]))


@dataclass(frozen=True, slots=True)
class TensorShape:
    """A tensor of a file, by name and shape."""

    name: str
    shape: tuple[int, ...]


def _as_read(value: Value) -> GGUFValue:
    if isinstance(value, float):
        return _float32(value)
    return list(value) if isinstance(value, tuple) else value


def _float32(number: float) -> float:
    (rounded,) = struct.unpack("<f", struct.pack("<f", number))
    return float(rounded)


def _check_same(architecture: str, model: ModelDescription, read: ModelDescription) -> None:
    told = list(_differences(model.configuration, read.configuration, "the model"))
    if model.limits.max_position_embeddings != read.limits.max_position_embeddings:
        told += _differences(
            model.limits.max_position_embeddings, read.limits.max_position_embeddings, "max_position_embeddings"
        )
    if (model.limits.sliding_window or -1) != (read.limits.sliding_window or -1):
        told += _differences(model.limits.sliding_window, read.limits.sliding_window, "sliding_window")
    if model.embedding != read.embedding:
        told.append("how texts become vectors")
    if told:
        raise StageError(
            f'a GGUF file of the architecture "{architecture}" cannot say all that this model computes',
            advice=(*told[:6], _ADVICE),
        )


def _differences(mine: object, read: object, where: str) -> Iterator[str]:
    """The places where two values are not the same to within a rounding to float32."""
    if isinstance(mine, Mapping) and isinstance(read, Mapping):
        for name in mine.keys() | read.keys():
            if name not in _NAMES:
                yield from _differences(mine.get(name), read.get(name), f"{where}, {name}")
    elif isinstance(mine, list) and isinstance(read, list) and len(mine) == len(read):
        for number, (one, other) in enumerate(zip(mine, read, strict=True)):
            yield from _differences(one, other, f"{where}[{number}]")
    elif isinstance(mine, float) and isinstance(read, float):
        if not math.isclose(mine, read, rel_tol=1e-5):
            yield f"{where} is {mine:g}; a file would say {read:g}"
    elif mine != read:
        yield f"{where} is {_shown(mine)}; a file would say {_shown(read)}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _check_parameters(architecture: str, mine: tuple[Parameter, ...], read: tuple[Parameter, ...]) -> None:
    own = [(parameter.role, parameter.shape) for parameter in mine]
    other = [(parameter.role, parameter.shape) for parameter in read]
    if own != other:
        raise StageError(
            f'a GGUF file of the architecture "{architecture}" has other parameters than this model',
            advice=(_ADVICE,),
        )
