"""Frozen dataclasses as JSON and back: the form of files that one stage writes and others read.

Fields are booleans, numbers, strings, enumerations, tuples, objects of JSON (`Mapping[str, object]`), other such
dataclasses, and any of these or None. A field may hold one of several dataclasses, each of which, but for one, says in
`KIND` what it is called in JSON. A file that no stage wrote is refused, with the place of what is wrong.
"""

from __future__ import annotations

import enum
import json
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from mlcbuild.errors import StageError

Value = TypeVar("Value")

_SCALARS = (bool, int, float, str)


def encode(value: object) -> Any:
    """A value as JSON has it. Raises TypeError for one that is not of the types above."""
    if value is None or isinstance(value, _SCALARS):
        return value.value if isinstance(value, enum.Enum) else value
    if isinstance(value, enum.Enum):
        return encode(value.value)
    if isinstance(value, tuple | list):
        if all(type(item) is int for item in value):
            return list(value)
        return [encode(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        kind = {"kind": value.KIND} if hasattr(value, "KIND") else {}
        return kind | {field.name: encode(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    raise TypeError(f"not a value of JSON: {value!r}")


def decode(kind: type[Value], document: object, *, where: str) -> Value:
    """The dataclass that `encode` made a document of. Raises StageError for another document; `where` names it."""
    decoded: Value = _decode(kind, document, where)
    return decoded


def write(value: object, path: Path, *, version: int) -> None:
    """Write a dataclass as one line of JSON, its form's version first, then its fields in their order."""
    document = {"version": version, **encode(value)}
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def read(kind: type[Value], path: Path, *, version: int) -> Value:
    """The dataclass in a file. Raises StageError for a file of another version, and for what holds no such thing."""
    try:
        document = json.loads(path.read_bytes())
    except ValueError as error:
        raise StageError(f"{path.name} is not valid JSON: {error}") from error
    if not isinstance(document, dict) or document.get("version") != version:
        raise StageError(f"{path.name} is no file of version {version} of its form")
    return decode(kind, {name: value for name, value in document.items() if name != "version"}, where=path.name)


def _decode(kind: Any, document: object, where: str) -> Any:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        members = [member for member in get_args(kind) if member is not type(None)]
        if document is None and len(members) < len(get_args(kind)):
            return None
        return _decode(members[0], document, where) if len(members) == 1 else _one_of(members, document, where)
    if origin is tuple:
        return _tuple(get_args(kind)[0], document, where)
    if kind is object:
        return document
    if origin is not None or kind is Mapping:
        return dict(_checked(document, dict, where))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _member(kind, document, where)
    if is_dataclass(kind):
        return _dataclass(kind, document, where)
    if kind is float and isinstance(document, int) and not isinstance(document, bool):
        return float(document)
    return _checked(document, kind, where)


def _one_of(kinds: list[Any], document: object, where: str) -> Any:
    told = _checked(document, dict, where).get("kind")
    for kind in kinds:
        if told == getattr(kind, "KIND", None):
            return _dataclass(kind, document, where)
    raise StageError(f"{where} is of the kind {told!r}, which is not known")


def _dataclass(kind: Any, document: object, where: str) -> Any:
    values = dict(_checked(document, dict, where))
    if hasattr(kind, "KIND"):
        values.pop("kind", None)
    known, required = _fields(kind)
    for name in values.keys() - known.keys():
        raise StageError(f'{where} has the field "{name}", which is not known')
    for name in required:
        if name not in values:
            raise StageError(f'{where} lacks the field "{name}"')
    found = {name: _decode(known[name], value, f"{where}, {name}") for name, value in values.items()}
    try:
        return kind(**found)
    except ValueError as error:
        raise StageError(f"{where} is damaged: {error}") from error


@cache  # Python evaluates the types again at each call, and a mixture of experts has 200,000 values of five classes.
def _fields(kind: type[Any]) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The types of a dataclass's fields by their names, and the names of those without a default."""
    types_by_name = get_type_hints(kind)
    required = [field for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING]
    known = {field.name: types_by_name[field.name] for field in fields(kind)}
    return known, tuple(field.name for field in required)


def _tuple(kind: Any, document: object, where: str) -> tuple[Any, ...]:
    items = _checked(document, list, where)
    if kind is int and all(type(item) is int for item in items):  # shapes, which are most of what is read
        return tuple(items)
    return tuple(_decode(kind, item, f"{where}[{number}]") for number, item in enumerate(items))


def _member(kind: type[enum.Enum], document: object, where: str) -> enum.Enum:
    try:
        return kind(document)
    except ValueError as error:
        raise StageError(f"{where} is {document!r}, which is not known") from error


def _checked(document: object, kind: type, where: str) -> Any:
    if not isinstance(document, kind) or (isinstance(document, bool) and kind is not bool):
        raise StageError(f"{where} is {document!r}, which is no {kind.__name__}")
    return document
