"""Reads a build from the file that `mlcbuild build --events` writes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mlcbuild.cli.report_page.build import (
    PageAction,
    PageBuild,
    PageNotice,
    PageTarget,
    last_ends,
    list_of,
    mapping_of,
    number_of,
    page_action,
    skipped_target,
    text_of,
    texts_of,
    unfinished_action,
)
from mlcbuild.cli.reports.event_log import VERSION
from mlcbuild.errors import UsageError
from mlcbuild.regular_files import open_regular

_ENDED = "action_finished"
_NO_BUILD = 37  # the exit code of a file that was cut short: mlcbuild did not come to its end


def read_events(path: Path) -> PageBuild:
    """The build of an event log. A log that was cut short gives what had happened until then.

    Raises UsageError for a file that cannot be read, or is no event log.
    """
    actions: list[PageAction] = []
    by_kind: dict[str, list[Mapping[str, Any]]] = {}
    for number, event in _events(path):
        kind = event.get("event")
        if number == 1 and (kind != "header" or event.get("format") != "mlcbuild events"):
            raise UsageError(f"{path} is no event log", advice=("`mlcbuild build --events FILE` writes one",))
        if number == 1 and event.get("version") != VERSION:
            raise UsageError(
                f"{path} is an event log of version {event.get('version')}; this mlcbuild reads version {VERSION}"
            )
        if kind == _ENDED:
            try:
                actions.append(page_action(event))
            except ValueError as error:
                raise UsageError(f"{path}:{number}: an event of another form: {error}") from None
        else:
            by_kind.setdefault(str(kind), []).append(event)
    try:
        ended = last_ends(actions)
        return _build((*ended, *_unfinished(frozenset(each.identifier for each in ended), by_kind)), by_kind)
    except ValueError as error:
        raise UsageError(f"{path} has an event of another form: {error}") from None


def _build(actions: tuple[PageAction, ...], by_kind: Mapping[str, list[Mapping[str, Any]]]) -> PageBuild:
    header = _only(by_kind, "header")
    started, finished = _only(by_kind, "build_started"), _only(by_kind, "build_finished")
    ended = _only(by_kind, "command_finished")
    known = {text_of(event, "label"): event for event in by_kind.get("target_finished", ())}
    axes = mapping_of(started, "axes")
    labels = dict.fromkeys((*texts_of(started, "targets"), *known))
    return PageBuild(
        invocation=text_of(header, "invocation"),
        began=number_of(header, "began"),
        arguments=texts_of(header, "arguments"),
        exit_code=int(number_of(ended, "exit_code")) if ended else _NO_BUILD,
        error=text_of(ended, "error") if ended else "the event log was cut short",
        wall_seconds=number_of(finished, "wall_seconds") if finished else _last_time(actions),
        jobs=int(number_of(started, "jobs")),
        actions=actions,
        targets=tuple(_target(label, known.get(label, {}), mapping_of(axes, label)) for label in labels),
        skipped=tuple(skipped_target(event) for event in by_kind.get("target_skipped", ())),
        critical_path=tuple(text_of(step, "identifier") for step in list_of(finished, "critical_path")),
        slacks={text_of(step, "identifier"): number_of(step, "seconds") for step in list_of(finished, "slacks")},
        notices=tuple(
            PageNotice(message=text_of(event, "message"), time=number_of(event, "time"))
            for event in by_kind.get("notice", ())
        ),
        bytes_downloaded=int(number_of(finished, "bytes_downloaded")),
        bytes_uploaded=int(number_of(finished, "bytes_uploaded")),
    )


def _unfinished(ended: frozenset[str], by_kind: Mapping[str, list[Mapping[str, Any]]]) -> Iterator[PageAction]:
    """The actions that were needed and have no end, which only a log that was cut short has."""
    started = {text_of(event, "identifier"): event for event in by_kind.get("action_started", ())}
    for event in by_kind.get("actions_added", ()):
        for identifier in texts_of(event, "identifiers"):
            if identifier not in ended:
                yield unfinished_action(identifier, started.get(identifier, {}), text_of(event, "discovered_by"))


def _target(label: str, event: Mapping[str, Any], axes: Mapping[str, Any]) -> PageTarget:
    """A target from its `target_finished` event, which may be empty. Raises ValueError for one of another form."""
    return PageTarget(
        label=label,
        success=bool(event["success"]) if "success" in event else None,
        error=text_of(event, "error"),
        outputs=texts_of(event, "outputs"),
        axes={name: text_of(axes, name) for name in axes},
    )


def _only(by_kind: Mapping[str, list[Mapping[str, Any]]], kind: str) -> Mapping[str, Any]:
    return by_kind[kind][0] if kind in by_kind else {}


def _last_time(actions: tuple[PageAction, ...]) -> float:
    return max((action.time for action in actions), default=0.0)


def _events(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The events with the numbers of their lines. The last line may be half written. Raises UsageError."""
    try:
        with os.fdopen(open_regular(path), encoding="utf-8", errors="surrogateescape") as stream:
            lines = stream.read().split("\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    for number, line in enumerate(lines, start=1):
        if number > 1 and number == len(lines) and not line.endswith("}"):
            return
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if isinstance(event, dict):
            yield number, event
        elif number == 1:
            yield number, {}
        else:
            raise UsageError(f"{path}:{number}: this is no event")
