"""A finished build as the page shows it, from the events of the event log or of a record."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_DIGEST = re.compile(r"[0-9a-f]+/[0-9]+")
UNFINISHED = "unfinished"
"""The status of an action without an end, in a log that was cut short."""

_CACHED = ("up_to_date", "disk_hit", "remote_hit")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFile:
    """A file of an action's result: its path in the result, and its digest as `HASH/SIZE`."""

    path: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAction:
    """One action, with the last of its ends. Times are seconds since the build began; names are those of events."""

    identifier: str
    title: str
    mnemonic: str
    owner: str
    status: str
    start: float
    time: float
    key: str = ""
    previous_key: str = ""
    cause: str = ""
    executor: str = ""
    worker: str = ""
    node: str = ""
    queued_seconds: float = 0.0
    input_seconds: float = 0.0
    output_seconds: float = 0.0
    peak_bytes: int = 0
    exit_code: int = 0
    message: str = ""
    log: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    shared_with: str = ""
    shared_by: tuple[str, ...] = ()
    output_files: tuple[OutputFile, ...] = ()
    announced_by: str = ""

    @property
    def seconds(self) -> float:
        """Of its run, with inputs and outputs; 0 where nothing ran."""
        return max(self.time - self.start, 0.0) if self.executor else 0.0

    @property
    def is_cached(self) -> bool:
        return self.status in _CACHED


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTarget:
    """A requested target: whether it was built (None if the build ended before), its outputs and matrix axes."""

    label: str
    success: bool | None = None
    error: str = ""
    outputs: tuple[str, ...] = ()
    axes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedTarget:
    """A target that a wildcard matches and that cannot be built for its platform."""

    label: str
    reason: str
    axes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageNotice:
    message: str
    time: float


@dataclass(frozen=True, kw_only=True)
class PageBuild:
    """The build. `began` is in seconds since 1970, 0 where it is not known. `slacks` are seconds by identifier."""

    invocation: str
    began: float
    arguments: tuple[str, ...]
    exit_code: int
    wall_seconds: float
    jobs: int
    actions: tuple[PageAction, ...]
    targets: tuple[PageTarget, ...]
    skipped: tuple[SkippedTarget, ...] = ()
    critical_path: tuple[str, ...] = ()
    slacks: Mapping[str, float] = field(default_factory=dict)
    notices: tuple[PageNotice, ...] = ()
    bytes_downloaded: int = 0
    bytes_uploaded: int = 0
    error: str = ""  # of a command that ended before its build

    @property
    def labels(self) -> frozenset[str]:
        return frozenset(target.label for target in self.targets)

    def counts(self) -> dict[str, int]:
        """How many actions ended in each way."""
        return dict(Counter(action.status for action in self.actions))


def last_ends(ends: Iterable[PageAction]) -> tuple[PageAction, ...]:
    """The actions in the order in which they ended. One whose result was lost ran again: its last end counts."""
    last: dict[str, PageAction] = {}
    for action in ends:
        last.pop(action.identifier, None)
        last[action.identifier] = action
    return tuple(last.values())


def page_action(event: Mapping[str, Any]) -> PageAction:
    """An action from its `action_finished` event. Raises ValueError for one of another form."""
    identifier = text_of(event, "identifier")
    if not identifier:
        raise ValueError("it names no action")
    return PageAction(
        identifier=identifier,
        title=text_of(event, "title") or identifier,
        mnemonic=text_of(event, "mnemonic"),
        owner=text_of(event, "owner"),
        status=text_of(event, "status"),
        start=number_of(event, "start"),
        time=number_of(event, "time"),
        key=text_of(event, "key"),
        previous_key=text_of(event, "previous_key"),
        cause=text_of(event, "cause"),
        executor=text_of(event, "executor"),
        worker=text_of(event, "worker"),
        node=text_of(event, "node"),
        queued_seconds=number_of(event, "queued_seconds"),
        input_seconds=number_of(event, "input_seconds"),
        output_seconds=number_of(event, "output_seconds"),
        peak_bytes=int(number_of(event, "peak_bytes")),
        exit_code=int(number_of(event, "exit_code")),
        message=text_of(event, "message"),
        log=text_of(event, "log"),
        details=mapping_of(event, "details"),
        shared_with=text_of(event, "shared_with"),
        shared_by=texts_of(event, "shared_by"),
        output_files=tuple(_output_file(item) for item in list_of(event, "output_files")),
        announced_by=text_of(event, "announced_by"),
    )


def unfinished_action(identifier: str, started: Mapping[str, Any], announced_by: str) -> PageAction:
    """An action without an end, from its `action_started` event, which is empty if it had not begun."""
    owner, _, rest = identifier.partition(" ")
    began = number_of(started, "time")
    return PageAction(
        identifier=identifier,
        title=text_of(started, "title") or identifier,
        mnemonic=text_of(started, "mnemonic") or rest.partition(" ")[0],
        owner=owner,
        status=UNFINISHED,
        start=began,
        time=began,
        message="it had begun when the log ended" if started else "",
        announced_by=announced_by,
    )


def _output_file(item: object) -> OutputFile:
    if not isinstance(item, Mapping):
        raise ValueError('"output_files" has something that is no object')
    digest = text_of(item, "digest")
    if not _DIGEST.fullmatch(digest):
        raise ValueError('"digest" is no digest')
    return OutputFile(path=text_of(item, "path"), digest=digest)


def skipped_target(event: Mapping[str, Any]) -> SkippedTarget:
    """A target from its `target_skipped` event. Raises ValueError for one of another form."""
    axes = mapping_of(event, "axes")
    return SkippedTarget(
        label=text_of(event, "label"),
        reason=text_of(event, "reason"),
        axes={name: text_of(axes, name) for name in axes},
    )


# Fields of events, which may come from another version, another program, or an editor.


def text_of(event: Mapping[str, Any], name: str) -> str:
    value = event.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f'"{name}" is no text')
    return value


def number_of(event: Mapping[str, Any], name: str) -> float:
    """A finite number; 0 where there is none."""
    value = event.get(name, 0)
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f'"{name}" is no number')
    return value


def list_of(event: Mapping[str, Any], name: str) -> Sequence[Any]:
    value = event.get(name) or ()
    if not isinstance(value, list | tuple):
        raise ValueError(f'"{name}" is no list')
    return value


def texts_of(event: Mapping[str, Any], name: str) -> tuple[str, ...]:
    values = list_of(event, name)
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f'"{name}" is no list of texts')
    return tuple(values)


def mapping_of(event: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = event.get(name) or {}
    if not isinstance(value, Mapping):
        raise ValueError(f'"{name}" is no object')
    return value
