"""Reads a build from its record, which `mlcbuild log` also shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from mlcbuild.cli.console.action_logs import log_path
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.log.records import BuildRecord
from mlcbuild.cli.report_page.build import (
    PageAction,
    PageBuild,
    PageNotice,
    PageTarget,
    last_ends,
    number_of,
    page_action,
    skipped_target,
    text_of,
)

_BUILT = "built"
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
        actions=tuple(_with_log(action, logs) for action in last_ends(map(page_action, record.actions()))),
        targets=tuple(_target(label, record) for label in record.targets),
        skipped=tuple(map(skipped_target, record.skipped)),
        critical_path=tuple(text_of(step, "identifier") for step in record.critical_path),
        slacks=record.slacks,
        notices=tuple(
            PageNotice(message=text_of(notice, "message"), time=number_of(notice, "time")) for notice in record.notices
        ),
        bytes_downloaded=int(number_of(record.summary, "bytes_downloaded")),
        bytes_uploaded=int(number_of(record.summary, "bytes_uploaded")),
    )


def earlier_build(record: BuildRecord, known: Iterable[BuildRecord]) -> BuildRecord | None:
    """The last build of the same targets before this one that came to an end; `known` has the newest first."""
    for other in known:
        ended = other.began < record.began and other.exit_code != ExitCode.INTERRUPTED
        # The number of targets is known without reading the rest of the file.
        if ended and other.target_count == record.target_count and set(other.targets) == set(record.targets):
            return other
    return None


def _target(label: str, record: BuildRecord) -> PageTarget:
    found = record.outcomes.get(label)
    if found is None:
        return PageTarget(label=label, success=True if record.exit_code == ExitCode.OK else None)
    return PageTarget(
        label=label,
        success=found.outcome == _BUILT,
        outputs=tuple(text_of(file, "path") for file in found.output_files),
        axes={name: text_of(found.axes, name) for name in found.axes},
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
