"""A process that outlives its fork server by a moment, to kill whatever the server's actions have left running.

A server that ends in order kills all that itself. One that is killed cannot, and neither can its client, if it is
killed too; what the kernel offers (PR_SET_PDEATHSIG) reaches a stage, but no tool, and nothing that either has started.
So a child that only reads a pipe notices when the other end closes, and finds the rest by its mark.

A *mark* is a limit that all descendants of an action inherit, however they detach themselves, and that limits nobody:
microseconds of real-time scheduling. It may only sink, so marks count down. Each server has a range of its own, by
chance.

The fork server loads this file by path; it imports the standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import time

_MARK = resource.RLIMIT_RTTIME
_HIGHEST = 1 << 62
_ACTIONS = 1 << 26  # of one server, at most
_PR_SET_NAME = 15
_DONE = b"."
_DESCRIPTORS = 1 << 20
_ROUNDS, _ROUND_SECONDS = 500, 0.01


class Marks:
    """The marks of one server's actions; `current` is that of the calling process, and of what it starts next."""

    def __init__(self) -> None:
        self._first = _HIGHEST - int.from_bytes(os.urandom(4), "big") * _ACTIONS
        self.current = self._first

    def sink(self) -> None:
        """The next one. Where a lower limit holds already, what is started goes without."""
        self.current -= 1
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(_MARK, (self.current, self.current))

    def of(self, pid: int) -> int:
        """0 where it has none of ours."""
        try:
            mark = resource.prlimit(pid, _MARK)[1]
        except OSError:
            return 0
        return mark if self._first - _ACTIONS < mark < self._first else 0


class Guardian:
    """Started by its construction, before the first of its `marks`. `pid` is a child of the calling process."""

    def __init__(self) -> None:
        self.marks = Marks()
        self._write = -1
        self.start()

    def start(self) -> None:
        """Once more, after its end."""
        if self._write >= 0:
            os.close(self._write)
        read, self._write = os.pipe2(os.O_CLOEXEC)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.closerange(3, read)
                os.closerange(read + 1, _DESCRIPTORS)
                _watch(read, self.marks)
            finally:
                os._exit(0)
        os.close(read)

    def dismiss(self) -> None:
        """There is nothing that the server does not kill itself."""
        with contextlib.suppress(OSError):
            os.write(self._write, _DONE)

    def leave(self) -> None:
        """For a fork of the server, whose end is not the server's."""
        os.close(self._write)


def _watch(read: int, marks: Marks) -> None:
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_NAME, b"guardian", 0, 0, 0)
    if os.read(read, 1) == _DONE:
        return
    # Whoever starts others faster than they are found is found in one of the next rounds.
    for _ in range(_ROUNDS):
        others = {int(name) for name in os.listdir("/proc") if name.isdigit()} - {os.getpid()}  # noqa: PTH208
        marked = [pid for pid in others if marks.of(pid) and not _has_ended(pid)]
        if not marked:
            return
        for pid in marked:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_ROUND_SECONDS)


def _has_ended(pid: int) -> bool:
    """Also where nobody has waited for it."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as statistics:  # noqa: PTH123
            return statistics.read().rpartition(b")")[2].split()[0] in (b"Z", b"X")
    except OSError:
        return True
