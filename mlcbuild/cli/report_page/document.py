"""The data of the page as JSON.

Two objects, `build` and `details`, because the page reads the second only when an action is opened::

    {"version": 1, "mlcbuild": str,
     "build": {invocation, began, arguments, exit_code, error, wall_seconds, jobs, bytes_downloaded, bytes_uploaded},
     "targets": [{label, success, error, outputs, axes}, …], "skipped": [{label, reason, axes}, …],
     "actions": [{identifier, title, mnemonic, owner, status, start, time, …, slack, before}, …],
     "critical_path": [index of an action, …], "notices": [{message, time}, …],
     "comparison": null, or {"build": as above, "counts": {status: int}, "gone": [{title, owner, …}, …]}}

    {"files": ["HASH/SIZE", …],
     "actions": [null, or {known, inputs: [[path, index of a file], …], outputs, components: [[name, value], …],
                           parameters, log, differences}, …]}

Names are those of events (`mlcbuild.engine.build_events`); `before` is an action's form in the earlier build. Fields
that are 0, false or empty are left out. An action's digests of outputs are in `details` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import mlcbuild
from mlcbuild.cli.report_page.build import OutputFile, PageAction, PageBuild
from mlcbuild.cli.report_page.comparison import Comparison
from mlcbuild.cli.report_page.details import ActionDetails, PageDifference

VERSION = 1
_LONGEST_LOG = 256 << 10  # characters of one action's log; the end matters
_PLAIN = (
    "identifier",
    "mnemonic",
    "owner",
    "status",
    "key",
    "cause",
    "executor",
    "node",
    "exit_code",
    "message",
    "shared_with",
    "announced_by",
    "peak_bytes",
)
_TIMES = ("start", "time", "queued_seconds", "input_seconds", "output_seconds")


def build_document(build: PageBuild, comparison: Comparison | None) -> dict[str, Any]:
    """The first object."""
    places = {action.identifier: index for index, action in enumerate(build.actions)}
    return {
        "version": VERSION,
        "mlcbuild": mlcbuild.__version__,
        "build": _summary(build),
        "targets": [
            _filled(
                {
                    "label": target.label,
                    "error": target.error,
                    "outputs": list(target.outputs),
                    "axes": dict(target.axes),
                }
            )
            | {"success": target.success}
            for target in build.targets
        ],
        "skipped": [
            {"label": target.label, "reason": target.reason, "axes": dict(target.axes)} for target in build.skipped
        ],
        "actions": [_action(action, build, comparison) for action in build.actions],
        "critical_path": [places[name] for name in build.critical_path if name in places],
        "notices": [{"message": notice.message, "time": notice.time} for notice in build.notices],
        "comparison": _comparison(comparison) if comparison else None,
    }


def details_document(details: Iterable[ActionDetails], done: Callable[[int], None]) -> dict[str, Any]:
    """The second object, from the details in the order of the actions. `done` is told how many have been read."""
    files = _Files()
    documents = []
    for count, each in enumerate(details, start=1):
        documents.append(_details(each, files))
        done(count)
    return {"files": list(files.places), "actions": documents}


@dataclass(slots=True)
class _Files:
    """Numbers digests, most of which are an output of one action and an input of others."""

    places: dict[str, int]

    def __init__(self) -> None:
        self.places = {}

    def listed(self, entries: Iterable[OutputFile]) -> list[list[str | int]]:
        return [[entry.path, self.places.setdefault(entry.digest, len(self.places))] for entry in entries]


def _summary(build: PageBuild) -> dict[str, Any]:
    return {
        "invocation": build.invocation,
        "began": build.began,
        "arguments": list(build.arguments),
        "exit_code": build.exit_code,
        "error": build.error,
        "wall_seconds": round(build.wall_seconds, 6),
        "jobs": build.jobs,
        "bytes_downloaded": build.bytes_downloaded,
        "bytes_uploaded": build.bytes_uploaded,
    }


def _action(action: PageAction, build: PageBuild, comparison: Comparison | None) -> dict[str, Any]:
    document = {name: getattr(action, name) for name in _PLAIN}
    document |= {name: round(getattr(action, name), 6) for name in _TIMES}
    document["title"] = "" if action.title == action.identifier else action.title
    document["worker"] = "" if action.worker in (action.executor, action.node) else action.worker
    document["shared_by"] = list(action.shared_by)
    found = _filled(document)
    if action.identifier in build.slacks:
        found["slack"] = build.slacks[action.identifier]
    former = comparison.former.get(action.identifier) if comparison else None
    if former is not None:
        found["before"] = _former(former) | {"same_key": former.key == action.key}
    return found


def _former(action: PageAction) -> dict[str, Any]:
    return {"status": action.status, "seconds": round(action.seconds, 6)}


def _comparison(comparison: Comparison) -> dict[str, Any]:
    return {
        "build": _summary(comparison.earlier),
        "counts": comparison.earlier.counts(),
        "gone": [
            {"title": action.title, "mnemonic": action.mnemonic, "owner": action.owner, **_former(action)}
            for action in comparison.gone
        ],
    }


def _details(details: ActionDetails, files: _Files) -> dict[str, Any] | None:
    document = {
        "known": details.is_known,
        "inputs": files.listed(details.inputs),
        "outputs": files.listed(details.outputs),
        "components": [list(component) for component in details.components],
        "parameters": dict(details.parameters or {}),
        "log": _end_of(details.log),
        "differences": [_difference(each) for each in details.differences],
    }
    return _filled(document) or None


def _end_of(log: str) -> str:
    if len(log) <= _LONGEST_LOG:
        return log
    return f"… {len(log) - _LONGEST_LOG:,} characters before this are left out\n{log[-_LONGEST_LOG:]}"


def _difference(found: PageDifference) -> dict[str, Any]:
    difference = found.difference
    return {
        "kind": difference.kind,
        "name": difference.name,
        "before": difference.before,
        "now": difference.now,
        "inside": [list(part) for part in difference.inside],
        "code": [[change.where, change.name, change.kind, change.is_module] for change in difference.code],
        "text": list(found.text),
    }


def _filled(document: dict[str, Any]) -> dict[str, Any]:
    """Without what is 0, false or empty."""
    return {name: value for name, value in document.items() if value}
