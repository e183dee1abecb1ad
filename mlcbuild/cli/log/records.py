"""Records of the last ten builds for `mlcbuild log`, one file a build, under `.mlcbuild/builds/`.

The first line is the summary of the build, which is all that a list of builds needs. Each further line is an action as
in the event log (`mlcbuild.cli.reports.event_log`), without fields that are 0 or empty and without its log. No record
is written for a build that had nothing to do. Nothing else depends on these files.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcbuild.cli.output.json_output import json_text
from mlcbuild.errors import UsageError
from mlcbuild.regular_files import open_regular

RECORD_DIRECTORY = "builds"
_VERSION = 1
_MOST_RECORDS = 10
_SUFFIX = ".jsonl"
_LONGEST_NUMBER = 2  # digits; a longer number is part of an invocation


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRecord:
    """The summary of one build. `began` is in seconds since 1970; counts are by the status of actions."""

    path: Path
    invocation: str
    began: float
    arguments: tuple[str, ...]
    targets: tuple[str, ...]
    exit_code: int
    wall_seconds: float  # of the build, without loading and analysis
    jobs: int
    counts: Mapping[str, int]
    critical_path: tuple[Mapping[str, Any], ...]
    slacks: Mapping[str, float]

    def actions(self) -> Iterator[dict[str, Any]]:
        """The actions in the order in which they ended. A damaged file gives fewer."""
        try:
            with os.fdopen(open_regular(self.path), encoding="utf-8") as lines:
                next(lines, None)
                for line in lines:
                    yield json.loads(line)
        except (OSError, ValueError):
            return


def write_record(
    directory: Path, events: Sequence[Mapping[str, Any]], *, began: float, arguments: Sequence[str], exit_code: int
) -> None:
    """Write the record of a build that ended or was cut short. Raises OSError.

    `events` are those of the event log, from `build_started` on.
    """
    started = next((event for event in events if event["event"] == "build_started"), None)
    if started is None:
        return
    finished = next((event for event in events if event["event"] == "build_finished"), {})
    actions = [event for event in events if event["event"] == "action_finished"]
    # An action whose result was lost has run again: its last status counts.
    statuses = {action["identifier"]: action["status"] for action in actions}
    counts = finished.get("counts") or Counter(statuses.values())
    if not any(count for status, count in counts.items() if status != "up_to_date"):
        return
    summary = {
        "format": "mlcbuild build record",
        "version": _VERSION,
        "invocation": started["invocation"],
        "began": round(began, 3),
        "arguments": list(arguments),
        "targets": started["targets"],
        "exit_code": exit_code,
        "wall_seconds": finished.get("wall_seconds", max((action["time"] for action in actions), default=0.0)),
        "jobs": started["jobs"],
        "counts": {status: count for status, count in counts.items() if count},
        "critical_path": finished.get("critical_path", []),
        "slacks": {slack["identifier"]: slack["seconds"] for slack in finished.get("slacks", [])},
    }
    lines = [summary, *(_compact(action) for action in actions)]
    directory.mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(began))
    path = directory / f"{stamp}.{int(began * 1000) % 1000:03}-{started['invocation'][:8]}{_SUFFIX}"
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        text = "".join(json_text(line) + "\n" for line in lines)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    for old in _files(directory)[_MOST_RECORDS:]:
        with contextlib.suppress(OSError):
            old.unlink()


def _compact(action: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in action.items() if value and name not in ("event", "log")}


def records(directory: Path) -> list[BuildRecord]:
    """The recorded builds, newest first, without damaged files."""
    found = (_record(path) for path in _files(directory))
    return [record for record in found if record is not None]


def chosen(directory: Path, wanted: str) -> BuildRecord:
    """The build that a user names: 1 for the last, 2 for the one before, or the first digits of its invocation.

    Raises UsageError if there is no such build.
    """
    known = records(directory)
    if not known:
        raise UsageError("no build of this workspace is recorded", advice=("build something first",))
    if wanted.isdecimal() and len(wanted) <= _LONGEST_NUMBER:
        number = int(wanted)
        if 1 <= number <= len(known):
            return known[number - 1]
        raise UsageError(
            f"there is no build {number}: the oldest recorded build is {len(known)}",
            advice=("`mlcbuild log` lists them",),
        )
    matching = [record for record in known if record.invocation.startswith(wanted.lower())]
    if len(matching) != 1:
        count = "several recorded builds begin" if matching else "no recorded build begins"
        raise UsageError(f'{count} with "{wanted}"', advice=("`mlcbuild log` lists them",))
    return matching[0]


def _files(directory: Path) -> list[Path]:
    """The files of records, newest first: their names begin with the time."""
    try:
        return sorted((path for path in directory.iterdir() if path.suffix == _SUFFIX), reverse=True)
    except OSError:
        return []


def _record(path: Path) -> BuildRecord | None:
    try:
        with os.fdopen(open_regular(path), encoding="utf-8") as lines:
            summary = json.loads(next(lines, ""))
        if summary["version"] != _VERSION:
            return None
        return BuildRecord(
            path=path,
            invocation=summary["invocation"],
            began=float(summary["began"]),
            arguments=tuple(summary["arguments"]),
            targets=tuple(summary["targets"]),
            exit_code=int(summary["exit_code"]),
            wall_seconds=float(summary["wall_seconds"]),
            jobs=int(summary["jobs"]),
            counts=dict(summary["counts"]),
            critical_path=tuple(summary["critical_path"]),
            slacks=dict(summary["slacks"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
