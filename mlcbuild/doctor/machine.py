"""This machine: Python, processors, memory, the C library, the kernel, the clock."""

from __future__ import annotations

import os
import platform
import re
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from mlcbuild.doctor.check import Check
from mlcbuild.doctor.children import run_python
from mlcbuild.doctor.finding import Figure, Finding, failed, ok, warning
from mlcbuild.doctor.sandbox import sandbox
from mlcbuild.figures import byte_count

CGROUP = Path("/sys/fs/cgroup")
OWN_GROUP = Path("/proc/self/cgroup")
MEMORY = Path("/proc/meminfo")

OLDEST_PYTHON = (3, 11)
LITTLE_MEMORY = 2_000_000_000  # enough to compile a model of seven billion weights on one processor
FEW_FILES = 1024
_NO_LIMIT = 1 << 62
_DRIFT_SECONDS = 0.2
_MOST_DRIFT = 0.02
_BEGIN = 1_764_201_600.0  # 2025-11-27: an earlier time is wrong
_NAMESPACES = """
import ctypes
raise SystemExit(0 if ctypes.CDLL(None, use_errno=True).unshare(0x10000000) == 0 else "no user namespace")
"""  # CLONE_NEWUSER of linux/sched.h


def machine_checks() -> Sequence[Check]:
    return (
        Check(name="python", examine=python),
        Check(name="processors", examine=processors),
        Check(name="memory", examine=memory),
        Check(name="C library", examine=c_library),
        Check(name="open files", examine=open_files),
        Check(name="user namespaces", examine=user_namespaces),
        Check(name="sandbox", examine=sandbox),
        Check(name="clock", examine=clock),
    )


def python() -> Finding:
    version = platform.python_version()
    measured = f"{sys.implementation.name} {version}, {sys.executable}"
    if sys.version_info < OLDEST_PYTHON:
        return failed(measured, "mlcbuild needs Python 3.11 or newer", version=version)
    if sys.implementation.name != "cpython":
        return failed(measured, "tvm is made for CPython", version=version)
    if sys.maxsize < 1 << 32:
        return failed(f"{measured}, 32-bit", "install a 64-bit Python", version=version)
    return ok(measured, version=version, executable=sys.executable)


def processors(*, groups: Sequence[Path] | None = None) -> Finding:
    there, allowed = os.cpu_count() or 1, len(os.sched_getaffinity(0))
    quotas = [quota for folder in groups or control_groups() if (quota := processor_quota(folder))]
    quota = min(quotas, default=0.0)
    usable = min([float(allowed), *quotas])
    figures: dict[str, Figure] = {"present": there, "allowed": allowed, "quota": quota}
    machine = platform.machine()
    if usable < 1:
        return warning(
            f"{usable:.1f} of {there}, {machine}: the control group allows less than one",
            "give this container at least one processor: every action needs one",
            **figures,
        )
    why = "the control group" if quota and quota < allowed else "affinity"
    return ok(f"{usable:g} of {there}{f', limited by {why}' if usable < there else ''}, {machine}", **figures)


def control_groups(*, mount: Path = CGROUP, own: Path = OWN_GROUP) -> list[Path]:
    """The folders whose limits apply to this process: of its own group (version 2), and of the groups above it.

    In a container that sees its own group as the root, and with version 1 only, that is the mount point.
    """
    found = re.search(r"^0::/(.*)$", _text(own), re.MULTILINE)
    folder = mount / found[1] if found else mount
    return [folder, *(parent for parent in folder.parents if parent == mount or mount in parent.parents)]


def processor_quota(cgroup: Path) -> float:
    """How many processors a control group of version 2 or 1 allows; 0 without a limit."""
    granted, period = [*_text(cgroup / "cpu.max").split(), "", ""][:2]
    if not granted:
        granted, period = _text(cgroup / "cpu/cpu.cfs_quota_us"), _text(cgroup / "cpu/cpu.cfs_period_us")
    if granted.isdigit() and period.isdigit() and int(period):
        return int(granted) / int(period)
    return 0.0


def memory(*, groups: Sequence[Path] | None = None, meminfo: Path = MEMORY) -> Finding:
    rows = re.findall(r"^(\w+):\s+(\d+) kB$", _text(meminfo), re.MULTILINE)
    known = {name: int(value) * 1024 for name, value in rows}
    total, free = known.get("MemTotal", 0), known.get("MemAvailable", 0)
    if not total:
        return warning(f"{meminfo} is empty", "builds cannot know how many actions fit into memory")
    limits = [memory_limit(folder) for folder in groups or control_groups()]
    limit = min((limit for limit, _ in limits if limit), default=0)
    is_limited = 0 < limit < total
    free = min([free, *(max(limit - used, 0) for limit, used in limits if limit)])
    of = f"{byte_count(limit)} allowed by the control group" if is_limited else byte_count(total)
    measured = f"{byte_count(free)} free of {of}"
    figures: dict[str, Figure] = {"total_bytes": total, "limit_bytes": limit, "available_bytes": free}
    if free < LITTLE_MEMORY:
        advice = "close other programs or give this container more: large models need a few GB for each action"
        return warning(measured, advice, "until then, build with --jobs 1", **figures)
    return ok(measured, **figures)


def memory_limit(cgroup: Path) -> tuple[int, int]:
    """A control group's limit in bytes (0 without one), and how much of it is in use and cannot be reclaimed."""
    limit, used, name = _text(cgroup / "memory.max"), _text(cgroup / "memory.current"), "inactive_file"
    statistics = _text(cgroup / "memory.stat")
    if not limit:
        folder = cgroup / "memory"
        limit, used = _text(folder / "memory.limit_in_bytes"), _text(folder / "memory.usage_in_bytes")
        statistics, name = _text(folder / "memory.stat"), "total_inactive_file"
    if not limit.isdigit() or int(limit) >= _NO_LIMIT:
        return 0, 0
    given_back = re.search(rf"^{name} (\d+)$", statistics, re.MULTILINE)
    return int(limit), max(int(used or 0) - (int(given_back[1]) if given_back else 0), 0)


def c_library() -> Finding:
    name, version = platform.libc_ver()
    measured = f"{name or 'unknown'} {version}".strip() + f", Linux {platform.release()}"
    if name != "glibc":
        return failed(measured, "tvm's wheels need glibc: use a Linux distribution with glibc, not one with musl")
    if tuple(int(part) for part in version.split(".")[:2]) < (2, 27):
        return failed(measured, "tvm's wheels need glibc 2.27 or newer: upgrade the distribution", version=version)
    return ok(measured, version=version)


def open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    figures = {"soft": soft, "hard": hard}
    if soft == resource.RLIM_INFINITY:
        return ok("no limit", **figures)
    if soft < FEW_FILES:
        return warning(f"at most {soft:,} at a time", f"ulimit -n {min(max(hard, soft), 65536)}", **figures)
    return ok(f"at most {soft:,} at a time", **figures)


def user_namespaces() -> Finding:
    """Tested in a separate process. Nothing fails without user namespaces."""
    child = run_python(_NAMESPACES, seconds=10)
    allowed = not child.ended
    return ok("allowed" if allowed else "not allowed; builds do not need them", allowed=allowed)


def clock() -> Finding:
    """Whether the wall clock is plausible, and runs as fast as the monotonic clock."""
    wall, steady = time.time(), time.monotonic()
    time.sleep(_DRIFT_SECONDS)
    passed = time.monotonic() - steady
    drift = (time.time() - wall) - passed
    figures: dict[str, Figure] = {"wall_seconds": wall, "drift_seconds": drift}
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(wall))
    if wall < _BEGIN:
        advice = "set the clock: certificates and signed requests depend on it"
        return failed(f"{shown}, which is in the past", advice, **figures)
    if abs(drift) > _MOST_DRIFT:
        return warning(
            f"{shown}; it jumped by {drift:+.3f} s during the check",
            "something sets this clock in steps: use one service only (chrony or systemd-timesyncd)",
            **figures,
        )
    return ok(shown, **figures)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
