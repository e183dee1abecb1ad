"""A process that outlives its fork server by a moment, to kill whatever the server's actions have left running.

A server that ends in order kills all that itself. One that is killed cannot, and neither can its client, if it is
killed too; what the kernel offers (PR_SET_PDEATHSIG) reaches a stage, but no tool, and nothing that either has started.
So a child that only reads a pipe notices when the other end closes, and finds the rest by its mark.

A *mark* is a limit that all descendants of an action inherit, however they detach themselves, and that limits nobody:
microseconds of real-time scheduling. It may only sink, so marks count down. Each server has a range of its own, by
chance, below what its own process inherits: that may be another server's mark.

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
_SERVERS_BYTES = 4
_PR_SET_NAME = 15
_DESCRIPTORS = 1 << 20
_ROUNDS, _ROUND_SECONDS = 500, 0.01
_QUIET_ROUNDS = 3


class Marks:
    """The marks of one server's actions; `current` is that of the calling process, and of what it starts next."""

    def __init__(self) -> None:
        inherited = resource.getrlimit(_MARK)[1]  # negative: unlimited
        has_room = _ACTIONS << 8 * _SERVERS_BYTES < inherited < _HIGHEST
        chance = int.from_bytes(os.urandom(_SERVERS_BYTES), "big")
        self._first = (inherited if has_room else _HIGHEST) - chance * _ACTIONS
        self.current = self._first

    def take_none(self) -> None:
        """For a process that is no action's, nor is to be taken for what another server's action has left."""
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(_MARK, (self._first, self._first))

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
    """Started by its construction, before the first of its `marks`. `pid` is a child of the calling process, or 0."""

    def __init__(self) -> None:
        self.marks = Marks()
        self.pid = 0
        self._write = -1
        self.start()

    def start(self) -> None:
        """Once more, after its end. Where there can be no process, there is none; ask again."""
        self.leave()
        self.pid = 0
        try:
            read, self._write = os.pipe2(os.O_CLOEXEC)
        except OSError:
            return
        try:
            self.pid = os.fork()
        except OSError:
            os.close(read)
            return
        if self.pid == 0:
            try:
                os.closerange(3, read)
                os.closerange(read + 1, _DESCRIPTORS)
                _watch(read, self.marks)
            finally:
                os._exit(0)
        os.close(read)

    def dismiss(self) -> None:
        """The server kills what is left itself. To wait for the guardian's end is the caller's business."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)  # Somebody may have stopped it, and then it would hear nothing.

    def leave(self) -> None:
        """For a fork of the server, whose end is not the server's."""
        if self._write >= 0:
            os.close(self._write)
        self._write = -1


def _watch(read: int, marks: Marks) -> None:
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):  # whoever ends the server so means it as well
        signal.signal(number, signal.SIG_IGN)
    os.setsid()
    marks.take_none()
    ctypes.CDLL(None).prctl(_PR_SET_NAME, b"guardian", 0, 0, 0)
    os.read(read, 1)
    # Whoever starts others faster than they are found is found in one of the next rounds.
    quiet = 0
    for _ in range(_ROUNDS):
        others = {int(name) for name in os.listdir("/proc") if name.isdigit()} - {os.getpid()}  # noqa: PTH208
        marked = [pid for pid in others if marks.of(pid) and not _has_ended(pid)]
        quiet = 0 if marked else quiet + 1
        if quiet == _QUIET_ROUNDS:
            return
        for pid in marked:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_ROUND_SECONDS)


def _has_ended(pid: int) -> bool:
    """Also where nobody has waited for it. Its first thread's end is not that of the others."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as statistics:  # noqa: PTH123
            fields = statistics.read().rpartition(b")")[2].split()
        return fields[0] in (b"Z", b"X") and int(fields[17]) <= 1
    except OSError:
        return True
