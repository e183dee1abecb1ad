"""How many threads a library computes with, and where they may run.

TVM's pool belongs to the thread that first runs a kernel. It reads its settings from the environment at that moment
and keeps them: no later call can make it larger, and its own default on x86 is half the processors. So the settings
are put into the environment beforehand.
"""

from __future__ import annotations

import os
from pathlib import Path

_PROCESSORS = Path("/sys/devices/system/cpu")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def set_threads(count: int = 0) -> int:
    """Make pools that are created from now on have `count` threads, the calling one included; 0: `available_cores`.

    Threads are not tied to processors. TVM would tie each to one of its choice, where it waits while another process
    runs: on a busy machine decoding took half as long again so. TVM makes no more threads than there are processors.
    Returns the number.
    """
    if count < 0:
        raise ValueError(f"not a number of threads: {count}")
    number = count or available_cores()
    os.environ["TVM_NUM_THREADS"] = str(number)
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    return number


def available_cores(*, processors: Path = _PROCESSORS, quota: Path = _QUOTA) -> int:
    """Cores that this process may use: hardware threads of one core count once, a container's CPU quota limits them."""
    try:
        allowed = os.sched_getaffinity(0)
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1
    cores = {_core(processor, processors) for processor in allowed}
    return max(1, min(len(cores), _within_quota(quota)))


def _core(processor: int, processors: Path) -> str:
    """What tells the core of a processor: the processors that share it."""
    try:
        return (processors / f"cpu{processor}" / "topology" / "thread_siblings_list").read_text().strip()
    except OSError:
        return str(processor)


def _within_quota(quota: Path) -> int:
    """Whole processors' worth of time that the control group grants; a very large number where it has no limit."""
    try:
        granted, period = quota.read_text().split()
        return -(-int(granted) // int(period))
    except (OSError, ValueError):
        return 1 << 16
