"""How a build ended: the exit code, and the lines that stand last."""

from __future__ import annotations

from collections.abc import Collection

from mlcbuild.cli.console.not_cached import not_cached_lines
from mlcbuild.cli.console.remote_summary import RemoteSummary
from mlcbuild.cli.console.summary import summary_lines
from mlcbuild.cli.exit_codes import ExitCode, retry_line
from mlcbuild.cli.output.terminal import Style
from mlcbuild.engine.build_events import ActionFinished, ActionStatus, BuildEvent, BuildFinished
from mlcbuild.engine.build_result import BuildResult

FETCH_MNEMONIC = "Fetch"


class BuildEnding:
    """Listens to a build. `without_pin` are fetches whose failure is the workspace's: a retry does not help them."""

    def __init__(self) -> None:
        self.without_pin: Collection[str] = frozenset()
        self._failed: list[ActionFinished] = []
        self._not_cached: list[ActionFinished] = []
        self._finished: BuildFinished | None = None

    def __call__(self, event: BuildEvent) -> None:
        match event:
            case ActionFinished(status=ActionStatus.NOT_CACHED):
                self._not_cached.append(event)
            case ActionFinished(status=ActionStatus.FAILED, shared_with=""):
                self._failed.append(event)
            case BuildFinished():
                self._finished = event
            case _:
                pass

    def exit_code(self, result: BuildResult, *, answers: Collection[str] = ()) -> ExitCode:
        """`answers` are actions whose failures are no failures of the build: those of tests, which tell them."""
        if result.interrupted:
            return ExitCode.INTERRUPTED
        wrong = [failure for failure in result.failures if failure.identifier not in answers]
        not_placed = [target for target in result.targets if not target.success and not target.blocked_by]
        if result.success or (answers and not wrong and not not_placed):
            return ExitCode.OK
        failed = [event for event in self._failed if event.identifier not in answers]
        if self._not_cached and not failed:
            return ExitCode.WOULD_RUN
        from_environment = [failure.environment for failure in wrong]
        from_environment += [True for target in result.targets if target.environment]
        if from_environment and all(from_environment):
            return ExitCode.LOCAL_ENVIRONMENT
        if failed and all(
            event.mnemonic == FETCH_MNEMONIC and event.identifier not in self.without_pin for event in failed
        ):
            return ExitCode.EXTERNAL_DEPENDENCIES
        return ExitCode.BUILD_FAILED

    def lines(
        self,
        code: ExitCode,
        *,
        style: Style,
        wall_seconds: float,
        remote: RemoteSummary | None,
        quiet: bool,
        quiet_if_current: bool,
    ) -> list[str]:
        """What was not cached, and, unless `quiet`, the summary; nothing at all of a build that had nothing to do if
        `quiet_if_current`.
        """
        if self._finished is None or (quiet_if_current and _nothing_done(self._finished)):
            return []
        lines = not_cached_lines(self._not_cached, style=style)
        if not quiet:
            lines += summary_lines(self._finished, wall_seconds=wall_seconds, remote=remote)
        if line := retry_line(code):
            lines.append(line)
        return lines


def _nothing_done(finished: BuildFinished) -> bool:
    return all(status is ActionStatus.UP_TO_DATE or not count for status, count in finished.counts)
