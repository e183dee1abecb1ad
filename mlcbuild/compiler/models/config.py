"""Reading a model's `config.json`, field by field.

The families' own modules say which fields they have; this one says how a field is read, and how a mistake is told.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mlcbuild.compiler.placeholder_files import HEAD_BYTES, refuse_placeholder
from mlcbuild.errors import StageError

MAX_CONTEXT = 1 << 27


@dataclass(frozen=True, slots=True)
class ConfigReader:
    """Fields of one JSON object, each read with its type and range; `where` names the object in messages.

    `defaults` are the values of fields that the object does not have. A field that is null has none of them. `names`
    are those that the object has for fields that are asked for by another name.
    """

    document: Mapping[str, object]
    where: str
    defaults: Mapping[str, object] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)

    def with_defaults(self, **defaults: object) -> ConfigReader:
        """A reader of the same object with the defaults of a model."""
        return replace(self, defaults={**self.defaults, **defaults})

    def with_names(self, **names: str) -> ConfigReader:
        """A reader of the same object, which has these names for fields such as `hidden_size`."""
        return replace(self, names={**self.names, **names})

    def with_other_names(self, **others: str) -> ConfigReader:
        """A reader of the same object, which may have these names for fields instead of their own. Raises StageError
        for a field that is there by both, with two values."""
        for name, other in others.items():
            own, value = self.document.get(name), self.document.get(other)
            if own is not None and value is not None and own != value:
                raise self.fail(name, f'is {_show(own)}, and "{other}", which means the same, is {_show(value)}')
        return self.with_names(**{name: other for name, other in others.items() if name not in self.document})

    def without(self, *names: str) -> ConfigReader:
        """A reader of the same object without fields that the model does not read."""
        return replace(self, document={key: value for key, value in self.document.items() if key not in names})

    def value(self, name: str) -> object:
        """What a field holds, or its default; None for neither."""
        own = self.names.get(name, name)
        return self.document[own] if own in self.document else self.defaults.get(name)

    def fail(self, name: str, problem: str, *, advice: tuple[str, ...] = ()) -> StageError:
        """The error for a field; the caller raises it."""
        return StageError(f'{self.where}: the field "{self.names.get(name, name)}" {problem}', advice=advice)

    def refuse(self, **allowed: object) -> None:
        """Raise StageError for a field that has another value than the one allowed, which changes nothing; a field that
        is missing or null has it."""
        for name, value in allowed.items():
            if self.has(name) and self.value(name) != value:
                raise self.fail(name, f"is {_show(self.value(name))}; only {_show(value)} is supported")

    def has(self, name: str) -> bool:
        """Whether the field is there and not null: Hugging Face writes null for what a model does not use."""
        return self.value(name) is not None

    def integer(self, name: str, *, low: int, high: int, default: int | None = None) -> int:
        """An integer from `low` to `high`. Without a default the field must be there."""
        value = self.value(name)
        if value is None:
            if default is None:
                raise self.fail(name, f"is missing; it has to be an integer from {low} to {high}")
            value = default
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.fail(name, f"is {_show(value)}; it has to be an integer from {low} to {high}")
        if not low <= value <= high:
            raise self.fail(name, f"is {value}; it has to be from {low} to {high}")
        return value

    def number(self, name: str, *, low: float, high: float, default: float | None = None) -> float:
        """A finite number from `low` to `high`."""
        value = self.value(name)
        if value is None:
            if default is None:
                raise self.fail(name, f"is missing; it has to be a number from {low:g} to {high:g}")
            value = default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fail(name, f"is {_show(value)}; it has to be a number from {low:g} to {high:g}")
        if not math.isfinite(value) or not low <= value <= high:
            raise self.fail(name, f"is {value}; it has to be from {low:g} to {high:g}")
        return float(value)

    def boolean(self, name: str, *, default: bool) -> bool:
        value = self.value(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.fail(name, f"is {_show(value)}; it has to be true or false")
        return value

    def string(self, name: str, *, default: str | None = None) -> str:
        value = self.value(name)
        if value is None:
            if default is None:
                raise self.fail(name, "is missing; it has to be a string")
            return default
        if not isinstance(value, str):
            raise self.fail(name, f"is {_show(value)}; it has to be a string")
        return value

    def table(self, name: str) -> ConfigReader:
        """The object in a field, as a reader of its own."""
        value = self.value(name)
        if not isinstance(value, Mapping):
            raise self.fail(name, f"is {_show(value)}; it has to be an object")
        return ConfigReader(value, f'{self.where}, "{name}"')


def read_document(path: Path) -> dict[str, object]:
    """The object in a file such as `config.json`. Raises StageError as `parse_document` does."""
    return parse_document(path.read_bytes(), where=str(path))


def parse_document(content: bytes, *, where: str) -> dict[str, object]:
    """The object in a JSON text. Raises StageError for another text, for a file that stands for another one, and for a
    field that is there twice with two values: readers differ in which of them they take. `where` names the file."""
    refuse_placeholder(content[:HEAD_BYTES], where)

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found: dict[str, object] = {}
        for name, value in pairs:
            if name in found and found[name] != value:
                raise StageError(
                    f'{where}: the field "{name}" is there twice, as {_show(found[name])} and as {_show(value)}',
                    advice=("remove one of them",),
                )
            found[name] = value
        return found

    try:
        document = json.loads(content, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise StageError(f"{where} is not valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise StageError(f"{where} does not hold a JSON object")
    return document


def _show(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "…"
