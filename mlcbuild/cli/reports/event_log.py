"""The event log (`--events`): one JSON object a line, written as things happen.

The first line is a header: `{"event": "header", "format": "mlcbuild events", "version": 1, …}`. Each further
line is one value of `mlcbuild.engine.build_events`: `event` is its class in snake case, the other keys are its fields;
an action's log is text. The last line, `{"event": "command_finished", …}`, has the exit code; a log without it was cut
short. The version stays when a field is added, and rises when a field is removed or changes its meaning.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TextIO

import mlcbuild
from mlcbuild.cli.build.no_op_check import without_credentials
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.output.json_output import json_text
from mlcbuild.engine.build_events import ActionFinished, BuildEvent, BuildFinished
from mlcbuild.engine.executor import FileEntry

VERSION = 1
_NAMES: dict[type, tuple[str, ...] | None] = {}
_WORD = re.compile(r"(?<!^)(?=[A-Z])")


class EventLog:
    """Writes to `path`, from the start of the command to its end. Raises OSError."""

    def __init__(self, path: Path, *, invocation: str, arguments: Sequence[str], began: float) -> None:
        """`began`: when the command began, in seconds since 1970."""
        self._stream: TextIO = path.open("w", encoding="utf-8")
        self._invocation = invocation
        self._arguments = arguments
        self._began = began

    def begin(self) -> None:
        """Write the first line."""
        self._write(
            {
                "event": "header",
                "format": "mlcbuild events",
                "version": VERSION,
                "mlcbuild": mlcbuild.__version__,
                "invocation": self._invocation,
                "arguments": [without_credentials(argument) for argument in self._arguments],
                "began": round(self._began, 3),
            }
        )

    def __call__(self, event: BuildEvent) -> None:
        self._write(event_record(event))

    def close(self, *, exit_code: ExitCode, error: str, wall_seconds: float) -> None:
        """Write the last line: how the command ended, with its error."""
        self._write(
            {
                "event": "command_finished",
                "exit_code": int(exit_code),
                "error": error,
                "wall_seconds": round(wall_seconds, 3),
            }
        )
        self._stream.close()

    def _write(self, record: dict[str, object]) -> None:
        self._stream.write(json_text(record) + "\n")
        self._stream.flush()


def event_record(event: BuildEvent) -> dict[str, object]:
    """An event as a JSON object."""
    name, fields = _word(type(event).__name__), _fields(event)
    if isinstance(event, BuildFinished):
        fields["counts"] = {status.value: count for status, count in event.counts}
    elif isinstance(event, ActionFinished):
        fields["seconds"] = round(event.seconds, 6)
    return {"event": name, **fields}


def compact_record(event: ActionFinished) -> dict[str, object]:
    """The end of an action as a JSON object without its log, and without fields that are 0 or empty."""
    named = ((name, getattr(event, name)) for name in _names(ActionFinished) or () if name != "log")
    fields = {name: _plain(value) for name, value in named if value}
    if event.seconds:
        fields["seconds"] = round(event.seconds, 6)
    return fields


def file_document(entry: FileEntry) -> dict[str, object]:
    """A file as JSON. The digest is `hash/size`, as in the resource names of REAPI."""
    return {"path": entry.path, "digest": str(entry.digest), "executable": entry.is_executable}


@cache
def _word(name: str) -> str:
    return _WORD.sub("_", name).lower()


def _names(kind: type) -> tuple[str, ...] | None:
    """The names of a dataclass's fields; None for another class."""
    if kind not in _NAMES:
        is_dataclass = dataclasses.is_dataclass(kind)
        _NAMES[kind] = tuple(field.name for field in dataclasses.fields(kind)) if is_dataclass else None
    return _NAMES[kind]


def _fields(value: object) -> dict[str, object]:
    return {name: _plain(getattr(value, name)) for name in _names(type(value)) or ()}


def _plain(value: object) -> object:
    match value:
        case str() | None if not isinstance(value, enum.Enum):
            return value
        case FileEntry():
            return file_document(value)
        case bytes():
            return value.decode("utf-8", "backslashreplace")
        case enum.Enum():
            return value.value
        case float():
            return round(value, 6)
        case tuple():
            return [_plain(item) for item in value]
        case dict():
            return {name: _plain(item) for name, item in value.items()}
        case _:
            return value if _names(type(value)) is None else _fields(value)
