"""The tests of one command: listens to the build, writes their files, tells of them, and concludes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mlcbuild.cache.store import LocalBlobStore
from mlcbuild.cli.arguments.choices import TestOutput
from mlcbuild.cli.build.listeners import Listeners
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.output import text
from mlcbuild.cli.output.terminal import Style
from mlcbuild.cli.test.document import test_documents
from mlcbuild.cli.test.logs import TestFiles
from mlcbuild.cli.test.plan import PlannedTest
from mlcbuild.cli.test.request import TestRequest
from mlcbuild.cli.test.results import TestEvents, TestOutcome, TestStatus, outcomes
from mlcbuild.cli.test.summary import summary_lines, total_line
from mlcbuild.engine.build_events import ActionFinished, ActionStatus
from mlcbuild.engine.build_result import BuildResult
from mlcbuild.engine.target_totals import CACHED, RAN

_RULE = "=" * 20


class Testing:
    """`skipped` are tests that cannot be built for their platform, with the reasons."""

    __test__ = False

    def __init__(
        self,
        request: TestRequest,
        tests: Sequence[PlannedTest],
        *,
        root: Path,
        skipped: Mapping[str, str],
        style: Style,
    ) -> None:
        self._request = request
        self._tests = tests
        self._events = TestEvents(tests)
        self._files = TestFiles(root, self._events)
        self._skipped = skipped
        self._style = style
        self.outcomes: tuple[TestOutcome, ...] = ()
        self.answers: frozenset[str] = frozenset()
        """Actions whose failures the statuses of tests tell: their runs, and what kept skipped ones from running."""

    def listen(self, listeners: Listeners) -> None:
        """To be called before the console listens, which shows what is written here."""
        listeners.add("the results of tests", self._events)
        listeners.add("the logs of tests", self._files)

    def use(self, store: LocalBlobStore, stored_log: Callable[[str], str]) -> None:
        """The build begins. `stored_log` is the log of a result by its key."""
        self._files.store, self._files.stored_log = store, stored_log

    def is_test(self, label: str) -> bool:
        return label in self._events.labels

    def lines_about(self, event: ActionFinished) -> list[str] | None:
        """What is told of a run when it ends; None of an action that is none."""
        test, run = self._events.test_of(event.identifier), self._events.runs.get(event.identifier)
        if test is None or run is None:
            return None
        failed = event.status is ActionStatus.FAILED
        lines = []
        if failed:
            lines.append(f"{self._style.error('FAIL:')} {test.label} (see {self._files.log_path(run)})")
        is_told = self._request.output is TestOutput.ALL and event.status in RAN | CACHED
        if is_told or (failed and self._request.output is not TestOutput.SUMMARY):
            log = text.printable(self._files.log_of(run)).rstrip()
            lines += [f"{_RULE} Test output for {test.label}:", *log.splitlines(), _RULE * 4]
        return lines

    def conclude(self, result: BuildResult) -> None:
        """The build has ended."""
        self.outcomes = outcomes(self._tests, self._events, result, self._files.found())
        skipped = {each.test.label for each in self.outcomes if each.status is TestStatus.SKIPPED}
        causes = {label: event.blocked_by for label, event in self._events.targets.items()}
        others = {cause for label, cause in causes.items() if label not in skipped}
        self.answers = frozenset(self._events.runs) | {causes[label] for label in skipped if label in causes} - others

    def exit_code(self, code: ExitCode) -> ExitCode:
        """That of the command; `code` is that of the build, without `answers`. Raises nothing."""
        if code is not ExitCode.OK:
            return code
        statuses = {each.status for each in self.outcomes}
        if statuses & {TestStatus.FAILED, TestStatus.TIMEOUT}:
            return ExitCode.TESTS_FAILED
        if TestStatus.FAILED_TO_BUILD in statuses:
            return ExitCode.BUILD_FAILED
        if TestStatus.NO_STATUS not in statuses:
            return ExitCode.OK
        is_machines = any(run.environment for each in self.outcomes for run in each.runs)
        return ExitCode.LOCAL_ENVIRONMENT if is_machines else ExitCode.WOULD_RUN

    def lines(self, style: Style) -> list[str]:
        """The summary."""
        skipped = [
            line
            for label, reason in self._skipped.items()
            for line in (f"{label}  {style.warning(TestStatus.SKIPPED.value)}", f"  {reason}")
        ]
        return [*summary_lines(self.outcomes, self._files, style=style), *skipped, "", self._total()]

    def document(self) -> dict[str, object]:
        """By label."""
        return test_documents(self.outcomes, self._files)

    def _total(self) -> str:
        return total_line(self.outcomes, skipped=len(self._skipped))
