"""JSON with places: the line and column of every value, for messages about a file that somebody wrote."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcbuild.errors import Location, UsageError, WorkspaceError

Keys = tuple[str | int, ...]

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")


@dataclass(frozen=True, kw_only=True)
class JsonFile:
    """A parsed file: `path` is for messages, `offsets` has where each value begins, by the keys that lead to it."""

    path: str
    text: str
    content: Any
    offsets: dict[Keys, int]

    def location(self, keys: Keys) -> Location:
        """The place of a value; of an absent one, that of the nearest value around it."""
        while keys not in self.offsets:
            keys = keys[:-1]
        before = self.text[: self.offsets[keys]]
        return Location(path=self.path, line=before.count("\n") + 1, column=len(before) - before.rfind("\n"))

    def error(self, message: str, keys: Keys, *advice: str) -> WorkspaceError:
        """An error in the file."""
        return WorkspaceError(message, location=self.location(keys), advice=advice)

    def table(self, value: Any, keys: Keys) -> dict[str, Any]:
        """`value` if it is an object. Raises WorkspaceError."""
        if not isinstance(value, dict):
            raise self.error(f"{_shown(keys)} must be an object", keys)
        return value

    def list(self, value: Any, keys: Keys) -> list[Any]:
        """`value` if it is an array. Raises WorkspaceError."""
        if not isinstance(value, list):
            raise self.error(f"{_shown(keys)} must be an array", keys)
        return value

    def string(self, value: Any, keys: Keys) -> str:
        """`value` if it is a string that is not empty. Raises WorkspaceError."""
        if not isinstance(value, str) or not value:
            missing = "; it is missing" if value is None else ""
            raise self.error(f"{_shown(keys)} must be a string{missing}", keys)
        return value


def read_json(file: Path, *, path: str) -> JsonFile:
    """Read a file; `path` is its name in messages. Raises UsageError if it cannot be read, WorkspaceError if it is not
    JSON."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8, the encoding of JSON") from None
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        place = Location(path=path, line=error.lineno, column=error.colno)
        raise WorkspaceError(f"not valid JSON: {error.msg}", location=place) from None
    except RecursionError:
        raise WorkspaceError("nested too deeply", location=Location(path=path)) from None
    offsets: dict[Keys, int] = {}
    _scan(text, _skip(text, 0), (), offsets)
    return JsonFile(path=path, text=text, content=content, offsets=offsets)


def _scan(text: str, at: int, keys: Keys, offsets: dict[Keys, int]) -> int:
    """Note where the value at `at` and those in it begin; answers where it ends. The text is known to be valid."""
    offsets[keys] = at
    if text[at] == "{":
        at = _skip(text, at + 1)
        while text[at] != "}":
            name, at = _DECODER.raw_decode(text, at)
            at = _scan(text, _skip(text, _skip(text, at) + 1), (*keys, name), offsets)
            at = _after_comma(text, at)
        return at + 1
    if text[at] == "[":
        at, index = _skip(text, at + 1), 0
        while text[at] != "]":
            at = _after_comma(text, _scan(text, at, (*keys, index), offsets))
            index += 1
        return at + 1
    return _DECODER.raw_decode(text, at)[1]


def _after_comma(text: str, at: int) -> int:
    at = _skip(text, at)
    return _skip(text, at + 1) if text[at] == "," else at


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def _shown(keys: Keys) -> str:
    return f'"{keys[-1]}"' if keys and isinstance(keys[-1], str) else "this value"
