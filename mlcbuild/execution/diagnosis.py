"""Decides what the end of a process means for its action, and writes the message for people."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from mlcbuild.engine.action import StageCall
from mlcbuild.engine.executor import ExecutionRequest, OutcomeKind
from mlcbuild.execution.fork_client import ProcessEnd
from mlcbuild.figures import gibibytes, shortened_list

# Names of what programs share by other means than files, as tracebacks and messages of denied programs have them.
_SHARING = re.compile(
    rb"/dev/shm/|SemLock|posixshmem|psm_|\b(?:sem|shm|mq)_open|\b(?:shm|sem|msg)get|[Ss]emaphore|[Ss]hared memory"
    rb"|[Mm]essage queue|keyctl|ptrace"
)
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_DENIED = (b"permission denied", b"eacces")
_MOST_NAMED = 3  # paths or modules
_ALONE = (
    "actions have no shared memory, semaphores or message queues between processes, no keyrings and no ptrace: "
    "use threads, pipes or files in TMPDIR, or build with --no-sandbox"
)
_DECLARE = "declare what it reads and makes, or build with --no-sandbox"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Whether a process did its work, and the message for people if it did not."""

    kind: OutcomeKind
    message: str = ""
    exit_code: int = 0
    timed_out: bool = False
    modules: tuple[str, ...] = field(default=())  # of mlcbuild and the workspace, that a stage loaded
    undeclared: tuple[str, ...] = field(default=())  # paths that a stage tried to read and was denied
    compiled: tuple[str, ...] = field(default=())  # sources that a stage loaded and had to compile


def diagnose(request: ExecutionRequest, end: ProcessEnd, memory_ran_out: Callable[[], bool]) -> Diagnosis:
    """What the end of a process means. Cancellation is not seen here: the caller knows whether it cancelled.

    For a process that was killed, `memory_ran_out` says whether the kernel's OOM killer has just been at work.
    """
    name = request.identifier
    if end.status is None:
        if end.error:
            return Diagnosis(kind=OutcomeKind.ENVIRONMENT, message=f"{name} could not be started: {end.error}")
        return Diagnosis(kind=OutcomeKind.LOST, message=f"the worker that ran {name} died")
    exit_code = os.waitstatus_to_exitcode(end.status)
    if end.timed_out:
        limit = f"{request.requirements.timeout_seconds:g} s"
        return Diagnosis(
            kind=OutcomeKind.FAILED,
            message=f"{name} ran longer than its limit of {limit} and was stopped",
            exit_code=exit_code,
            timed_out=True,
        )
    if end.out_of_memory:
        message = (
            f"{name} used {gibibytes(end.peak_bytes)} of memory, more than the "
            f"{gibibytes(request.requirements.memory_bytes)} that it requests, and was stopped"
        )
        return Diagnosis(kind=OutcomeKind.OUT_OF_MEMORY, message=message, exit_code=exit_code)
    if exit_code < 0:
        return _signalled(name, -exit_code, end, memory_ran_out)
    if b"unconfined" in end.result[:20]:
        reason = json.loads(end.result)["unconfined"]
        message = f"{name} could not be sandboxed: {reason}\n  build with --no-sandbox"
        return Diagnosis(kind=OutcomeKind.ENVIRONMENT, message=message, exit_code=exit_code)
    if isinstance(request.command, StageCall):
        return _stage(name, exit_code, end)
    return _tool(request, exit_code, end)


def check_modules(diagnosis: Diagnosis, request: ExecutionRequest) -> Diagnosis:
    """The diagnosis; or a failure, if the stage loaded a module of ours or of the workspace that is not in its key."""
    if not request.allowed_modules:
        return diagnosis
    undeclared = [module for module in diagnosis.modules if module not in request.allowed_modules]
    if not undeclared:
        return diagnosis
    message = (
        f"{request.identifier} loaded {shortened_list(undeclared, _MOST_NAMED)}, which is not in its key\n"
        "  import it with an import statement at the top of a module, by its full name"
    )
    return Diagnosis(kind=OutcomeKind.FAILED, message=message)


def explain_sharing(diagnosis: Diagnosis, log: bytes) -> Diagnosis:
    """The diagnosis of a failed action; with a reason, if its log says that it was denied what processes share."""
    is_denied = any(word in log.lower() for word in _DENIED)
    if not is_denied or not _SHARING.search(log):
        return diagnosis
    return replace(diagnosis, message=f"{diagnosis.message}\n  {_ALONE}")


def denied_paths_of_tool(diagnosis: Diagnosis, paths: Sequence[str]) -> str:
    """The message for a tool that failed after it was denied access to paths outside its inputs."""
    return f"{diagnosis.message}\n  it was denied access to {_undeclared(paths)}\n  {_DECLARE}"


def _signalled(name: str, number: int, end: ProcessEnd, memory_ran_out: Callable[[], bool]) -> Diagnosis:
    if number == signal.SIGKILL:
        used = f"it had used {gibibytes(end.peak_bytes)}"
        if not memory_ran_out():
            message = f"{name} was killed (SIGKILL), not by the OOM killer; {used}"
            return Diagnosis(kind=OutcomeKind.ENVIRONMENT, message=message, exit_code=-number)
        message = (
            f"{name} was killed (SIGKILL), most likely by the OOM killer; {used}"
            "\n  run fewer actions at once (--jobs), or use a machine with more memory"
        )
        return Diagnosis(kind=OutcomeKind.OUT_OF_MEMORY, message=message, exit_code=-number)
    try:
        called = signal.Signals(number).name
    except ValueError:
        called = f"signal {number}"
    message = f"{name} crashed with {called}; its log follows"
    return Diagnosis(kind=OutcomeKind.FAILED, message=message, exit_code=-number)


def _stage(name: str, exit_code: int, end: ProcessEnd) -> Diagnosis:
    try:
        result = json.loads(end.result)
        kind = OutcomeKind(result["kind"])
    except (ValueError, KeyError, TypeError):
        return Diagnosis(
            kind=OutcomeKind.FAILED,
            message=f"{name} ended with exit code {exit_code} before the stage returned",
            exit_code=exit_code,
        )
    message = f"{name}: {result['message']}" if result["message"] else ""
    undeclared = tuple(result.get("undeclared", ()))
    if undeclared and kind in (OutcomeKind.SUCCEEDED, OutcomeKind.FAILED):
        kind, message = OutcomeKind.FAILED, f"{name} read {_undeclared(undeclared)}\n  {_DECLARE}"
    elif kind is OutcomeKind.FAILED and result.get("network"):
        message += "\n  actions have no network: fetch what it needs with a target of its own"
    return Diagnosis(
        kind=kind,
        message=message,
        exit_code=exit_code,
        modules=tuple(result["modules"]),
        undeclared=undeclared,
        compiled=tuple(map(str, result.get("compiled", ()))),
    )


def _undeclared(paths: Sequence[str]) -> str:
    which = "which is not a declared input" if len(paths) == 1 else "which are not declared inputs"
    return f"{shortened_list(paths, _MOST_NAMED)}, {which}"


def _tool(request: ExecutionRequest, exit_code: int, end: ProcessEnd) -> Diagnosis:
    name = request.identifier
    assert not isinstance(request.command, StageCall)
    program = request.command.arguments[0]
    if end.result:
        told = json.loads(end.result)
        message = f"{name}: {program!r} could not be run: {told['error']}"
        is_missing = told["errno"] == errno.ENOENT
        if is_missing and os.path.isabs(program):  # noqa: PTH117
            return Diagnosis(kind=OutcomeKind.ENVIRONMENT, message=f"{message}\n  install it on this machine")
        if is_missing:
            message += "\n  it is not among the inputs, or its interpreter (the #! line) is not on this machine"
        return Diagnosis(kind=OutcomeKind.FAILED, message=message, exit_code=exit_code)
    if exit_code:
        return Diagnosis(
            kind=OutcomeKind.FAILED,
            message=f"{name}: {program!r} ended with exit code {exit_code}",
            exit_code=exit_code,
        )
    return Diagnosis(kind=OutcomeKind.SUCCEEDED)


def input_was_written(request: ExecutionRequest, paths: Sequence[str], exit_code: int) -> Diagnosis:
    """The failure of an action that wrote to its inputs."""
    message = f"{request.identifier} wrote to its input {', '.join(paths)}"
    message += "\n  inputs are read-only: write to a declared output"
    return Diagnosis(kind=OutcomeKind.FAILED, message=message, exit_code=exit_code)


def explain_system_error(request: ExecutionRequest, error: OSError) -> str:
    """What the machine refused, for people."""
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in _DISK_FULL:
        return f"{request.identifier}: no space left on the disk{where}\n  free some space and build again"
    return f"{request.identifier}: {error.strerror or error}{where}"
