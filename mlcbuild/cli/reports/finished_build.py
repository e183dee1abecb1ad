"""What the reports for CI systems are made of: one build at its end, as values.

`BuildCollector` listens to a build, and `FinishedBuild` is what has become of it. A report is a function of that value.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mlcbuild.cli.console.action_names import full_title, why_failed
from mlcbuild.cli.console.not_cached import reason_not_cached
from mlcbuild.cli.console.remote_summary import RemoteSummary
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.output import text
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
from mlcbuild.engine.executor import FileEntry
from mlcbuild.engine.target_totals import TargetTotal, TargetTotals
from mlcbuild.errors import Location, MlcbuildError, WorkspaceErrors

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_STOPPED = "the build ended before it"


class Outcome(enum.Enum):
    """What became of a target. `NOT_BUILT`: an action of another target failed that it needs, or the build stopped."""

    BUILT = "built"
    FAILED = "failed"
    NOT_CACHED = "not cached"
    NOT_BUILT = "not built"


@dataclass(frozen=True, kw_only=True)
class FailedAction:
    """An action that failed, or one that has no cached result in a build from caches alone."""

    event: ActionFinished
    log: bytes  # its own, or that of the action that ran for it

    @property
    def title(self) -> str:
        """Its name, and the other targets that share it."""
        return text.printable(full_title(self.event))

    @property
    def message(self) -> str:
        """Why, without the name of the action."""
        event = self.event
        if event.status is ActionStatus.NOT_CACHED:
            return f"no cached result: {text.printable(reason_not_cached(event))}"
        return why_failed(event) or f"exit code {event.exit_code}"

    @property
    def words(self) -> str:
        """`failed` or `is not cached`, to stand behind the title."""
        return "is not cached" if self.event.status is ActionStatus.NOT_CACHED else "failed"

    def log_tail(self, *, lines: int, characters: int) -> str:
        """The end of the log as text without colours, with a line that says how much is left out; "" without one."""
        whole = self.log.rstrip().splitlines()
        shown = [_readable(line) for line in whole[-lines:]]
        while len(shown) > 1 and sum(len(line) + 1 for line in shown) > characters:
            shown = shown[1:]
        shown = [line[:characters] for line in shown]
        left_out = len(whole) - len(shown)
        return "\n".join([f"… {text.plural(left_out, 'line')} before", *shown] if left_out else shown)


@dataclass(frozen=True, kw_only=True)
class TargetResult:
    """A requested target, or another one of which an action failed. `failures` are of actions of its own."""

    label: str
    outcome: Outcome
    reason: str  # why it is not built; "" if it is, or if `failures` say so
    total: TargetTotal
    has_actions: bool
    up_to_date: int = 0
    from_disk: int = 0
    from_remote: int = 0
    outputs: tuple[FileEntry, ...] = ()
    failures: tuple[FailedAction, ...] = ()
    location: Location | None = None  # where its table begins
    test: tuple[str, ...] = ()  # what it measured, if it is a test


@dataclass(frozen=True, kw_only=True)
class CommandError:
    """An error that ended the command: in a BUILD.toml, the command line, a setting, this machine."""

    message: str
    advice: tuple[str, ...] = ()
    location: Location | None = None

    @property
    def head(self) -> str:
        return self.message.splitlines()[0] if self.message else "error"

    @property
    def whole(self) -> str:
        """As it is printed, without its place."""
        return "\n".join([self.message, *(f"  {hint}" for hint in self.advice)])


@dataclass(frozen=True, kw_only=True)
class FinishedBuild:
    """One command that built, or ended before it could. Failed targets come first, then in the order of labels."""

    exit_code: ExitCode
    command: str  # the arguments after the program's name, without credentials
    invocation: str
    began: float  # seconds since the epoch
    wall_seconds: float
    digest_function: str = ""
    targets: tuple[TargetResult, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)  # what cannot be built for its platform, with the reason
    failures: tuple[FailedAction, ...] = ()  # each once, whatever targets share it
    ran: tuple[ActionFinished, ...] = ()  # the slowest first
    errors: tuple[CommandError, ...] = ()
    notices: tuple[str, ...] = ()
    finished: BuildFinished | None = None
    remote: RemoteSummary | None = None

    def count(self, outcome: Outcome) -> int:
        return sum(target.outcome is outcome for target in self.targets)


@dataclass(frozen=True, kw_only=True)
class TestStory:
    """What a report says of a test, beside its target: why it was skipped, or what it measured."""

    __test__ = False

    is_skipped: bool
    lines: tuple[str, ...] = ()


class BuildCollector:
    """Listens to a build. `finish` also works for a command that ended before a build began."""

    def __init__(self) -> None:
        self._totals = TargetTotals()
        self._requested: tuple[str, ...] = ()
        self._targets: dict[str, TargetFinished] = {}
        self._notices: list[str] = []
        self._finished: BuildFinished | None = None
        self._digest_function = ""
        self._skipped: dict[str, str] = {}
        self.tests: Mapping[str, TestStory] = {}
        self.locate: Callable[[str], Location | None] = lambda _: None  # the place of a target, by its label

    def __call__(self, event: BuildEvent) -> None:
        match event:
            case BuildStarted():
                self._requested, self._digest_function = event.targets, event.digest_function
            case ActionFinished():
                self._totals.add(event)
            case TargetSkipped():
                self._skipped[event.label] = text.printable(event.reason)
            case TargetFinished():
                self._targets[event.label] = event
            case Notice():
                self.note(event.message)
            case BuildFinished():
                self._finished = event
            case _:
                pass

    def note(self, message: str) -> None:
        """Take in a note that is no event of the build."""
        self._notices.append(text.printable(message))

    def finish(
        self,
        *,
        exit_code: ExitCode,
        failure: BaseException | None,
        command: str,
        invocation: str,
        began: float,
        wall_seconds: float,
        remote: RemoteSummary | None,
    ) -> FinishedBuild:
        """`failure` is the exception that ended the command, None for a build that came to its end."""
        left_out = {label: " ".join(test.lines) for label, test in self.tests.items() if test.is_skipped}
        ended = [event for event in self._totals.actions() if event.owner not in left_out]
        by_name = {event.identifier: event for event in ended}
        failed = [
            FailedAction(event=event, log=event.log or _log_of(event.shared_with, by_name))
            for event in sorted(ended, key=lambda event: (event.owner, event.start, event.identifier))
            if event.status in (ActionStatus.FAILED, ActionStatus.NOT_CACHED)
        ]
        of_owner: dict[str, list[FailedAction]] = {}
        for each in failed:
            of_owner.setdefault(each.event.owner, []).append(each)
        labels = dict.fromkeys(
            label for label in (*sorted(self._requested), *sorted(of_owner)) if label not in left_out
        )
        found = [self._target(label, of_owner.get(label, ())) for label in labels]
        # A platform, or a model, has nothing to build.
        targets = [each for each in found if each.has_actions or each.outputs or each.outcome is not Outcome.BUILT]
        errors = _errors_of(failure)
        notices = list(self._notices)
        succeeded = exit_code in (ExitCode.OK, ExitCode.NO_TESTS)
        if exit_code is ExitCode.NO_TESTS:
            # A shard or a list without tests is no error of theirs. Who counts it as one has the exit code.
            notices += [error.message for error in errors]
            errors = ()
        if not errors and not succeeded and all(target.outcome is Outcome.BUILT for target in targets):
            # Whatever it was, no report may look as if all were well.
            errors = (CommandError(message=_without_a_failure(exit_code)),)
        urgency = {Outcome.FAILED: 0, Outcome.NOT_CACHED: 1, Outcome.NOT_BUILT: 2}
        return FinishedBuild(
            exit_code=exit_code,
            command=command,
            invocation=invocation,
            began=began,
            wall_seconds=wall_seconds,
            digest_function=self._digest_function,
            targets=tuple(sorted(targets, key=lambda target: (urgency.get(target.outcome, 3), target.label))),
            skipped=dict(sorted({**self._skipped, **left_out}.items())),
            failures=tuple(each for each in failed if each.event.shared_with not in by_name),
            ran=tuple(sorted((event for event in ended if event.seconds), key=lambda event: -event.seconds)),
            errors=errors,
            notices=tuple(dict.fromkeys(notices)),
            finished=self._finished,
            remote=remote,
        )

    def _target(self, label: str, failures: Sequence[FailedAction]) -> TargetResult:
        event, statuses = self._targets.get(label), self._totals.statuses(label)
        reason = ""
        if statuses.get(ActionStatus.FAILED):
            outcome = Outcome.FAILED
        elif statuses.get(ActionStatus.NOT_CACHED):
            outcome = Outcome.NOT_CACHED
        elif event is not None and event.success:
            outcome = Outcome.BUILT
        elif event is not None and event.error and not event.blocked_by:
            outcome, reason = Outcome.FAILED, event.error  # its outputs could not be placed
        else:
            outcome, reason = Outcome.NOT_BUILT, (event.error if event else "") or _STOPPED
        return TargetResult(
            label=label,
            outcome=outcome,
            reason=text.printable(reason),
            total=self._totals.of(label),
            has_actions=bool(statuses),
            up_to_date=statuses.get(ActionStatus.UP_TO_DATE, 0),
            from_disk=statuses.get(ActionStatus.DISK_HIT, 0),
            from_remote=statuses.get(ActionStatus.REMOTE_HIT, 0),
            outputs=event.output_files if event is not None and event.success else (),
            failures=tuple(failures),
            location=self.locate(label),
            test=self.tests[label].lines if label in self.tests else (),
        )


def _log_of(name: str, by_name: dict[str, ActionFinished]) -> bytes:
    return by_name[name].log if name in by_name else b""


def _readable(line: bytes) -> str:
    return text.printable(_COLOUR.sub("", line.decode("utf-8", "backslashreplace"))).rstrip()


def _errors_of(failure: BaseException | None) -> tuple[CommandError, ...]:
    return tuple(_flat([failure])) if failure is not None else ()


def _flat(failures: Iterable[BaseException]) -> Iterable[CommandError]:
    for failure in failures:
        if isinstance(failure, WorkspaceErrors):
            yield from _flat(failure.errors)
        elif isinstance(failure, MlcbuildError):
            yield CommandError(
                message=text.printable(failure.message),
                advice=tuple(text.printable(hint) for hint in failure.advice),
                location=failure.location,
            )
        elif isinstance(failure, KeyboardInterrupt):
            yield CommandError(message=_without_a_failure(ExitCode.INTERRUPTED))
        else:
            shown = text.printable(str(failure)) or type(failure).__name__
            yield CommandError(message=shown if isinstance(failure, OSError) else f"mlcbuild itself failed: {shown}")


def _without_a_failure(code: ExitCode) -> str:
    return "the build was interrupted" if code is ExitCode.INTERRUPTED else f"the build ended with exit code {code:d}"
