"""Reads a build from its record, which `mlcbuild log` also shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mlcbuild.cli.console.action_logs import log_path
from mlcbuild.cli.log.records import BuildRecord
from mlcbuild.cli.report_page.build import PageAction, PageBuild, PageTarget, last_ends

_LARGEST_LOG = 1 << 20  # bytes; a longer log is left to its file


def read_record(record: BuildRecord, *, logs: Path) -> PageBuild:
    """The build of a record; `logs` is where failed actions have their logs. Raises ValueError if it is damaged."""
    return PageBuild(
        invocation=record.invocation,
        began=record.began,
        arguments=record.arguments,
        exit_code=record.exit_code,
        wall_seconds=record.wall_seconds,
        jobs=record.jobs,
        actions=tuple(_with_log(action, logs) for action in last_ends(record.actions())),
        targets=tuple(PageTarget(label=label) for label in record.targets),
        critical_path=tuple(str(step["identifier"]) for step in record.critical_path),
        slacks=record.slacks,
    )


def earlier_build(record: BuildRecord, known: list[BuildRecord]) -> BuildRecord | None:
    """The last build of the same targets before this one that came to an end; `known` has the newest first."""
    interrupted = 8
    return next(
        (
            other
            for other in known
            if other.began < record.began
            and frozenset(other.targets) == frozenset(record.targets)
            and other.exit_code != interrupted
        ),
        None,
    )


def _with_log(action: PageAction, logs: Path) -> PageAction:
    """A failed action has no result that its log could come from. Its log file may be of a later build."""
    if action.status != "failed" or action.log:
        return action
    try:
        with (logs / log_path(action.shared_with or action.identifier)).open("rb") as stream:
            data = stream.read(_LARGEST_LOG)
    except OSError:
        return action
    return replace(action, log=data.decode("utf-8", "backslashreplace"))
