"""How much memory the processes of an action use, and how much is free on this machine, read from /proc and /sys.

A limit is enforced by measuring, not by the kernel. A control group would have to be delegated to the user who builds,
which it rarely is, and it also counts files that were read. `RLIMIT_AS` and `RLIMIT_DATA` count reserved memory, for
each process separately, and compilers and drivers reserve many times what they use.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_LOOK_SECONDS = 0.1
_CLOSE_LOOK_SECONDS = 0.02  # once more than half of the limit is used; to allocate gigabytes takes no longer

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_HELD = ("Pss_Anon:", "Pss_Shmem:")  # without mapped files: the kernel can take their pages back
# For control groups of version 2 and version 1: limit, use, and the name in memory.stat of what can be taken back.
_GROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "inactive_file"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        "total_inactive_file",
    ),
)


class MemoryWatch:
    """Measures from time to time what a process and its descendants use. `next_look` is in monotonic seconds."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.resident_bytes = 0  # at the last look
        self.peak_bytes = 0
        self.is_over = False  # They used more than the limit.
        self.next_look = time.monotonic() + _LOOK_SECONDS

    def look(self, pid: int) -> bool:
        """Measure the tree below `pid`; 0: not started yet. Returns whether it has just exceeded the limit."""
        resident = self.resident_bytes = resident_bytes(pid) if pid else 0
        limit = self._limit_bytes
        # The exact figure takes longer to read, and is never larger.
        held = held_bytes(pid) if 0 < limit < resident else 0
        self.peak_bytes = max(self.peak_bytes, held or resident)
        self.is_over = held > limit > 0
        is_close = 0 < limit < 2 * resident
        self.next_look = time.monotonic() + (_CLOSE_LOOK_SECONDS if is_close else _LOOK_SECONDS)
        if self.is_over:
            self.stop()
        return self.is_over

    def stop(self) -> None:
        self.next_look = math.inf


class FreeMemory:
    """Whether so many bytes are free. An old reading is enough if it says yes."""

    def __init__(self, available_bytes: Callable[[], int]) -> None:
        self._available_bytes = available_bytes
        self._seen = 0
        self._until = 0.0  # in monotonic seconds: how long the last reading is used

    def has(self, count: int) -> bool:
        if count > self._seen or time.monotonic() > self._until:
            self._seen = self._available_bytes()
            self._until = time.monotonic() + _LOOK_SECONDS
        return count <= self._seen


class KernelKills:
    """Whether the kernel's OOM killer has killed anything on this machine since the last question."""

    def __init__(self) -> None:
        self._count = _kernel_kills()

    def since(self) -> bool:
        """True also if the kernel does not count its kills."""
        before, self._count = self._count, _kernel_kills()
        return self._count is None or before is None or self._count > before


def _kernel_kills() -> int | None:
    try:
        with Path("/proc/vmstat").open() as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
    except (OSError, StopIteration, ValueError):
        return None


def resident_bytes(pid: int) -> int:
    """The sum of the resident sets of a process and its descendants. Fast, but too large if they share pages."""
    return sum(_resident(member) for member in _tree(pid))


def held_bytes(pid: int) -> int:
    """What a process and its descendants use and the kernel cannot take back. Shared pages count in proportion."""
    return sum(_held(member) for member in _tree(pid))


def available_bytes() -> int:
    """What can be allocated now without anything being killed; a very large number if nothing says how much."""
    limits = [_machine_available()]
    for limit_file, use_file, cache_name in _GROUPS:
        try:
            limit = int(Path(limit_file).read_text())  # ValueError for "max"
            use = int(Path(use_file).read_text())
            statistics = Path(use_file).with_name("memory.stat").read_text()
        except (OSError, ValueError):
            continue
        cached = next((line.split()[1] for line in statistics.splitlines() if line.startswith(f"{cache_name} ")), "0")
        limits.append(max(0, limit - use + int(cached)))
    return min(limits)


def _machine_available() -> int:
    try:
        with Path("/proc/meminfo").open() as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return 1 << 62


def _tree(pid: int) -> Iterator[int]:
    found = [pid]
    while found:
        member = found.pop()
        yield member
        try:
            for task in os.listdir(f"/proc/{member}/task"):  # noqa: PTH208
                with open(f"/proc/{member}/task/{task}/children") as children:  # noqa: PTH123
                    found += map(int, children.read().split())
        except OSError:
            continue


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm") as statistics:  # noqa: PTH123
            return int(statistics.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


def _held(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup") as statistics:  # noqa: PTH123
            return sum(int(line.split()[1]) * 1024 for line in statistics if line.startswith(_HELD))
    except OSError:
        return _resident(pid)
