"""The listings of `mlcbuild log` of one build: actions that ran, and the critical path."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlcbuild.cli.arguments.options import RECORD_DIRECTORY, STATE_DIRECTORY, GlobalOptions
from mlcbuild.cli.console.action_names import full_recorded_title, recorded_title
from mlcbuild.cli.log.records import BuildRecord, chosen
from mlcbuild.cli.output import text
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.figures import byte_count
from mlcbuild.workspace.settings import find_root

SHOWN_DIGITS = 8
"""Of an invocation or a key."""

_LEAST_SLACKS = 10
_BELOW = 4  # columns before a cell that stands below its line
STATUSES = {
    "up_to_date": "up to date",
    "disk_hit": "from disk",
    "remote_hit": "from remote",
    "executed_local": "ran",
    "executed_ray": "ran",
    "not_cached": "not cached",
}
"""The statuses of actions in records, as people read them; all others are written so."""


def record_directory(options: GlobalOptions) -> Path:
    """The folder of records of the current workspace. Raises WorkspaceError."""
    return find_root(options.directory) / STATE_DIRECTORY / RECORD_DIRECTORY


def print_what_ran(
    build: str, *, failed: bool, mnemonic: str, slowest: bool, output: OutputFormat, options: GlobalOptions
) -> None:
    """Print one line for each action that ran, in the order in which they began, or the slowest first."""
    record = chosen(record_directory(options), build)
    ran = [
        action
        for action in record.actions()
        if action.get("executor")
        and (not failed or action["status"] == "failed")
        and mnemonic in ("", action["mnemonic"])
    ]
    ran.sort(key=lambda action: -seconds_of(action) if slowest else action.get("start", 0.0))
    if output is OutputFormat.JSON:
        print_json({"build": build_document(record), "actions": [described(action, record) for action in ran]})
        return
    if not ran:
        print("no such action ran" if failed or mnemonic else "nothing ran")
        return
    rows = [
        (
            f"{seconds_of(action):.2f}",
            *(f"{action.get(f'{part}_seconds', 0.0):.2f}" for part in ("queued", "input", "output")),
            byte_count(action["peak_bytes"]) if action.get("peak_bytes") else "-",
            place_of(action),
            action.get("cause", ""),
            full_recorded_title(action) + (" (failed)" if action["status"] == "failed" else ""),
        )
        for action in ran
    ]
    titles = ("seconds", "queued", "input", "output", "memory", "where", "why", "action")
    print("\n".join(table(titles, rows, right=range(5), width=options.width(sys.stdout))))


def print_critical_path(build: str, output: OutputFormat, options: GlobalOptions) -> None:
    """Print the critical path, its share of the time, and the actions with the least slack."""
    record = chosen(record_directory(options), build)
    ran = {action["identifier"]: action for action in record.actions() if action.get("executor")}
    path = sum(step["seconds"] for step in record.critical_path)
    work = sum(map(seconds_of, ran.values()))
    share = work / record.jobs if record.jobs else 0.0
    if output is OutputFormat.JSON:
        print_json(
            {
                "build": build_document(record),
                "critical_path": [
                    {
                        "action": step["identifier"],
                        "title": recorded_title(step),
                        "mnemonic": step["mnemonic"],
                        "seconds": round(step["seconds"], 6),
                        "share": round(step["seconds"] / (record.wall_seconds or path), 4),
                    }
                    for step in record.critical_path
                ],
                "path_seconds": round(path, 3),
                "work_seconds": round(work, 3),
                "jobs": record.jobs,
                "work_seconds_a_job": round(share, 3),
                "slacks": [{"action": name, "slack_seconds": slack} for name, slack in record.slacks.items()],
            }
        )
        return
    if not record.critical_path:
        print("nothing ran")
        return
    whole = record.wall_seconds or path
    print(f"critical path {text.seconds(path)}, {path / whole:.0%} of {text.seconds(whole)}")
    rows = [
        (
            f"{step['seconds']:.2f}",
            f"{step['seconds'] / whole:.0%}",
            full_recorded_title(ran.get(step["identifier"], step)),
        )
        for step in record.critical_path
    ]
    width = options.width(sys.stdout)
    print("\n".join(table(("seconds", "share", "action"), rows, right=range(2), width=width)))
    if record.slacks:
        print(f"\n{text.plural(len(record.slacks), 'action')} beside it; those with the least slack:")
        least = list(record.slacks.items())[:_LEAST_SLACKS]
        rows = [
            (
                f"{slack:.2f}",
                f"{seconds_of(ran.get(name, {})):.2f}",
                recorded_title(ran.get(name, {"identifier": name})),
            )
            for name, slack in least
        ]
        print("\n".join(table(("slack", "seconds", "action"), rows, right=range(2), width=width)))
    if record.jobs:
        print(
            f"\n{text.seconds(work)} of work take at least {text.seconds(share)} on {text.plural(record.jobs, 'job')},"
        )
        conclusion = "more jobs would not help" if path >= share else "more jobs would help"
        print(f"the path {text.seconds(path)}: {conclusion}")


# Shared with `mlcbuild show`.


def seconds_of(action: Mapping[str, Any]) -> float:
    """The seconds of an action's run; 0 if it did not run."""
    return float(action.get("time", 0.0) - action.get("start", 0.0)) if action.get("executor") else 0.0


def place_of(action: Mapping[str, Any]) -> str:
    """`local`, or `ray node-2`."""
    return " ".join(part for part in (action.get("executor", ""), action.get("node", "")) if part)


def described(action: Mapping[str, Any], record: BuildRecord) -> dict[str, Any]:
    """An action as JSON, with all fields."""
    on_path = {step["identifier"] for step in record.critical_path}
    return {
        "action": action["identifier"],
        "title": recorded_title(action),
        "details": action.get("details", {}),
        "mnemonic": action["mnemonic"],
        "target": action["owner"],
        "status": action["status"],
        "key": action.get("key", ""),
        "cause": action.get("cause"),
        "start": action.get("start", 0.0),
        "seconds": round(seconds_of(action), 6),
        "queued_seconds": action.get("queued_seconds", 0.0),
        "input_seconds": action.get("input_seconds", 0.0),
        "output_seconds": action.get("output_seconds", 0.0),
        "peak_bytes": action.get("peak_bytes", 0),
        "executor": action.get("executor", ""),
        "node": action.get("node", ""),
        "worker": action.get("worker", ""),
        "exit_code": action.get("exit_code", 0),
        "message": action.get("message", ""),
        "shared_with": action.get("shared_with", ""),
        "shared_by": list(action.get("shared_by", ())),
        "output_files": list(action.get("output_files", ())),
        "on_critical_path": action["identifier"] in on_path,
        "slack_seconds": record.slacks.get(action["identifier"]),
    }


def build_title(record: BuildRecord, action: Mapping[str, Any] | None = None) -> str:
    """When a build began, or an action of it, and the first digits of the build's invocation."""
    start = float(action.get("start", 0.0)) if action else 0.0
    return f"{moment(record.began + start)}, {record.invocation[:SHOWN_DIGITS]}"


def build_document(record: BuildRecord) -> dict[str, Any]:
    """A build as JSON, without its actions."""
    return {
        "invocation_id": record.invocation,
        "began": record.began,
        "arguments": list(record.arguments),
        "targets": list(record.targets),
        "exit_code": record.exit_code,
        "error": record.error,
        "wall_seconds": record.wall_seconds,
        "jobs": record.jobs,
        "actions": dict(record.counts),
    }


def moment(began: float) -> str:
    """Seconds since 1970 as `2026-11-29 07:21:10`, in local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(began))


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], *, right: Collection[int], width: int = 0) -> list[str]:
    """Columns as wide as their cells. Those of `right` are right-aligned, the last one is not padded.

    If a line is wider than `width` (0: any), its last cell stands below it.
    """
    lines = [titles, *rows]
    widths = [max(text.cell_width(line[column]) for line in lines) for column in range(len(titles) - 1)]
    shown = []
    for *cells, last in lines:
        aligned = "  ".join(
            f"{cell:>{room}}" if column in right else f"{cell:<{room}}"
            for column, (cell, room) in enumerate(zip(cells, widths, strict=True))
        )
        whole = f"{aligned}  {last}"
        if width and text.cell_width(whole) > width:
            shown += [aligned.rstrip(), *text.wrapped([" " * _BELOW + last], width)]
        else:
            shown.append(whole)
    return shown
