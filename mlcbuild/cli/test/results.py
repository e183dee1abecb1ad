"""What came of tests: a listener of the build, and the statuses that it leads to, which are Bazel's."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mlcbuild.cli.console.action_names import why_failed
from mlcbuild.cli.output import text
from mlcbuild.cli.test.plan import PlannedRun, PlannedTest
from mlcbuild.engine.build_events import ActionFinished, ActionStatus, BuildEvent, TargetFinished
from mlcbuild.engine.build_result import ActionFailure, BuildResult
from mlcbuild.engine.target_totals import CACHED, RAN


class TestStatus(enum.Enum):
    """How a test ended. The values are what is printed."""

    __test__ = False

    PASSED = "PASSED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    SKIPPED = "SKIPPED"  # no machine that the build may use can run it, and only wildcards match it
    FAILED_TO_BUILD = "FAILED TO BUILD"  # what it runs could not be made
    NO_STATUS = "NO STATUS"  # this machine failed, or the command ended before


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """One run. `summary` is a line: what was measured, or what went wrong; `detail` are further lines."""

    run: PlannedRun
    status: TestStatus
    cached: bool = False
    seconds: float = 0.0
    summary: str = ""
    detail: tuple[str, ...] = ()
    figures: Mapping[str, object] = field(default_factory=dict)
    environment: bool = False

    @property
    def lines(self) -> tuple[str, ...]:
        """The summary, and what stands below it."""
        return tuple(line for line in (self.summary, *self.detail) if line)


@dataclass(frozen=True, kw_only=True)
class TestOutcome:
    """A test with its runs; its status is the worst of theirs."""

    __test__ = False

    test: PlannedTest
    runs: tuple[RunResult, ...]

    @property
    def status(self) -> TestStatus:
        return max((run.status for run in self.runs), key=_URGENCY.index)

    @property
    def cached(self) -> bool:
        return all(run.cached for run in self.runs)

    @property
    def seconds(self) -> float:
        """The longest of its runs."""
        return max(run.seconds for run in self.runs)

    @property
    def worst(self) -> RunResult:
        """The first run with the status of the test."""
        return next(run for run in self.runs if run.status is self.status)


_URGENCY = (
    TestStatus.PASSED,
    TestStatus.SKIPPED,
    TestStatus.NO_STATUS,
    TestStatus.FAILED_TO_BUILD,
    TestStatus.TIMEOUT,
    TestStatus.FAILED,
)


class TestEvents:
    """Listens to a build and keeps what concerns its tests. `advice` of failures is in their messages."""

    __test__ = False

    def __init__(self, tests: Sequence[PlannedTest]) -> None:
        self._tests = {run.action: test for test in tests for run in test.runs}
        self.runs = {run.action: run for test in tests for run in test.runs}
        self.labels = frozenset(test.label for test in tests)
        self.ended: dict[str, ActionFinished] = {}
        self.targets: dict[str, TargetFinished] = {}

    def __call__(self, event: BuildEvent) -> None:
        match event:
            case ActionFinished() if event.identifier in self.runs:
                self.ended[event.identifier] = event
            case TargetFinished() if event.label in self.labels:
                self.targets[event.label] = event
            case _:
                pass

    def test_of(self, action: str) -> PlannedTest | None:
        """The test that an action is a run of; None for another action."""
        return self._tests.get(action)


def message_of(event: ActionFinished) -> tuple[str, tuple[str, ...]]:
    """Why a run failed, without the name of its action: one line, and those below it."""
    first, *rest = why_failed(event).splitlines() or [f"exit code {event.exit_code}"]
    return first.strip(), tuple(line.strip() for line in rest)


def outcomes(
    tests: Sequence[PlannedTest],
    events: TestEvents,
    result: BuildResult | None,
    found: Mapping[str, tuple[str, Mapping[str, object]]],
) -> tuple[TestOutcome, ...]:
    """In the order of labels. `found` has the summary and the figures of each run that left a test.json."""
    failures = {failure.identifier: failure for failure in result.failures} if result else {}
    made = [
        TestOutcome(test=test, runs=tuple(_run(test, run, events, failures, found) for run in test.runs))
        for test in tests
    ]
    return tuple(sorted(made, key=lambda each: each.test.label))


def _run(
    test: PlannedTest,
    run: PlannedRun,
    events: TestEvents,
    failures: Mapping[str, ActionFailure],
    found: Mapping[str, tuple[str, Mapping[str, object]]],
) -> RunResult:
    event = events.ended.get(run.action)
    if event is None or event.status is ActionStatus.SKIPPED:
        return _without_run(test, run, event, events, failures)
    summary, figures = found.get(run.action, ("", {}))
    if event.status in RAN | CACHED:
        return RunResult(
            run=run,
            status=TestStatus.PASSED,
            cached=event.status in CACHED,
            seconds=event.seconds,
            summary=summary,
            figures=figures,
        )
    failure = failures.get(event.shared_with or event.identifier)
    first, detail = message_of(event)
    status = TestStatus.FAILED
    if event.status is ActionStatus.NOT_CACHED:
        status, first, detail = TestStatus.NO_STATUS, "no cached result", ()
    elif failure is not None and failure.timed_out:
        status = TestStatus.TIMEOUT
    elif failure is not None and failure.has_no_executor and not test.is_named:
        status = TestStatus.SKIPPED
    elif failure is not None and failure.environment:
        status = TestStatus.NO_STATUS
    return RunResult(
        run=run,
        status=status,
        seconds=event.seconds,
        summary=first,
        detail=detail,
        figures=figures,
        environment=failure is not None and failure.environment,
    )


def _without_run(
    test: PlannedTest,
    run: PlannedRun,
    event: ActionFinished | None,
    events: TestEvents,
    failures: Mapping[str, ActionFailure],
) -> RunResult:
    """What it needs failed, or the command ended before it."""
    target = events.targets.get(test.label)
    cause = failures.get(target.blocked_by) if target else None
    message = text.printable((event.message if event else "") or (target.error if target else "") or "it did not run")
    first, *detail = message.splitlines()
    if cause is None:
        status = TestStatus.NO_STATUS
    elif cause.has_no_executor:
        status = TestStatus.NO_STATUS if test.is_named else TestStatus.SKIPPED
        first = text.printable(cause.message.splitlines()[0])
        detail = cause.message.splitlines()[1:]
    elif cause.environment:
        status = TestStatus.NO_STATUS
    else:
        status = TestStatus.FAILED_TO_BUILD
    return RunResult(
        run=run,
        status=status,
        summary=first,
        detail=tuple(line.strip() for line in detail),
        environment=cause is not None and cause.environment,
    )
