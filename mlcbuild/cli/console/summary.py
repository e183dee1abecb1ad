"""The summary at the end of a build: outcomes of its actions, the critical path, and the remote cache."""

from __future__ import annotations

import re

from mlcbuild.cli.console.action_names import title, without_label
from mlcbuild.cli.console.remote_summary import RemoteSummary, remote_line
from mlcbuild.cli.output import text
from mlcbuild.engine.build_events import ActionStatus, BuildFinished, PathStep
from mlcbuild.figures import byte_count

_LONGEST_PATH = 8  # steps; a reader does not take in more
_SHORTENED = re.compile(r"([0-9a-f]{8})[0-9a-f]{24,}")  # hashes in names: the first digits tell them apart


def summary_lines(finished: BuildFinished, *, wall_seconds: float, remote: RemoteSummary | None = None) -> list[str]:
    """One to three lines, without counts of zero. `wall_seconds` is the time of the whole command."""
    lines = [_actions_line(finished, wall_seconds)]
    if path := _path_line(finished.critical_path):
        lines.append(path)
    if remote and (line := remote_line(remote)):
        lines.append(line)
    return lines


def _actions_line(finished: BuildFinished, wall_seconds: float) -> str:
    counts = dict(finished.counts)
    total = sum(counts.values())
    local, ray = counts.get(ActionStatus.EXECUTED_LOCAL, 0), counts.get(ActionStatus.EXECUTED_RAY, 0)
    places = [f"{count} {place}" for count, place in ((local, "local"), (ray, "ray")) if count]
    kinds = [
        (counts.get(ActionStatus.UP_TO_DATE, 0), "up to date"),
        (counts.get(ActionStatus.DISK_HIT, 0), "from disk"),
        (counts.get(ActionStatus.REMOTE_HIT, 0), "from remote"),
        (local + ray, f"ran ({', '.join(places)})"),
        (counts.get(ActionStatus.NOT_CACHED, 0), "not cached"),
        (counts.get(ActionStatus.FAILED, 0), "failed"),
        (counts.get(ActionStatus.SKIPPED, 0), "skipped"),
    ]
    counted = ", ".join(f"{count} {kind}" for count, kind in kinds if count)
    head = text.plural(total, "action")
    parts = [f"{head}: {counted}" if counted else head, text.seconds(wall_seconds)]
    moved = [
        f"{direction} {byte_count(count)}"
        for direction, count in (("down", finished.bytes_downloaded), ("up", finished.bytes_uploaded))
        if count
    ]
    if moved:
        parts.append(", ".join(moved))
    if finished.interrupted:
        parts.append("interrupted")
    return " · ".join(parts)


def _path_line(path: tuple[PathStep, ...]) -> str:
    """The critical path by names of actions. A long one shows both ends and the longest steps, the rest as `…`."""
    steps = [step for step in path if step.seconds > 0]
    if not steps:
        return ""
    shown = frozenset(_worth_showing(steps))
    one_target = len({_label(step) for step in steps if _label(step)}) <= 1
    names: list[str] = []
    label = ""
    for index, step in enumerate(steps):
        if index in shown:
            changes = not one_target and _label(step) not in ("", label)
            names.append(_SHORTENED.sub(r"\1…", title(step) if changes else without_label(title(step))))
            label = _label(step) or label
        elif names[-1] != "…":
            names.append("…")
    return f"critical path {text.seconds(sum(step.seconds for step in steps))}: {' → '.join(names)}"


def _worth_showing(steps: list[PathStep]) -> list[int]:
    last = len(steps) - 1
    between = sorted(range(1, last), key=lambda index: steps[index].seconds, reverse=True)
    return [0, last, *between[: _LONGEST_PATH - 2]]


def _label(step: PathStep) -> str:
    """The target of a step; "" for a step that targets share, such as a kernel's."""
    label = step.identifier.partition(" ")[0]
    return label if label.startswith("//") else ""
