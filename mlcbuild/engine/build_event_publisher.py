"""Publishes build events to listeners, and keeps what the end of the build needs: statuses, failures, seconds."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from mlcbuild.engine.action import Action
from mlcbuild.engine.action_titles import with_title
from mlcbuild.engine.build_events import (
    ActionFinished,
    ActionsAdded,
    ActionStarted,
    ActionStatus,
    BuildEvent,
    BuildFinished,
    BuildStarted,
    Cause,
    Notice,
    PathStep,
    Slack,
    TargetFinished,
)
from mlcbuild.engine.build_result import ActionFailure, BuildResult, TargetResult
from mlcbuild.engine.executor import ExecutionOutcome, FileEntry, OutcomeKind
from mlcbuild.engine.instructions import AnnounceWanted, Ending, Execute, ReportAction
from mlcbuild.engine.scheduler_events import RequestedTarget
from mlcbuild.engine.target_totals import TargetTotals
from mlcbuild.errors import readable

Listener = Callable[[BuildEvent], object]
_ENVIRONMENT_FAILURES = (OutcomeKind.ENVIRONMENT, OutcomeKind.NO_EXECUTOR, OutcomeKind.OUT_OF_MEMORY, OutcomeKind.LOST)


class BuildEventPublisher:
    """Stamps events with the seconds since the build began. Each listener gets them in order, from one thread."""

    def __init__(
        self, listeners: Sequence[Listener], *, invocation: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`invocation` is the UUID of the command that builds; "" stands for a new one."""
        self._listeners = tuple(listeners)
        self._clock = clock
        self._began = clock()
        self._invocation = invocation or str(uuid.uuid4())
        self._labels: tuple[str, ...] = ()
        self._statuses: dict[str, ActionStatus] = {}
        self._targets: dict[str, TargetResult] = {}
        self._failures: dict[str, ActionFailure] = {}
        self._totals = TargetTotals()
        self._announced_by: dict[str, str] = {}
        self.executed: dict[str, PathStep] = {}

    @property
    def now(self) -> float:
        return self._clock() - self._began

    def begin(self, targets: Iterable[RequestedTarget], *, jobs: int = 0, digest_function: str = "") -> None:
        axes = {target.label: target.axes for target in targets}
        self._labels = tuple(axes)
        self._publish(
            BuildStarted(
                invocation=self._invocation,
                targets=self._labels,
                time=self.now,
                jobs=jobs,
                digest_function=digest_function,
                axes={label: values for label, values in axes.items() if values},
            )
        )

    def wanted(self, announced: AnnounceWanted) -> None:
        if announced.discovered_by:
            self._announced_by.update(dict.fromkeys(announced.identifiers, announced.discovered_by))
        self._publish(
            ActionsAdded(
                count=len(announced.identifiers),
                total=announced.total,
                discovered_by=announced.discovered_by,
                time=self.now,
                identifiers=announced.identifiers,
            )
        )

    def started(self, execute: Execute, executor: str) -> None:
        action = execute.action
        self._publish(
            ActionStarted(
                identifier=action.identifier,
                mnemonic=action.mnemonic,
                executor=executor,
                time=self.now,
                title=_title(action),
                shared_by=execute.shared_by,
            )
        )

    def ended(
        self,
        report: ReportAction,
        status: ActionStatus,
        outcome: ExecutionOutcome | None,
        *,
        executor: str = "",
        environment: bool = False,
        cause: Cause | None = None,
        previous_key: str = "",
        output_files: tuple[FileEntry, ...] = (),
    ) -> None:
        """An action has ended. `outcome` is that of its own run on `executor`; None and "" where it did not run.

        `cause` and `previous_key` are those of the run. `environment`: it has no key, because of this machine.
        `output_files` are those of its result, or of a test that failed.
        """
        action, now = report.action, self.now
        identifier = action.identifier
        self._statuses[identifier] = status
        message = readable(with_title(report.message, action, shared_with=report.shared_with))
        # Without a run there is no time and no log.
        own = outcome or ExecutionOutcome(identifier=identifier, kind=OutcomeKind.SUCCEEDED)
        if executor:
            self.executed[identifier] = PathStep(
                identifier=identifier, mnemonic=action.mnemonic, seconds=own.run_seconds, title=_title(action)
            )
        environment = environment or own.kind in _ENVIRONMENT_FAILURES
        if (shared := self._failures.get(report.shared_with)) is not None:
            environment = shared.environment
        if report.ending is Ending.FAILED and not report.shared_with:
            self._failures[identifier] = ActionFailure(
                identifier=identifier,
                title=action.title,
                message=message,
                log=own.log,
                exit_code=own.exit_code,
                environment=environment,
                timed_out=own.timed_out,
                has_no_executor=own.kind is OutcomeKind.NO_EXECUTOR,
            )
        event = ActionFinished(
            identifier=identifier,
            mnemonic=action.mnemonic,
            owner=action.owner,
            status=status,
            start=max(0.0, now - own.run_seconds),
            time=now,
            key="" if report.key is None else report.key.hash,
            worker=own.worker,
            message=message,
            log=own.log,
            exit_code=own.exit_code,
            environment=environment and report.ending is Ending.FAILED,
            executor=executor,
            node=own.node,
            queued_seconds=own.queued_seconds,
            input_seconds=own.input_seconds,
            output_seconds=own.output_seconds,
            peak_bytes=own.peak_bytes,
            cause=cause,
            previous_key=previous_key,
            title=_title(action),
            details=dict(action.description.details) if action.description else {},
            shared_with=report.shared_with,
            shared_by=report.shared_by,
            output_files=output_files,
            announced_by=self._announced_by.get(identifier, ""),
        )
        self._totals.add(event)
        self._publish(event)

    def notice(self, message: str) -> None:
        self._publish(Notice(message=message, time=self.now))

    def target(self, result: TargetResult) -> None:
        self._targets[result.label] = result
        total = self._totals.of(result.label)
        self._publish(
            TargetFinished(
                label=result.label,
                success=result.success,
                outputs=result.outputs,
                error=result.error,
                time=self.now,
                blocked_by=result.blocked_by,
                output_files=result.output_files,
                ran=total.ran,
                cached=total.cached,
                seconds=total.seconds,
            )
        )

    def end(
        self,
        *,
        success: bool,
        interrupted: bool,
        critical_path: tuple[PathStep, ...],
        slacks: tuple[Slack, ...] = (),
        bytes_downloaded: int,
        bytes_uploaded: int,
    ) -> BuildResult:
        counted = Counter(self._statuses.values())
        result = BuildResult(
            success=success,
            interrupted=interrupted,
            invocation=self._invocation,
            wall_seconds=self.now,
            targets=tuple(self._targets[label] for label in self._labels if label in self._targets),
            failures=tuple(self._failures.values()),
            counts=tuple((status, counted[status]) for status in ActionStatus),
            critical_path=critical_path,
            bytes_downloaded=bytes_downloaded,
            bytes_uploaded=bytes_uploaded,
        )
        self._publish(
            BuildFinished(
                success=success,
                interrupted=interrupted,
                wall_seconds=result.wall_seconds,
                counts=result.counts,
                critical_path=critical_path,
                slacks=slacks,
                bytes_downloaded=bytes_downloaded,
                bytes_uploaded=bytes_uploaded,
                time=result.wall_seconds,
            )
        )
        return result

    def _publish(self, event: BuildEvent) -> None:
        for listener in self._listeners:
            listener(event)


def _title(action: Action) -> str:
    return "" if action.description is None else action.title
