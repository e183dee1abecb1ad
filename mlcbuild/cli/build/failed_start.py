"""Remembers a build that failed before any action was known, for `mlcbuild log`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from mlcbuild.cli.arguments.options import RECORD_DIRECTORY, STATE_DIRECTORY, GlobalOptions
from mlcbuild.cli.build.no_op_check import without_credentials
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.log.no_op_builds import append_failed_start
from mlcbuild.cli.output.errors import error_lines
from mlcbuild.cli.output.terminal import Style
from mlcbuild.cli.settings.history import history_limits
from mlcbuild.errors import MlcbuildError
from mlcbuild.workspace.settings import find_root

_INTERRUPTED = "interrupted"


def remember_failed_start(
    failure: BaseException,
    code: ExitCode,
    options: GlobalOptions,
    *,
    invocation: str,
    began: float,
    patterns: Sequence[str],
) -> None:
    """Append a line to the history of the workspace, unless the user keeps none. `began` is in seconds since 1970.

    A workspace that cannot be found or written has no history.
    """
    with suppress(MlcbuildError, OSError):
        directory = find_root(options.directory) / STATE_DIRECTORY / RECORD_DIRECTORY
        if not history_limits(options.environment).builds:
            return
        directory.mkdir(parents=True, exist_ok=True)
        append_failed_start(
            directory,
            invocation=invocation,
            began=began,
            arguments=[without_credentials(argument) for argument in options.arguments],
            patterns=patterns,
            exit_code=int(code),
            error=_told(failure, code),
            wall_seconds=options.elapsed(),
        )


def _told(failure: BaseException, code: ExitCode) -> str:
    if code is ExitCode.INTERRUPTED:
        return _INTERRUPTED
    if isinstance(failure, MlcbuildError):
        return "\n".join(line.removeprefix("error: ") for line in error_lines(failure, style=Style()))
    return str(failure) or type(failure).__name__
