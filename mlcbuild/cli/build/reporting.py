"""The reports of a command that builds. They are written however the command ends."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from mlcbuild.cli.arguments.options import RECORD_DIRECTORY, GlobalOptions
from mlcbuild.cli.build.build_recorder import BuildRecorder
from mlcbuild.cli.build.failed_start import remember_failed_start
from mlcbuild.cli.build.listeners import Listeners, reason_of
from mlcbuild.cli.build.no_op_check import without_credentials
from mlcbuild.cli.build.request import BuildRequest
from mlcbuild.cli.console.remote_summary import RemoteSummary
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.output.atomic_file import write_json_atomically
from mlcbuild.cli.reports.build_report import BuildReport
from mlcbuild.cli.reports.event_log import EventLog
from mlcbuild.cli.reports.finished_build import BuildCollector, TestStory
from mlcbuild.cli.reports.profile import Phase, Profile
from mlcbuild.cli.settings.history import HistoryLimits
from mlcbuild.cli.test.results import TestOutcome, TestStatus
from mlcbuild.cli.workspace.opening import OpenWorkspace
from mlcbuild.engine.build_events import BuildEvent, BuildStarted
from mlcbuild.errors import UsageError
from mlcbuild.workspace.loader import LoadedWorkspace


class Reporting:
    """The build report, the profile, the event log, the record for `mlcbuild log`, and the reports for CI systems.

    `invocation` names the build in all of them. Raises UsageError if a file is asked for in a folder that is not there.
    """

    def __init__(self, request: BuildRequest, options: GlobalOptions) -> None:
        for option, path in (
            ("--build-report", request.build_report),
            ("--profile", request.profile),
            ("--events", request.events),
            *request.ci.files(),
        ):
            if path and not path.absolute().parent.is_dir():
                raise UsageError(f"{option}: there is no directory {path.parent}")
        self.invocation = str(uuid.uuid4())
        self.remote_summary: RemoteSummary | None = None
        self._request = request
        self._options = options
        self._began = time.time() - options.elapsed()
        self._report = BuildReport(invocation=self.invocation)
        self._profile = Profile(invocation=self.invocation)
        self._phases: list[Phase] = []
        self._build_began = 0.0
        self._events: EventLog | None = None
        self._collector = BuildCollector() if request.ci.wanted(options.environment) else None
        self._recorder = BuildRecorder(arguments=options.arguments, began=self._began)
        self._records: Path | None = None
        self._limits = HistoryLimits()
        self._root: Path | None = None  # of the workspace, once it is open

    def listen(self, listeners: Listeners, note: Callable[[str], None]) -> None:
        """Add what listens to the build; `note` is told of an event log that cannot be written."""
        listeners.add("the build report", self._report)
        listeners.add("the profile", self._profile)
        listeners.add("the record of the build", self._recorder)
        listeners.add("the time of the build", self._note_began)
        if self._collector:
            listeners.add("the reports for CI", self._collector)
        if self._request.events:
            self._events = EventLog(
                self._request.events,
                invocation=self.invocation,
                arguments=self._options.arguments,
                began=self._began,
            )
            name = f"the event log {self._request.events}"
            try:
                self._events.begin()
                listeners.add(name, self._events)
            except OSError as error:
                note(f"{name} cannot be written: {reason_of(error)}")

    def know_root(self, root: Path) -> None:
        """The workspace is open."""
        self._root = root

    def know_workspace(self, workspace: OpenWorkspace, loaded: LoadedWorkspace, limits: HistoryLimits) -> None:
        """The workspace is loaded: from here on there will be a record, and errors have places."""
        self._records = workspace.state_directory / RECORD_DIRECTORY
        self._limits = limits
        if self._collector:
            places = {str(label): target.location for label, target in loaded.targets.items()}
            self._collector.locate = places.get

    def know_skipped(self, skipped: Mapping[str, str]) -> None:
        """Targets that were left out, with the reasons."""
        self._report.skipped = skipped

    def know_tests(self, outcomes: Sequence[TestOutcome]) -> None:
        """What came of the tests."""
        if self._collector:
            self._collector.tests = {
                each.test.label: TestStory(
                    is_skipped=each.status is TestStatus.SKIPPED,
                    lines=tuple(line for run in each.runs for line in run.lines),
                )
                for each in outcomes
            }

    def note(self, message: str) -> None:
        """The user was told this."""
        if self._collector:
            self._collector.note(message)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A part of the command, for the profile."""
        start = self._options.elapsed()
        try:
            yield
        finally:
            self._phases.append(Phase(name=name, start=start, end=self._options.elapsed()))

    def document(self, code: ExitCode) -> dict[str, object]:
        """The build report."""
        return self._report.document(exit_code=code, wall_seconds=self._options.elapsed(), remote=self.remote_summary)

    def write(self, code: ExitCode, failure: BaseException | None) -> list[str]:
        """Write everything; returns what cannot be written, and why."""
        errors = []
        request = self._request
        if self._events:
            try:
                self._events.close(exit_code=code, error=str(failure or ""), wall_seconds=self._options.elapsed())
            except (OSError, ValueError) as error:
                errors.append(f"{request.events}: {reason_of(error)}")
        if request.profile:
            trace = self._profile.document(phases=self._phases, build_began=self._build_began)
            errors += _written(request.profile, trace)
        self._write_record(code, failure)
        if request.build_report:
            errors += _written(request.build_report, self.document(code))
        if self._collector:
            build = self._collector.finish(
                exit_code=code,
                failure=failure,
                command=" ".join(without_credentials(argument) for argument in self._options.arguments),
                invocation=self.invocation,
                began=self._began,
                wall_seconds=self._options.elapsed(),
                remote=self.remote_summary,
            )
            errors += request.ci.write(build, root=self._root, environment=self._options.environment)
        return errors

    def _note_began(self, event: BuildEvent) -> None:
        if isinstance(event, BuildStarted):
            self._build_began = self._options.elapsed() - event.time

    def _write_record(self, code: ExitCode, failure: BaseException | None) -> None:
        """Write the build's record for `mlcbuild log`."""
        if failure is not None and not self._recorder.started:
            remember_failed_start(
                failure,
                code,
                self._options,
                invocation=self.invocation,
                began=self._began,
                patterns=self._request.patterns,
            )
        elif self._records is not None:
            self._recorder.write(self._records, int(code), self._limits)


def _written(path: Path, document: object) -> list[str]:
    try:
        write_json_atomically(path, document)
    except OSError as error:
        return [f"{path}: {error.strerror or error}"]
    return []
