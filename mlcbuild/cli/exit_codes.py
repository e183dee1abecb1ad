"""Exit codes, with Bazel's numbers, so that tools for Bazel understand them.

Codes below 10 mean an error in the targets or the command line. Codes from 32 on mean a failure of the environment:
the same command may succeed later.
"""

from __future__ import annotations

import enum

from mlcbuild import errors


class ExitCode(enum.IntEnum):
    """The exit code of the process."""

    OK = 0
    BUILD_FAILED = 1
    COMMAND_LINE = 2
    TESTS_FAILED = 3
    NO_TESTS = 4
    RUN_FAILED = 6
    ANALYSIS_FAILED = 7
    INTERRUPTED = 8
    LOCK_HELD = 9
    WOULD_RUN = 10  # not one of Bazel's, which uses neither this number nor another for it
    NOT_VERIFIED = 11  # neither is this one
    LOCAL_ENVIRONMENT = 36
    INTERNAL = 37
    EXTERNAL_DEPENDENCIES = 48


_RETRY: dict[ExitCode, str] = {
    ExitCode.LOCK_HELD: "another mlcbuild uses this workspace",
    ExitCode.LOCAL_ENVIRONMENT: "this machine failed, not your targets",
    ExitCode.INTERNAL: "mlcbuild failed, not your targets",
    ExitCode.EXTERNAL_DEPENDENCIES: "something outside this machine could not be fetched",
}

_MEANINGS: dict[ExitCode, str] = {
    ExitCode.OK: "success",
    ExitCode.BUILD_FAILED: "an action failed",
    ExitCode.COMMAND_LINE: "an error in the command line",
    ExitCode.TESTS_FAILED: "what was built is there, and a test failed or timed out",
    ExitCode.NO_TESTS: "tests were asked for, and there are none",
    ExitCode.RUN_FAILED: "what was built could not be run",
    ExitCode.ANALYSIS_FAILED: "an error in the workspace",
    ExitCode.INTERRUPTED: "interrupted",
    ExitCode.LOCK_HELD: "another mlcbuild uses this workspace",
    ExitCode.WOULD_RUN: "an action has no cached result",
    ExitCode.NOT_VERIFIED: "a release is not as it was signed",
    ExitCode.LOCAL_ENVIRONMENT: "this machine failed",
    ExitCode.INTERNAL: "mlcbuild failed",
    ExitCode.EXTERNAL_DEPENDENCIES: "a file could not be fetched",
}

# The first class that matches decides, so base classes come last.
_OF_CLASS: tuple[tuple[type[errors.MlcbuildError], ExitCode], ...] = (
    (errors.UsageError, ExitCode.COMMAND_LINE),
    (errors.WorkspaceError, ExitCode.ANALYSIS_FAILED),
    (errors.BuildError, ExitCode.BUILD_FAILED),
    (errors.FetchError, ExitCode.EXTERNAL_DEPENDENCIES),
    (errors.InterruptedBuildError, ExitCode.INTERRUPTED),
    (errors.InternalError, ExitCode.INTERNAL),
    (errors.InfrastructureError, ExitCode.LOCAL_ENVIRONMENT),
)


def exit_code_of(error: errors.MlcbuildError) -> ExitCode:
    """The exit code for an error that ended a command."""
    from mlcbuild.cli.test.request import NoTestsError
    from mlcbuild.engine.workspace_lock import WorkspaceLockedError

    if isinstance(error, WorkspaceLockedError):
        return ExitCode.LOCK_HELD
    if isinstance(error, NoTestsError):
        return ExitCode.NO_TESTS
    for error_class, code in _OF_CLASS:
        if isinstance(error, error_class):
            return code
    return ExitCode.INTERNAL


def meaning(code: ExitCode) -> str:
    """What the exit code of a build says, in a few words."""
    return _MEANINGS[code]


def retry_line(code: ExitCode) -> str:
    """The line that says why the same command may succeed later; "" if it will not."""
    reason = _RETRY.get(code)
    return f"this may be retried: {reason}" if reason else ""
