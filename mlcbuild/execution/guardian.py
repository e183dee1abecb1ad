"""A process that outlives its fork server for a moment, to kill what the server's actions have left running.

A server that ends normally kills all of that itself. A server that is killed cannot, and neither can its client if that
is killed too. The kernel's mechanism for this (PR_SET_PDEATHSIG) reaches a stage, but no tool, and nothing that either
of them has started. So the guardian, a child of the server, reads a pipe. When the other end closes, it finds what is
left by its mark.

A *mark* is a resource limit that all descendants of an action inherit, even if they detach themselves, and that limits
nothing in practice: microseconds of real-time scheduling. A process can only lower it, so marks count down. Each server
uses a random range of its own, below the limit that its own process has inherited, which may be another server's mark.

The fork server loads this file by path. It imports only the standard library.
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
    """The marks of one server's actions. `current` is the mark of this process, and of what it starts next."""

    def __init__(self) -> None:
        inherited = resource.getrlimit(_MARK)[1]  # negative: unlimited
        has_room = _ACTIONS << 8 * _SERVERS_BYTES < inherited < _HIGHEST
        chance = int.from_bytes(os.urandom(_SERVERS_BYTES), "big")
        self._first = (inherited if has_room else _HIGHEST) - chance * _ACTIONS
        self.current = self._first

    def take_none(self) -> None:
        """For a process that belongs to no action, and must not look like one that another server's action has left."""
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(_MARK, (self._first, self._first))

    def lower(self) -> None:
        """Take the next mark. If a lower limit is already set, what starts next has no mark."""
        self.current -= 1
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(_MARK, (self.current, self.current))

    def of(self, pid: int) -> int:
        """The mark of a process; 0 if it has none of these."""
        try:
            mark = resource.prlimit(pid, _MARK)[1]
        except OSError:
            return 0
        return mark if self._first - _ACTIONS < mark < self._first else 0


class Guardian:
    """Starts when it is created, before the first of its `marks` is taken. `pid` is a child of this process, or 0."""

    def __init__(self) -> None:
        self.marks = Marks()
        self.pid = 0
        self._write = -1
        self.start()

    def start(self) -> None:
        """Start it, or start it again after it has ended. If no process can be started, `pid` stays 0."""
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
        """End it, because the server kills what is left itself. The caller waits for its end."""
        if self.pid:
            os.kill(
                self.pid, signal.SIGKILL
            )  # Somebody may have stopped it (SIGSTOP), and then it would notice nothing.

    def leave(self) -> None:
        """Close the pipe in a fork of the server, so that the guardian does not wait for the end of the fork."""
        if self._write >= 0:
            os.close(self._write)
        self._write = -1


def _watch(read: int, marks: Marks) -> None:
    for number in (
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGTERM,
    ):  # These are often sent to the server and to this process.
        signal.signal(number, signal.SIG_IGN)
    os.setsid()
    marks.take_none()
    ctypes.CDLL(None).prctl(_PR_SET_NAME, b"guardian", 0, 0, 0)
    os.read(read, 1)
    # A process that starts others faster than they are found is found in one of the next rounds.
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
    """True also for a zombie. The end of its first thread is not the end of the others."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as statistics:  # noqa: PTH123
            fields = statistics.read().rpartition(b")")[2].split()
        return fields[0] in (b"Z", b"X") and int(fields[17]) <= 1
    except OSError:
        return True
