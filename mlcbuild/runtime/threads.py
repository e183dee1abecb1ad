"""How many threads a library computes with, and where they may run.

TVM's pool belongs to the thread that first runs a kernel. It reads its settings from the environment at that moment
and keeps them: no later call can make it larger, and its own default on x86 is half the processors. So the settings
are put into the environment beforehand.

Every loop of a kernel waits for the slowest thread. Where more threads want to run than there are processors, one of
them waits for its turn in each loop, which takes milliseconds, and those that have nothing to do spin all the while. So
there are no more threads than processors that are free, and on request for more they sleep while they wait.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_PROCESSORS = Path("/sys/devices/system/cpu")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")
_LOAD = Path("/proc/loadavg")
_SAMPLES, _SAMPLE_SECONDS = 5, 0.002  # what runs at one moment says little


def set_threads(count: int = 0, *, load: Path = _LOAD) -> int:
    """Make pools that are created from now on have `count` threads, the calling one included; 0: `free_cores`.

    Threads are not tied to processors. TVM would tie each to one of its choice, where it waits while another process
    runs: on a busy machine decoding took half as long again so. TVM makes no more threads than there are processors.
    Returns the number.
    """
    if count < 0:
        raise ValueError(f"not a number of threads: {count}")
    free = free_cores(load=load)
    number = count or free
    os.environ["TVM_NUM_THREADS"] = str(number)
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    if number > free:
        os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "0")
    return number


def available_cores(*, processors: Path | None = None, quota: Path | None = None) -> int:
    """Cores that this process may use: hardware threads of one core count once, a container's CPU quota limits them."""
    try:
        allowed = os.sched_getaffinity(0)
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1
    cores = {_core(processor, processors or _PROCESSORS) for processor in allowed}
    return max(1, min(len(cores), _within_quota(quota or _QUOTA)))


def free_cores(*, load: Path = _LOAD) -> int:
    """Of `available_cores` as many as there are processors that no other process keeps busy just now; at least one.

    Of what runs on the whole machine a process that may use a part of the processors counts that part.
    """
    cores, processors = available_cores(), os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else processors
    running = []
    for _ in range(_SAMPLES):
        try:
            running.append(int(load.read_text().split()[3].partition("/")[0]) - 1)  # without this thread
        except (OSError, ValueError, IndexError):
            return cores
        time.sleep(_SAMPLE_SECONDS)
    return max(1, min(cores, allowed - round(min(running) * allowed / processors)))


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
