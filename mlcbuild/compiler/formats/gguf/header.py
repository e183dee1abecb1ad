"""What a GGUF file begins with, as DescribeGGUF hands it to WriteGGUF: metadata, tensors and how they are filled."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.compiler import json_values
from mlcbuild.compiler.models.checkpoints.parameters import Parameter
from mlcbuild.compiler.models.gguf.written import Value

VERSION = 1


class KeyType(enum.Enum):
    """The type of a key's value, by the format's word; arrays have an `s`."""

    UINT32 = "uint32"
    FLOAT32 = "float32"
    BOOL = "bool"
    STRING = "string"
    INT8S = "int8s"
    INT32S = "int32s"
    FLOAT32S = "float32s"
    BOOLS = "bools"
    STRINGS = "strings"


@dataclass(frozen=True, slots=True, kw_only=True)
class GGUFKey:
    """One key of the metadata, with its value."""

    name: str
    kind: KeyType
    value: object


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorTensor:
    """A small tensor of float32 numbers that a model's weights do not have."""

    name: str
    numbers: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GGUFHeader:
    """`as_read` are the model's parameters, in its order, as they are made of the file's tensors."""

    architecture: str
    keys: tuple[GGUFKey, ...]
    factors: tuple[FactorTensor, ...]
    as_read: tuple[Parameter, ...]


def key(name: str, value: Value) -> GGUFKey:
    """A key whose type follows from its value: numbers are unsigned, or decimals; those of an array have a sign."""
    if isinstance(value, tuple):
        are_bools = all(isinstance(each, bool) for each in value)
        return GGUFKey(name=name, kind=KeyType.BOOLS if are_bools else KeyType.INT32S, value=value)
    kinds = {bool: KeyType.BOOL, int: KeyType.UINT32, float: KeyType.FLOAT32, str: KeyType.STRING}
    return GGUFKey(name=name, kind=kinds[type(value)], value=value)


def keys(prefix: str, values: Sequence[tuple[str, Value]]) -> tuple[GGUFKey, ...]:
    return tuple(key(f"{prefix}.{name}", value) for name, value in values)


def write_header(header: GGUFHeader, path: Path) -> None:
    json_values.write(header, path, version=VERSION)


def read_header(path: Path) -> GGUFHeader:
    """The header in a file. Raises StageError for another file."""
    return json_values.read(GGUFHeader, path, version=VERSION)
