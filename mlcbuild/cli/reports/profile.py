"""The profile (`--profile`): a Chrome trace, for https://ui.perfetto.dev or chrome://tracing.

The format is the JSON object form of the Trace Event Format: complete events (`"ph": "X"`) with times in
microseconds, and metadata events that name the lanes. Process 1 is the command itself with its phases (load,
analyse, build), process 2 the workers of this machine with one lane each, process 3 the answers of caches. Each further
process is another machine with its workers. An action's slice contains those of its inputs, its run and its outputs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from mlcbuild.cli.console.action_names import title, without_label
from mlcbuild.engine.build_events import (
    ActionFinished,
    ActionStatus,
    BuildEvent,
    BuildFinished,
    BuildStarted,
    Notice,
)
from mlcbuild.engine.target_totals import RAN

_COMMAND, _WORKERS, _CACHES, _FIRST_NODE = 1, 2, 3, 4
_PROCESS_NAMES = {_COMMAND: "mlcbuild", _WORKERS: "workers", _CACHES: "cache answers"}
# A cache answers in no time; a microsecond makes its answer a slice that can be clicked.
_SHORTEST_MICROSECONDS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of the command, in seconds since the command began."""

    name: str
    start: float
    end: float


@dataclass(slots=True)
class _Lanes:
    """Numbers lanes by name. Overlapping slices of one name get separate lanes."""

    ends: dict[str, list[int]] = field(default_factory=dict)
    numbers: dict[tuple[str, int], int] = field(default_factory=dict)

    def place(self, name: str, start: int, end: int) -> int:
        ends = self.ends.setdefault(name, [])
        for row, busy_until in enumerate(ends):
            if busy_until <= start:
                ends[row] = end
                break
        else:
            row = len(ends)
            ends.append(end)
        return self.numbers.setdefault((name, row), len(self.numbers) + 1)


class Profile:
    """Collects the events of one build. `document` works at any time."""

    def __init__(self, *, invocation: str) -> None:
        self._invocation = invocation
        self._actions: list[ActionFinished] = []
        self._notices: list[Notice] = []
        self._critical: frozenset[str] = frozenset()

    def __call__(self, event: BuildEvent) -> None:
        match event:
            case BuildStarted():
                self._invocation = event.invocation
            case ActionFinished():
                self._actions.append(event)
            case Notice():
                self._notices.append(event)
            case BuildFinished():
                self._critical = frozenset(step.identifier for step in event.critical_path)
            case _:
                pass

    def document(self, *, phases: Iterable[Phase], build_began: float) -> dict[str, object]:
        """The trace as a JSON object. `build_began` is when the build began, in seconds since the command began."""
        records: list[dict[str, object]] = [
            _slice(phase.name, "phase", _COMMAND, 1, _micro(phase.start), _micro(phase.end), {}) for phase in phases
        ]
        nodes = sorted({action.node for action in self._actions if action.node})
        processes = {"": _WORKERS} | {node: _FIRST_NODE + index for index, node in enumerate(nodes)}
        lanes = {process: _Lanes() for process in (_WORKERS, _CACHES, *processes.values())}
        for action in sorted(self._actions, key=lambda action: (action.start, action.time, action.identifier)):
            has_ended = action.status not in (ActionStatus.SKIPPED, ActionStatus.NOT_CACHED)
            if not has_ended or (action.status is ActionStatus.FAILED and action.shared_with):
                continue
            start = _micro(build_began + action.start)
            end = max(_micro(build_began + action.time), start + _SHORTEST_MICROSECONDS)
            ran = action.status in RAN or bool(action.worker)
            process = processes[action.node] if ran else _CACHES
            lane = lanes[process].place(action.worker or action.executor or action.status.value, start, end)
            records.append(
                _slice(
                    without_label(title(action)),
                    action.mnemonic,
                    process,
                    lane,
                    start,
                    end,
                    self._arguments(action),
                )
            )
            records += _parts(action, process, lane, start, end)
        records += [
            {
                "ph": "i",
                "s": "g",
                "name": notice.message,
                "cat": "notice",
                "pid": _COMMAND,
                "tid": 1,
                "ts": _micro(build_began + notice.time),
            }
            for notice in self._notices
        ]
        return {
            "traceEvents": [*_names(lanes, {number: node for node, number in processes.items() if node}), *records],
            "displayTimeUnit": "ms",
            "otherData": {"invocation_id": self._invocation},
        }

    def _arguments(self, action: ActionFinished) -> dict[str, object]:
        arguments: dict[str, object] = {
            "action": action.identifier,
            "target": action.owner,
            "status": action.status.value,
            "key": action.key,
            "on critical path": action.identifier in self._critical,
            "queued seconds": round(action.queued_seconds, 6),
        }
        if action.executor:
            arguments["executor"] = action.executor
        if action.cause:
            arguments["why it ran"] = action.cause.value
        if action.peak_bytes:
            arguments["peak memory bytes"] = action.peak_bytes
        if action.details:
            arguments["details"] = dict(action.details)
        if action.shared_with:
            arguments["shared with"] = action.shared_with
        if action.shared_by:
            arguments["shared by"] = list(action.shared_by)
        if action.message:
            arguments["message"] = action.message
        return arguments


def _parts(action: ActionFinished, process: int, lane: int, start: int, end: int) -> list[dict[str, object]]:
    """The slices of inputs, run and outputs inside an action's slice; none if they were not measured."""
    inputs = min(_micro(action.input_seconds), end - start)
    outputs = min(_micro(action.output_seconds), end - start - inputs)
    if not inputs and not outputs:
        return []
    cuts = (("inputs", start, start + inputs), ("run", start + inputs, end - outputs), ("outputs", end - outputs, end))
    return [_slice(name, "part", process, lane, begin, stop, {}) for name, begin, stop in cuts if begin < stop]


def _slice(
    name: str, category: str, process: int, lane: int, start: int, end: int, arguments: dict[str, object]
) -> dict[str, object]:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": process,
        "tid": lane,
        "ts": start,
        "dur": end - start,
        "args": arguments,
    }


def _names(lanes: dict[int, _Lanes], nodes: dict[int, str]) -> list[dict[str, object]]:
    named = [(_COMMAND, 1, "phases")]
    named += [
        (process, number, name if row == 0 else f"{name} ({row + 1})")
        for process, of_process in lanes.items()
        for (name, row), number in of_process.numbers.items()
    ]
    processes = [
        {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}
        for process, name in (_PROCESS_NAMES | nodes).items()
        if process == _COMMAND or lanes[process].numbers
    ]
    threads = [
        {"ph": "M", "name": "thread_name", "pid": process, "tid": number, "args": {"name": name}}
        for process, number, name in named
    ]
    return [*processes, *threads]


def _micro(seconds: float) -> int:
    return round(seconds * 1_000_000)
