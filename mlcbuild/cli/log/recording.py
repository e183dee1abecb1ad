"""Writes the record of a build at its end, and keeps the records within their limits."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlcbuild.cli.console.target_table import TargetTable
from mlcbuild.cli.log.no_op_builds import NO_OP_FILE, append_no_op
from mlcbuild.cli.log.record_file import record_files, remove_unfinished, write_file
from mlcbuild.cli.reports.event_log import compact_record, event_record, file_document
from mlcbuild.cli.settings.history import HistoryLimits
from mlcbuild.engine.build_events import (
    ActionFinished,
    ActionStatus,
    BuildEvent,
    BuildFinished,
    BuildStarted,
    Notice,
    TargetFinished,
    TargetSkipped,
)

_MOST_TARGETS = 40  # labels in the summary; all are in the lines after it
_UP_TO_DATE = ActionStatus.UP_TO_DATE.value


def write_record(
    directory: Path,
    events: Sequence[BuildEvent],
    *,
    began: float,
    arguments: Sequence[str],
    exit_code: int,
    limits: HistoryLimits,
) -> None:
    """Write the record of a build that ended or was cut short, and remove the oldest ones. Raises OSError.

    `began` is in seconds since 1970. A build that had nothing to do becomes a line (`no_op_builds`).
    """
    started = next((event for event in events if isinstance(event, BuildStarted)), None)
    if not limits.builds:
        prune(directory, limits)
        return
    if started is None:
        return
    finished = next((event for event in events if isinstance(event, BuildFinished)), None)
    actions = [event for event in events if isinstance(event, ActionFinished)]
    counts = _counts(finished, actions)
    wall_seconds = finished.wall_seconds if finished else max((action.time for action in actions), default=0.0)
    if exit_code == 0 and not any(count for status, count in counts.items() if status != _UP_TO_DATE):
        directory.mkdir(parents=True, exist_ok=True)
        append_no_op(
            directory,
            invocation=started.invocation,
            began=began,
            arguments=arguments,
            targets=started.targets,
            actions=counts.get(_UP_TO_DATE, 0),
            wall_seconds=wall_seconds,
        )
        return
    summary = {
        "invocation": started.invocation,
        "began": round(began, 3),
        "arguments": list(arguments),
        "targets": list(started.targets[:_MOST_TARGETS]),
        "target_count": len(started.targets),
        "exit_code": exit_code,
        "wall_seconds": wall_seconds,
        "jobs": started.jobs,
        "counts": counts,
        "digest_function": started.digest_function,
        "bytes_downloaded": finished.bytes_downloaded if finished else 0,
        "bytes_uploaded": finished.bytes_uploaded if finished else 0,
    }
    path = {
        "critical_path": event_record(finished)["critical_path"] if finished else [],
        "slacks": {slack.identifier: round(slack.seconds, 6) for slack in finished.slacks} if finished else {},
        "notices": [event_record(event) for event in events if isinstance(event, Notice)],
        "skipped": [event_record(event) for event in events if isinstance(event, TargetSkipped)],
    }
    write_file(directory, summary, [_targets(events), path, *map(compact_record, actions)])
    prune(directory, limits)


def prune(directory: Path, limits: HistoryLimits) -> None:
    """Remove the oldest records beyond the limits. The newest one stays, however large it is.

    What cannot be removed stays. Another command may be removing the same.
    """
    kept_bytes = 0
    for number, path in enumerate(record_files(directory), start=1):
        with contextlib.suppress(OSError):
            kept_bytes += path.lstat().st_size
            if number > limits.builds or (number > 1 and kept_bytes > limits.bytes):
                path.unlink()
    remove_unfinished(directory)
    if not limits.builds:
        with contextlib.suppress(OSError):
            (directory / NO_OP_FILE).unlink(missing_ok=True)
            directory.rmdir()


def _counts(finished: BuildFinished | None, actions: Sequence[ActionFinished]) -> dict[str, int]:
    if finished is not None:
        return {status.value: count for status, count in finished.counts if count}
    # An action whose result was lost has run again: its last status counts.
    return dict(Counter({action.identifier: action.status.value for action in actions}.values()))


def _targets(events: Sequence[BuildEvent]) -> dict[str, Any]:
    """What became of each target that was asked for or has actions, by label."""
    table = TargetTable()
    files: dict[str, list[dict[str, object]]] = {}
    unchanged: Counter[str] = Counter()
    for event in events:
        table.apply(event)
        if isinstance(event, TargetFinished):
            files[event.label] = [file_document(entry) for entry in event.output_files]
    started = next((event for event in events if isinstance(event, BuildStarted)), None)
    axes = started.axes if started else {}
    for action in table.totals.actions():
        unchanged[action.owner] += action.status is ActionStatus.UP_TO_DATE and not action.shared_with
    documents = {}
    for label in table.labels():
        total = table.totals.of(label)
        documents[label] = {
            "requested": label in table.requested,
            "outcome": table.outcome(label),
            "ran": total.ran,
            "cached": total.cached,
            "seconds": round(total.seconds, 6),
            "output_files": files.get(label, []),
            **({"axes": dict(axes[label])} if label in axes else {}),
            "unchanged": unchanged[label],
        }
    return documents
