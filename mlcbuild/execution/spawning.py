"""Starts a tool with vfork and exec, which costs a third of a fork because the starting process is not copied.

The child of a vfork runs no code of ours, so a thread of the starting process is confined in its place: Landlock,
seccomp and "no new privileges" apply to one thread and what it starts, and end with it.

The fork server loads this file by path. It imports only the standard library.
"""

from __future__ import annotations

import errno
import os
import subprocess
import threading
from collections.abc import Callable
from typing import Any


class StartError(Exception):
    """`answer` is sent to the client: `errno` and `error`, or `unconfined`."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(str(answer))
        self.answer = answer


def spawn(request: dict[str, Any], *, standard_input: int, log: int, confine: Callable[[dict[str, Any]], None]) -> int:
    """The pid of a new session's leader that runs `arguments` in `directory` with `environment`.

    Raises StartError if the program cannot be run, OSError if no process can be started. Umask and limits are those of
    the caller, and the caller has to wait for the process.
    """
    policy = request.get("sandbox")
    if not policy:
        return _start(request, standard_input, log)
    started: list[int | Exception] = []

    def start_confined() -> None:
        try:
            confine(policy)
        except OSError as error:
            started.append(StartError({"unconfined": str(error)}))
            return
        try:
            started.append(_start(request, standard_input, log))
        except Exception as error:  # raised in the caller's thread below
            started.append(error)

    thread = threading.Thread(target=start_confined)
    try:
        thread.start()
    except RuntimeError:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None
    thread.join()
    _wait_until_gone(thread)
    (one,) = started
    if isinstance(one, Exception):
        raise one
    return one


def _start(request: dict[str, Any], standard_input: int, log: int) -> int:
    program = request["arguments"][0]
    try:
        process = subprocess.Popen(
            request["arguments"],
            # It is not looked for in PATH.
            executable=program if "/" in program else f"./{program}",
            stdin=standard_input,
            stdout=log,
            stderr=log,
            cwd=request["directory"],
            env=request["environment"],
            start_new_session=True,
        )
    except OSError as error:
        if error.filename is None:  # There is no process.
            raise
        if error.filename == request["directory"]:
            raise OSError(error.errno, f"{error.filename}: {error.strerror}") from None
        raise StartError({"errno": error.errno, "error": error.strerror}) from None
    except ValueError as error:  # exec does not accept such arguments or variables
        raise StartError({"errno": errno.EINVAL, "error": str(error)}) from None
    # Otherwise the object would wait for the process when it is deleted, and the caller waits for it.
    process.returncode = 0
    return process.pid


def _wait_until_gone(thread: threading.Thread) -> None:
    """A thread that was joined may still be ending, and a process should have no other thread when it forks.

    Threads of libraries stay.
    """
    while os.path.exists(f"/proc/self/task/{thread.native_id}"):  # noqa: PTH110
        os.sched_yield()
