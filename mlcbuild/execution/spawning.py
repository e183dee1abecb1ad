"""Start a tool without copying the process that starts it: vfork, then exec, which costs a third of a fork.

The child of a vfork runs nothing of ours, so a thread of the starting process is confined in its stead: Landlock,
seccomp and "no new privileges" hold for one thread and what it starts, and end with it.

The fork server loads this file by path; it imports the standard library only.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from typing import Any


class NotStarted(Exception):  # noqa: N818
    """`answer` is what the client is told: `errno` and `error`, or `unconfined`."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(str(answer))
        self.answer = answer


def spawn(request: dict[str, Any], *, standard_input: int, log: int, confine: Callable[[dict[str, Any]], None]) -> int:
    """The pid of a new session's leader that runs `arguments` in `directory` with `environment`. Raises NotStarted.

    Umask and limits are the caller's. To wait for the process is the caller's business too.
    """
    policy = request.get("sandbox")
    if not policy:
        return _start(request, standard_input, log)
    started: list[int | NotStarted] = []

    def start_confined() -> None:
        try:
            confine(policy)
            started.append(_start(request, standard_input, log))
        except OSError as error:
            started.append(NotStarted({"unconfined": str(error)}))
        except NotStarted as reason:
            started.append(reason)

    thread = threading.Thread(target=start_confined)
    thread.start()
    thread.join()
    _wait_until_alone()
    (one,) = started
    if isinstance(one, NotStarted):
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
        raise NotStarted({"errno": error.errno, "error": error.strerror}) from None
    # Else the object's end would wait for a process that is not its own to wait for.
    process.returncode = 0
    return process.pid


def _wait_until_alone() -> None:
    """A thread that was joined may still be ending, and a fork wants none beside it."""
    while len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208
        os.sched_yield()
