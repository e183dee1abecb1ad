"""Start a tool without copying the process that starts it: vfork, then exec, which costs a third of a fork.

The child of a vfork runs nothing of ours, so a thread of the starting process is confined in its stead: Landlock,
seccomp and "no new privileges" hold for one thread and what it starts, and end with it.

The fork server loads this file by path; it imports the standard library only.
"""

from __future__ import annotations

import errno
import os
import subprocess
import threading
from collections.abc import Callable
from typing import Any


class StartError(Exception):
    """`answer` is what the client is told: `errno` and `error`, or `unconfined`."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(str(answer))
        self.answer = answer


def spawn(request: dict[str, Any], *, standard_input: int, log: int, confine: Callable[[dict[str, Any]], None]) -> int:
    """The pid of a new session's leader that runs `arguments` in `directory` with `environment`.

    Raises StartError where that cannot be run, OSError where no process can. Umask and limits are the caller's. To wait
    for the process is the caller's business too.
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
        except Exception as error:  # the caller's, as without a thread
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
            # Not looked for in PATH.
            executable=program if "/" in program else f"./{program}",
            stdin=standard_input,
            stdout=log,
            stderr=log,
            cwd=request["directory"],
            env=request["environment"],
            start_new_session=True,
        )
    except OSError as error:
        if error.filename is None:  # no process
            raise
        if error.filename == request["directory"]:
            raise OSError(error.errno, f"{error.filename}: {error.strerror}") from None
        raise StartError({"errno": error.errno, "error": error.strerror}) from None
    except ValueError as error:  # no exec takes such arguments, or variables
        raise StartError({"errno": errno.EINVAL, "error": str(error)}) from None
    # Else the object's end would wait for a process that is not its own to wait for.
    process.returncode = 0
    return process.pid


def _wait_until_gone(thread: threading.Thread) -> None:
    """One that was joined may still be ending, and a fork wants none beside it.

    Libraries may have threads of their own: those stay.
    """
    while os.path.exists(f"/proc/self/task/{thread.native_id}"):  # noqa: PTH110
        os.sched_yield()
