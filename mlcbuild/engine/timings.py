"""Timings: what a machine has measured of targets, as a value that other machines split by.

The file is JSON::

    {
      "format": "mlcbuild timings",
      "version": 1,
      "groups": [
        {
          "targets": ["//models:a-cpu", "//models:b-cpu"],
          "seconds": {
            "CompileKernel 0a829765d0c1": 0.31,
            "Export 95cf00a17be2": 6.2
          }
        }
      ]
    }

A group has the actions that exactly these targets need. Each action is in one group. Its name is its mnemonic and the
first digits of its key, so that targets share it that share its result. Everything is sorted, so that equal timings are
equal files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mlcbuild.engine.shards import Work
from mlcbuild.errors import Location, WorkspaceError

_FORMAT = "mlcbuild timings"
_VERSION = 1
_DIGITS = 12  # of a key: enough for a hundred thousand actions


def action_name(mnemonic: str, key: str) -> str:
    """An action's name in timings."""
    return f"{mnemonic} {key[:_DIGITS]}"


@dataclass(frozen=True, kw_only=True)
class Timings:
    """Measured work, by label."""

    work: Work

    @classmethod
    def merged(cls, parts: Iterable[Timings]) -> Timings:
        """All of them together. Of a target, and of an action's seconds, the last one that has it counts."""
        needs: dict[str, frozenset[str]] = {}
        seconds: dict[str, float] = {}
        for part in parts:
            needs.update(part.work.needs)
            seconds.update(part.work.seconds)
        used = frozenset[str]().union(*needs.values())
        return cls(work=Work(needs=needs, seconds={name: seconds[name] for name in seconds if name in used}))

    def document(self) -> dict[str, Any]:
        """The content of the file as a JSON object."""
        users: dict[str, list[str]] = {}
        for label in sorted(self.work.needs):
            for name in self.work.needs[label]:
                users.setdefault(name, []).append(label)
        groups: dict[tuple[str, ...], dict[str, float]] = {}
        for name in sorted(users):
            groups.setdefault(tuple(users[name]), {})[name] = round(self.work.seconds[name], 2)
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "groups": [{"targets": list(targets), "seconds": groups[targets]} for targets in sorted(groups)],
        }


def read_timings(text: str, path: str) -> Timings:
    """The timings in a file's text; `path` is for messages. Raises WorkspaceError."""
    try:
        document = json.loads(text)
    except ValueError as error:
        line, column = getattr(error, "lineno", 0), getattr(error, "colno", 0)
        place = Location(path=path, line=line, column=column)
        raise WorkspaceError(f"not valid JSON: {getattr(error, 'msg', error)}", location=place) from None
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise _wrong(path, f'not a file of timings: it lacks "format": "{_FORMAT}"')
    if document.get("version") != _VERSION:
        raise _wrong(path, f"timings of version {document.get('version')!r}: this mlcbuild reads version {_VERSION}")
    needs: dict[str, set[str]] = {}
    seconds: dict[str, float] = {}
    groups = document.get("groups")
    for number, group in enumerate(groups if isinstance(groups, list) else [None]):
        targets = group.get("targets") if isinstance(group, dict) else None
        measured = group.get("seconds") if isinstance(group, dict) else None
        if targets is None or measured is None or not _are_strings(targets) or not _are_seconds(measured):
            raise _wrong(path, f'group {number} of "groups" is not a table of "targets" and "seconds"')
        for name, value in measured.items():
            if name in seconds:
                raise _wrong(path, f'"{name}" is in two groups')
            seconds[name] = float(value)
        for label in targets:
            needs.setdefault(label, set()).update(measured)
    return Timings(work=Work(needs={label: frozenset(names) for label, names in needs.items()}, seconds=seconds))


def _wrong(path: str, message: str) -> WorkspaceError:
    advice = ("`mlcbuild matrix PATTERN --write-timings FILE` writes one",)
    return WorkspaceError(message, location=Location(path=path), advice=advice)


def _are_strings(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, str) for item in value)


def _are_seconds(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(item, (int, float)) and not isinstance(item, bool) and 0 <= item < float("inf")
        for item in value.values()
    )
