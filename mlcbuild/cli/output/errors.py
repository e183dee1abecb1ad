"""Prints the exception that ended a command as an error, and chooses the exit code.

Users see no traceback. That of a bug goes to a file below `.mlcbuild/`, or to the terminal if MLCBUILD_DEBUG is set.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from pathlib import Path

from typer import TyperException

import mlcbuild
from mlcbuild.cli.arguments.options import STATE_DIRECTORY, GlobalOptions
from mlcbuild.cli.arguments.usage_errors import usage_error
from mlcbuild.cli.exit_codes import ExitCode, exit_code_of, retry_line
from mlcbuild.cli.output.terminal import Style
from mlcbuild.errors import InterruptedBuildError, MlcbuildError, WorkspaceErrors

DEBUG_VARIABLE = "MLCBUILD_DEBUG"
# Whoever adds a file there wants to know its line; an error elsewhere is told by its traceback alone.
_PLUGINS = (
    "mlcbuild.rules.",
    "mlcbuild.toolchains.entries.",
    "mlcbuild.compiler.families.",
    "mlcbuild.compiler.quantization.schemes.",
)


def code_of(failure: BaseException) -> ExitCode:
    """The exit code for any exception that ends a command."""
    match failure:
        case MlcbuildError():
            return exit_code_of(failure)
        case KeyboardInterrupt():
            return ExitCode.INTERRUPTED
        case TyperException():
            return ExitCode.COMMAND_LINE
        case OSError():
            return ExitCode.LOCAL_ENVIRONMENT
        case _:
            return ExitCode.INTERNAL


def report_error(failure: BaseException, options: GlobalOptions) -> ExitCode:
    """Print the exception that ended a command to standard error; returns the exit code."""
    if isinstance(failure, TyperException):
        failure = usage_error(failure)
    lines = exception_lines(
        failure,
        style=options.style(sys.stderr),
        environment=options.environment,
        state_directory=_state_directory(options.directory),
    )
    options.tell(lines)
    return code_of(failure)


def report_run_error(failure: Exception, options: GlobalOptions) -> ExitCode:
    """Print the exception that ended a run of a built target; returns the exit code."""
    style = options.style(sys.stderr)
    lines = [f"{style.error('error:')} the built target cannot be run: {_exception_text(failure)}"]
    if options.environment.get(DEBUG_VARIABLE):
        lines += "".join(traceback.format_exception(failure)).splitlines()
    else:
        lines.append(f"  the traceback is in {_write_traceback(failure, _state_directory(options.directory))}")
        lines.append(f"  set {DEBUG_VARIABLE}=1 to see it here")
    options.tell(lines)
    return ExitCode.RUN_FAILED


def exception_lines(
    failure: BaseException, *, style: Style, environment: Mapping[str, str], state_directory: Path | None
) -> list[str]:
    """The lines to print. A bug's traceback is written below `state_directory` (None: the temporary directory)."""
    debug = bool(environment.get(DEBUG_VARIABLE))
    code = code_of(failure)
    if isinstance(failure, KeyboardInterrupt | InterruptedBuildError):
        lines = [style.error("interrupted")]
    elif isinstance(failure, MlcbuildError) and code is not ExitCode.INTERNAL:
        lines = error_lines(failure, style=style)
    elif isinstance(failure, OSError):
        lines = [f"{style.error('error:')} {_os_error_text(failure)}"]
        if not debug:
            lines.append(f"  set {DEBUG_VARIABLE}=1 to see where this happened")
    else:
        message = str(failure) if isinstance(failure, MlcbuildError) else _exception_text(failure)
        first, *rest = message.splitlines()
        place = _place_in_a_plugin(failure)
        lines = [f"{style.error('error:')} mlcbuild itself failed{place}: {first}", *(f"  {line}" for line in rest)]
        if not debug:
            lines.append(f"  the traceback is in {_write_traceback(failure, state_directory)}")
            lines.append(f"  set {DEBUG_VARIABLE}=1 to see it here")
    if debug:
        lines += "".join(traceback.format_exception(failure)).splitlines()
    if line := retry_line(code):
        lines.append(line)
    return lines


def error_lines(error: MlcbuildError, *, style: Style) -> list[str]:
    """The lines of an error: its place first, so that editors find it, and advice indented below."""
    if isinstance(error, WorkspaceErrors):
        lines = [line for each in error.errors for line in error_lines(each, style=style)]
        return lines if len(error.errors) == 1 else [*lines, style.error(error.message)]
    head = style.bold(f"{error.location}:") if error.location else style.error("error:")
    first, *rest = error.message.splitlines() or [type(error).__name__]
    return [
        f"{head} {first}",
        *(f"  {line}" for line in rest),
        *(f"  {line}" for advice in error.advice for line in advice.splitlines()),
    ]


def _state_directory(start: Path) -> Path | None:
    """`.mlcbuild` of the workspace around `start`; None if there is no workspace."""
    try:
        from mlcbuild.workspace.settings import find_root

        return find_root(start) / STATE_DIRECTORY
    except Exception:
        return None


def _os_error_text(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename else reason


def _exception_text(failure: BaseException) -> str:
    return "".join(traceback.format_exception_only(failure)).strip()


def _place_in_a_plugin(failure: BaseException) -> str:
    """Where a rule, or another file that is found by listing its folder, was running; "" where none was."""
    for frame, line in reversed(list(traceback.walk_tb(failure.__traceback__))):
        module = frame.f_globals.get("__name__", "")
        if module.startswith(_PLUGINS):
            return f" at {module.replace('.', '/')}.py:{line}"
    return ""


def _write_traceback(failure: BaseException, state_directory: Path | None) -> str:
    name = f"crash-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    text = "".join(traceback.format_exception(failure))
    content = f"mlcbuild {mlcbuild.__version__}, Python {sys.version}\n{text}"
    for directory in (state_directory, Path(tempfile.gettempdir())):
        if directory is None:
            continue
        try:
            directory.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(content, encoding="utf-8", errors="backslashreplace")
        except OSError:
            continue
        return str(directory / name)
    return f"no file (neither {state_directory} nor the temporary directory is writable)"
