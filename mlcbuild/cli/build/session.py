"""One command that builds: opens the workspace, loads, analyses, drives the build, and tells how it ended."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from mlcbuild.cli.arguments.choices import ProgressChoice
from mlcbuild.cli.arguments.options import LOG_DIRECTORY, STATE_DIRECTORY, GlobalOptions
from mlcbuild.cli.build.ending import FETCH_MNEMONIC, BuildEnding
from mlcbuild.cli.build.interruption import hearing_ctrl_c, interrupting
from mlcbuild.cli.build.listeners import Listeners
from mlcbuild.cli.build.network_cache_notice import network_cache_notice
from mlcbuild.cli.build.no_op_recorder import NoOpRecorder
from mlcbuild.cli.build.parts import build_parts
from mlcbuild.cli.build.reporting import Reporting
from mlcbuild.cli.build.request import BuildOutcome, BuildRequest, NothingToBuildError
from mlcbuild.cli.build.targets import fetched_targets, targets_of
from mlcbuild.cli.console.action_logs import ActionLogs
from mlcbuild.cli.console.console import Console
from mlcbuild.cli.console.remote_summary import RemoteSummary
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.log.stored_results import StoredResults
from mlcbuild.cli.output.errors import code_of
from mlcbuild.cli.output.terminal import is_terminal
from mlcbuild.cli.settings.execution import resolve_execution
from mlcbuild.cli.settings.history import history_limits
from mlcbuild.cli.settings.remote import resolve_remote
from mlcbuild.cli.settings.user_file import user_settings_file
from mlcbuild.cli.sharding.part import part_of
from mlcbuild.cli.test.plan import chosen_tests, plan_tests
from mlcbuild.cli.test.testing import Testing
from mlcbuild.cli.workspace.opening import files_searched, open_workspace
from mlcbuild.engine.build_events import TargetSkipped
from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.workspace.target import Target


def run_build(request: BuildRequest, options: GlobalOptions) -> BuildOutcome:
    """Build, and report to the user. A failed build returns an outcome with its exit code.

    Raises MlcbuildError if the build cannot begin, and NothingToBuildError, which is in no history, if the request's
    check does.
    """
    session = _Session(request, options)
    failure: BaseException | None = None
    code = ExitCode.INTERNAL
    try:
        with hearing_ctrl_c():
            outcome = session.build()
        code = outcome.exit_code
        return outcome
    except NothingToBuildError:
        code = ExitCode.OK
        raise
    except BaseException as error:
        failure, code = error, code_of(error)
        raise
    finally:
        session.close(code, failure)


class _Session:
    """The state of one command: its listeners, its console, and the reports to write."""

    def __init__(self, request: BuildRequest, options: GlobalOptions) -> None:
        self._request = request
        self._options = options
        self._style = options.style(sys.stderr)
        self._console: Console | None = None
        self._reporting = Reporting(request, options)
        self._ending = BuildEnding()
        self._no_op = NoOpRecorder()
        self._testing: Testing | None = None
        self._listeners = Listeners(dropped=self._note)
        self._listeners.add("this command", self._ending)
        self._listeners.add("the no-op record", self._no_op)
        self._reporting.listen(self._listeners, self._note)

    def build(self) -> BuildOutcome:
        request = self._request
        with self._reporting.phase("load"):
            workspace = open_workspace(self._options.directory, to_load=True)
            self._reporting.know_root(workspace.root)
            loaded = workspace.load(request.patterns, request.configuration, request.overrides)
            environment, settings = self._options.environment, workspace.settings
            remote = resolve_remote(request.remote, environment, settings, recache=request.recache)
            execution = resolve_execution(request.execution, environment, settings)
            if request.tests or request.recache or (remote and remote.sends_what_was_found):
                self._no_op.forbid()  # There is something to do each time.
        self._reporting.know_workspace(workspace, loaded, history_limits(environment))
        with self._reporting.phase("analyse"):
            skips = request.tests is not None and request.tests.skips_incompatible
            analysable = replace(loaded, named=frozenset()) if skips else loaded
            whole = workspace.analyse(analysable, request.disk_cache)
            if remote and any(_is_tuned(target) for target in loaded.targets.values()):
                from mlcbuild.cli.tune.remote_records import refresh_records

                if refresh_records(workspace, whole, loaded, remote, request.disk_cache, self._note):
                    whole = workspace.analyse(analysable, request.disk_cache)
            taken = chosen_tests(whole, loaded, request.tests) if request.tests else whole
            part = part_of(taken, workspace.root, whole=whole, shard=request.shard, timings=request.timings)
            analysis = part.analysis
            self._reporting.know_skipped(part.skipped)
            cells = {str(label): target for label, target in loaded.targets.items()} if part.skipped else {}
            for label, reason in part.skipped.items():
                axes = {axis: str(cells[label].cell[axis]) for axis in cells[label].axes}
                self._listeners(TargetSkipped(label=label, reason=reason, axes=axes))
            for note in part.notes:
                self._reporting.note(note)
            wanted = fetched_targets(analysis) if request.fetch_only else analysis.requested
            output = f"{workspace.settings.output}/{loaded.configuration.name}"
            targets, actions = targets_of(wanted, output=output), analysis.actions
            if request.tests:
                plan = plan_tests(analysis, loaded, request.tests, output=output)
                targets, actions = list(plan.targets), plan.actions
                self._testing = Testing(
                    request.tests, plan.tests, root=workspace.root, skipped=part.skipped, style=self._style
                )
                self._testing.listen(self._listeners)
            request.check(analysis)
            self._ending.without_pin = frozenset(
                action.identifier
                for action in analysis.actions
                if action.mnemonic == FETCH_MNEMONIC and not action.pinned_content
            )
        for note in loaded.nothing_matches:
            self._reporting.note(note)
        told = (*loaded.nothing_matches, *part.notes)
        notes = [f"{self._style.warning('note:')} {note}" for note in told]
        self._write([*notes, *(part.reasons if request.verbose else ())])
        if not targets and not request.shard and loaded.requested:
            self._note("no targets match" + (" that have external files" if request.fetch_only else ""))
        console = self._console = Console(
            sys.stderr,
            style=self._style,
            live=request.progress is ProgressChoice.AUTO and is_terminal(sys.stderr, self._options.environment),
            keep_log=ActionLogs(
                workspace.state_directory / LOG_DIRECTORY, shown_as=f"{STATE_DIRECTORY}/{LOG_DIRECTORY}"
            ).keep,
            show_log=request.show_log,
            quiet=request.progress is ProgressChoice.QUIET,
            verbose=request.verbose,
            width=lambda: self._options.width(sys.stderr),
            tests=self._testing,
        )
        self._listeners.add("progress", console)
        try:
            with (
                self._reporting.phase("build"),
                build_parts(
                    workspace,
                    actions,
                    jobs=request.jobs,
                    execution=execution,
                    keep_going=request.keep_going or request.from_cache_only,  # so that the list is complete
                    from_cache_only=request.from_cache_only,
                    check_determinism=request.check_determinism,
                    recache=request.recache,
                    rerun_tests=request.tests is not None and not request.tests.uses_cached,
                    disk_cache=request.disk_cache,
                    remote=remote,
                    listeners=[self._listeners],
                    say=self._note,
                    invocation=self._reporting.invocation,
                ) as parts,
                interrupting(parts.driver.interrupt),
            ):
                try:
                    if notice := network_cache_notice(parts.store.root):
                        self._hint(notice)
                    if self._testing:
                        self._testing.use(parts.store, StoredResults(request.disk_cache).log)
                    result = parts.driver.build(actions, targets)
                finally:
                    self._reporting.remote_summary = RemoteSummary.of(parts.remote)
                self._no_op.save(
                    request.text(self._options),
                    parts=parts,
                    observed=loaded.observed.all
                    | analysis.observed.all
                    | files_searched(workspace.root, self._options.directory)
                    | {str(user_settings_file(self._options.environment))}
                    | {str(path.absolute()) for path in request.timings},
                    targets=targets,
                    result=result,
                    notes=notes,
                )
        finally:
            console.close()
        if self._testing:
            self._testing.conclude(result)
            code = self._testing.exit_code(self._ending.exit_code(result, answers=self._testing.answers))
            self._reporting.know_tests(self._testing.outcomes)
        else:
            code = self._ending.exit_code(result)
        lines = self._ending.lines(
            code,
            style=self._style,
            wall_seconds=self._options.elapsed(),
            remote=self._reporting.remote_summary,
            quiet=request.progress is ProgressChoice.QUIET,
            quiet_if_current=request.quiet_if_current,
        )
        if lines:
            self._write(lines)
        return BuildOutcome(
            exit_code=code,
            paths=tuple(path for target in result.targets if target.success for path in target.outputs),
            report=self._reporting.document(code),
            workspace=workspace,
            analysis=analysis,
            directories={target.label: target.directory for target in targets},
            tests=self._testing,
        )

    def close(self, code: ExitCode, failure: BaseException | None) -> None:
        """Write the reports. Raises LocalEnvironmentError for a file that cannot be written."""
        errors = self._reporting.write(code, failure)
        if errors and failure is None:
            raise LocalEnvironmentError("a report cannot be written: " + "; ".join(errors))
        for message in errors:
            self._note(f"a report cannot be written: {message}")

    def _note(self, message: str) -> None:
        self._no_op.forbid()
        self._hint(message)

    def _hint(self, message: str) -> None:
        """Print a note that a no-op build need not repeat."""
        self._reporting.note(message)
        self._write([f"{self._style.warning('note:')} {message}"])

    def _write(self, lines: Sequence[str]) -> None:
        if self._console:
            self._console.say(lines)
        else:
            self._options.tell(lines)


def _is_tuned(target: Target) -> bool:
    """Whether records of kernels may decide how a target is built."""
    return "tuning" in target.schema.by_name and target.string("tuning") != "off"
