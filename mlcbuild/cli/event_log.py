"""The event log (`--events`): one JSON object a line, written as things happen.

The first line is a header: `{"event": "header", "format": "mlcbuild events", "version": 1, …}`. Each further
line is one value of `mlcbuild.engine.events`: `event` names its class in snake case, the rest are its fields
by name, an action's log as text. The last line, `{"event": "command_finished", …}`, has the exit code; a log
without it was cut short. A field may be added within a version; one that goes or changes its meaning raises
the version.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import mlcbuild
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.settled_builds import without_credentials
from mlcbuild.engine.events import BuildEvent, BuildFinished

VERSION = 1
_WORD = re.compile(r"(?<!^)(?=[A-Z])")


class EventLog:
    """Writes to `path`, from the start of the command to its end. Raises OSError."""

    def __init__(self, path: Path, *, invocation: str, arguments: Sequence[str]) -> None:
        self._stream: TextIO = path.open("w", encoding="utf-8")
        self._write(
            {
                "event": "header",
                "format": "mlcbuild events",
                "version": VERSION,
                "mlcbuild": mlcbuild.__version__,
                "invocation": invocation,
                "arguments": [without_credentials(argument) for argument in arguments],
            }
        )

    def __call__(self, event: BuildEvent) -> None:
        self._write(event_record(event))

    def close(self, *, exit_code: ExitCode, error: str, wall_seconds: float) -> None:
        """Write the last line: how the command ended, and what it says of an error."""
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
        self._stream.write(json.dumps(record, ensure_ascii=False) + "\n")
        self._stream.flush()


def event_record(event: BuildEvent) -> dict[str, object]:
    """An event as a JSON object."""
    name = _WORD.sub("_", type(event).__name__).lower()
    fields = {field.name: _plain(getattr(event, field.name)) for field in dataclasses.fields(event)}
    if isinstance(event, BuildFinished):
        fields["counts"] = {status.value: count for status, count in event.counts}
    return {"event": name, **fields}


def _plain(value: object) -> object:
    match value:
        case bytes():
            return value.decode("utf-8", "replace")
        case enum.Enum():
            return value.value
        case float():
            return round(value, 6)
        case tuple():
            return [_plain(item) for item in value]
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        case _:
            return value
