"""What a command builds, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mlcbuild.cli.arguments.choices import ExecutorChoice, ProgressChoice, RemoteUpload
from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.build.no_op_check import request_text
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.reports.ci_reports import CiReports
from mlcbuild.cli.settings.execution import ExecutionOptions
from mlcbuild.cli.settings.remote import RemoteOptions
from mlcbuild.cli.test.request import TestRequest
from mlcbuild.cli.test.testing import Testing
from mlcbuild.cli.workspace.opening import OpenWorkspace
from mlcbuild.rules.analysis import Analysis


class NothingToBuildError(Exception):
    """A request's check has found that the command is done without a build, for example because it showed help."""


@dataclass(frozen=True, kw_only=True)
class BuildRequest:
    """What a command builds, and the reports that it writes. `jobs` None stands for one per core."""

    patterns: tuple[str, ...]
    configuration: str = ""
    overrides: tuple[str, ...] = ()  # arguments of --set
    jobs: int | None = None
    keep_going: bool = False
    check_determinism: bool = False  # run each action twice, without cached results
    build_report: Path | None = None
    profile: Path | None = None
    events: Path | None = None
    ci: CiReports = field(default_factory=CiReports)
    disk_cache: Path | None = None
    remote: RemoteOptions = field(default_factory=RemoteOptions)
    execution: ExecutionOptions = field(default_factory=ExecutionOptions)
    shard: str = ""  # the argument of --shard
    timings: tuple[Path, ...] = ()
    recache: bool = False  # use no cached result, and replace it
    from_cache_only: bool = False  # run nothing; fail with the list of what has no cached result
    show_log: bool = False
    progress: ProgressChoice = ProgressChoice.AUTO
    verbose: bool = False  # a line for each action that ran
    fetch_only: bool = False  # only the external files that the targets need
    quiet_if_current: bool = False  # print no summary if there was nothing to do
    check: Callable[[Analysis], None] = lambda _: None  # may raise an error before anything is built
    tests: TestRequest | None = None  # run the tests among the targets

    @staticmethod
    def of_options(
        patterns: Sequence[str],
        *,
        config: str,
        overrides: Sequence[str] | None,
        jobs: int | None,
        disk_cache: Path | None,
        remote: str,
        no_remote: bool,
        executor: ExecutorChoice | None,
        ray_address: str,
        remote_upload: RemoteUpload | None = None,
        progress: ProgressChoice = ProgressChoice.AUTO,
    ) -> BuildRequest:
        """The request of a command that builds what it is about, by the options as the command line has them."""
        return BuildRequest(
            patterns=tuple(patterns),
            configuration=config,
            overrides=tuple(overrides or ()),
            jobs=jobs,
            disk_cache=disk_cache,
            remote=RemoteOptions(address=remote, upload=remote_upload or "", no_remote=no_remote),
            execution=ExecutionOptions(executor=executor or "", ray_address=ray_address),
            progress=progress,
        )

    def text(self, options: GlobalOptions) -> str:
        """Everything that decides what is built, for the no-op check."""
        return request_text(
            self.patterns,
            directory=options.directory,
            environment=options.environment,
            configuration=self.configuration,
            overrides=self.overrides,
            disk_cache=self.disk_cache,
            fetch_only=self.fetch_only,
            remote=(self.remote.address, self.remote.upload, self.remote.no_remote),
            shard=self.shard,
            timings=self.timings,
        )


@dataclass(frozen=True, kw_only=True)
class BuildOutcome:
    """The result of a build. `paths` are the outputs of the built targets, relative to the workspace."""

    exit_code: ExitCode
    paths: tuple[str, ...]
    report: dict[str, object]
    workspace: OpenWorkspace
    analysis: Analysis
    directories: dict[str, str]  # label → the target's own directory, relative to the workspace
    tests: Testing | None = None  # with their results, where they were asked for
