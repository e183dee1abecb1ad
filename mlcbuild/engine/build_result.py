"""The result of a build, as one value."""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.engine.build_events import ActionStatus, PathStep
from mlcbuild.engine.executor import FileEntry
from mlcbuild.errors import BuildError, InterruptedBuildError, LocalEnvironmentError, MlcbuildError


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetResult:
    """`output_files` have paths relative to the workspace, sorted. `error` says why there are none.

    `environment`: the outputs were made, and this machine could not put them in place.
    """

    label: str
    success: bool
    output_files: tuple[FileEntry, ...] = ()
    error: str = ""
    environment: bool = False
    blocked_by: str = ""  # the action whose failure is the cause

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(entry.path for entry in self.output_files)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionFailure:
    """An action that failed, not one that was skipped after it, nor one that shares its run.

    `title` is its name for people. `environment`: this machine failed, not the input; `has_no_executor`: no machine
    that the build may use can ever run it. `timed_out`: it ran longer than it may.
    """

    identifier: str
    title: str
    message: str
    log: bytes = b""
    exit_code: int = 0
    environment: bool = False
    has_no_executor: bool = False
    timed_out: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """Targets in the order asked for; failures in the order in which they happened."""

    success: bool
    interrupted: bool
    invocation: str
    wall_seconds: float
    targets: tuple[TargetResult, ...]
    failures: tuple[ActionFailure, ...]
    counts: tuple[tuple[ActionStatus, int], ...]  # every status, in declaration order
    critical_path: tuple[PathStep, ...]
    bytes_downloaded: int
    bytes_uploaded: int

    def error(self) -> MlcbuildError | None:
        """The error that the command should end with. Its class gives the exit code. None for success."""
        if self.interrupted:
            return InterruptedBuildError(
                "the build was interrupted", advice=("results of actions that had finished are kept",)
            )
        if self.success:
            return None
        failed = next((target for target in self.targets if not target.success), None)
        if self.failures and all(failure.environment for failure in self.failures):
            return LocalEnvironmentError(self._story())
        if self.failures:
            return BuildError(self._story())
        if failed is None:
            return BuildError("the build failed")
        kind = LocalEnvironmentError if failed.environment else BuildError
        return kind(f"{failed.label}: {failed.error}")

    def _story(self) -> str:
        first = self.failures[0]
        message = first.message.removeprefix(first.title)
        named = len(message) < len(first.message)
        story = f"{first.title}{message}" if named else f"{first.title} failed: {message}"
        more = len(self.failures) - 1
        return f"{story}\n  and {more} more failed" if more else story
