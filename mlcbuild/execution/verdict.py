"""From how a process ended to what is said about it."""

from __future__ import annotations

import errno
import json
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mlcbuild.engine.action import StageCall
from mlcbuild.engine.executor import ExecutionRequest, OutcomeKind
from mlcbuild.execution.fork_client import ProcessEnd
from mlcbuild.figures import gibibytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a process did its work, and what people are told where it did not."""

    kind: OutcomeKind
    message: str = ""
    exit_code: int = 0
    modules: tuple[str, ...] = field(default=())  # ours, that a stage loaded
    undeclared: tuple[str, ...] = field(default=())  # paths that a stage was not let to read


def judge(request: ExecutionRequest, end: ProcessEnd, memory_ran_out: Callable[[], bool] = lambda: True) -> Verdict:
    """Say how a process ended. Cancellation is not seen here: whoever asked for it knows.

    `memory_ran_out` is asked, of a process that was killed, whether the kernel has just done that for want of memory.
    """
    name = request.identifier
    if end.status is None:
        if end.error:
            return Verdict(kind=OutcomeKind.ENVIRONMENT, message=f"{name} could not be started: {end.error}")
        return Verdict(kind=OutcomeKind.LOST, message=f"the worker that ran {name} went away")
    exit_code = os.waitstatus_to_exitcode(end.status)
    if end.timed_out:
        limit = f"{request.requirements.timeout_seconds:g} s"
        return Verdict(
            kind=OutcomeKind.FAILED,
            message=f"{name} ran longer than its limit of {limit} and was stopped",
            exit_code=exit_code,
        )
    if end.out_of_memory:
        message = (
            f"{name} held {gibibytes(end.peak_bytes)} of memory, more than the "
            f"{gibibytes(request.requirements.memory_bytes)} that it asks for, and was stopped"
        )
        return Verdict(kind=OutcomeKind.OUT_OF_MEMORY, message=message, exit_code=exit_code)
    if exit_code < 0:
        return _signalled(name, -exit_code, end, memory_ran_out)
    if b"unconfined" in end.result[:20]:
        reason = json.loads(end.result)["unconfined"]
        message = f"{name} could not be confined: {reason}\n  build with --no-sandbox"
        return Verdict(kind=OutcomeKind.ENVIRONMENT, message=message, exit_code=exit_code)
    if isinstance(request.command, StageCall):
        return _stage(name, exit_code, end)
    return _tool(request, exit_code, end)


def _signalled(name: str, number: int, end: ProcessEnd, memory_ran_out: Callable[[], bool]) -> Verdict:
    if number == signal.SIGKILL:
        used = f"it had used {gibibytes(end.peak_bytes)}"
        if not memory_ran_out():
            message = f"{name} was killed (SIGKILL), not by the kernel for want of memory; {used}"
            return Verdict(kind=OutcomeKind.ENVIRONMENT, message=message, exit_code=-number)
        message = (
            f"{name} was killed (SIGKILL), most likely by the kernel for want of memory; {used}"
            "\n  run fewer actions at once (--jobs), or use a machine with more memory"
        )
        return Verdict(kind=OutcomeKind.OUT_OF_MEMORY, message=message, exit_code=-number)
    try:
        called = signal.Signals(number).name
    except ValueError:
        called = f"signal {number}"
    return Verdict(kind=OutcomeKind.FAILED, message=f"{name} crashed with {called}; its log follows", exit_code=-number)


def _stage(name: str, exit_code: int, end: ProcessEnd) -> Verdict:
    try:
        result = json.loads(end.result)
        kind = OutcomeKind(result["kind"])
    except (ValueError, KeyError, TypeError):
        return Verdict(
            kind=OutcomeKind.FAILED,
            message=f"{name} ended with exit code {exit_code} before it was done",
            exit_code=exit_code,
        )
    message = f"{name}: {result['message']}" if result["message"] else ""
    undeclared = tuple(result.get("undeclared", ()))
    if undeclared and kind in (OutcomeKind.SUCCEEDED, OutcomeKind.FAILED):
        kind, message = OutcomeKind.FAILED, undeclared_reads(name, undeclared)
    elif kind is OutcomeKind.FAILED and result.get("network"):
        message += "\n  the network is cut from actions: fetch what it needs by a target of its own"
    return Verdict(
        kind=kind, message=message, exit_code=exit_code, modules=tuple(result["modules"]), undeclared=undeclared
    )


def undeclared_reads(name: str, paths: Sequence[str]) -> str:
    """What is said of an action that was refused paths outside its inputs."""
    which = "which is not its own" if len(paths) == 1 else "which are not its own"
    return (
        f"{name} asked for {', '.join(paths)}, {which}\n  declare what it reads and makes, or build with --no-sandbox"
    )


def _tool(request: ExecutionRequest, exit_code: int, end: ProcessEnd) -> Verdict:
    name = request.identifier
    assert not isinstance(request.command, StageCall)
    program = request.command.arguments[0]
    if end.result:
        refused = json.loads(end.result)
        missing = refused["errno"] == errno.ENOENT
        message = f"{name}: {program!r} could not be run: {refused['error']}"
        if missing and os.path.isabs(program):  # noqa: PTH117
            return Verdict(kind=OutcomeKind.ENVIRONMENT, message=f"{message}\n  install it on this machine")
        if missing:
            message += "\n  it is not among the inputs, or its interpreter (the #! line) is not on this machine"
        return Verdict(kind=OutcomeKind.FAILED, message=message, exit_code=exit_code)
    if exit_code:
        return Verdict(
            kind=OutcomeKind.FAILED,
            message=f"{name}: {program!r} ended with exit code {exit_code}",
            exit_code=exit_code,
        )
    return Verdict(kind=OutcomeKind.SUCCEEDED)
