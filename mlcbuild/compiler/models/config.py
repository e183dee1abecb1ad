"""Reading a model's `config.json`, field by field.

The families' own modules say which fields they have; this one says how a field is read, and how a mistake is told.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.errors import StageError

MAX_CONTEXT = 1 << 27


@dataclass(frozen=True, slots=True)
class ConfigReader:
    """Fields of one JSON object, each read with its type and range; `where` names the object in messages."""

    document: Mapping[str, object]
    where: str

    def fail(self, name: str, problem: str) -> StageError:
        """The error for a field; the caller raises it."""
        return StageError(f'{self.where}: the field "{name}" {problem}')

    def has(self, name: str) -> bool:
        """Whether the field is there and not null: Hugging Face writes null for what a model does not use."""
        return self.document.get(name) is not None

    def integer(self, name: str, *, low: int, high: int, default: int | None = None) -> int:
        """An integer from `low` to `high`. Without a default the field must be there."""
        value = self.document.get(name)
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
        value = self.document.get(name)
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
        value = self.document.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.fail(name, f"is {_show(value)}; it has to be true or false")
        return value

    def string(self, name: str, *, default: str | None = None) -> str:
        value = self.document.get(name)
        if value is None:
            if default is None:
                raise self.fail(name, "is missing; it has to be a string")
            return default
        if not isinstance(value, str):
            raise self.fail(name, f"is {_show(value)}; it has to be a string")
        return value

    def table(self, name: str) -> ConfigReader:
        """The object in a field, as a reader of its own."""
        value = self.document.get(name)
        if not isinstance(value, Mapping):
            raise self.fail(name, f"is {_show(value)}; it has to be an object")
        return ConfigReader(value, f'{self.where}, "{name}"')


def read_document(path: Path) -> dict[str, object]:
    """The object in a `config.json`. Raises StageError where it is not one."""
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise StageError(f"{path.name} is not valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise StageError(f"{path.name} does not hold a JSON object")
    return document


def _show(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "…"
