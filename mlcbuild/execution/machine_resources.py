"""What a machine has that actions request, and whether it is enough for one."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.engine.action import MORE_CPUS_THAN_ANY, ExecutionRequirements
from mlcbuild.figures import gibibytes

_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76  # CUdevice_attribute, cuda.h


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineResources:
    """`labels` describe the machine, for instance ("arch", "sm_90"), sorted. `memory_bytes` 0: not known."""

    cpus: int
    memory_bytes: int = 0
    gpus: float = 0.0
    labels: tuple[tuple[str, str], ...] = ()


def this_machine() -> MachineResources:
    """What this process may use: its CPU affinity, its control group's memory, the driver's GPUs."""
    architectures = _gpu_architectures()
    return MachineResources(
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=_memory_bytes(),
        gpus=len(architectures),
        labels=(("arch", architectures[0]),) if len(set(architectures)) == 1 else (),
    )


def unmet_requirement(machine: MachineResources, requirements: ExecutionRequirements) -> str:
    """Why the machine can never run what has these requirements; "" if it can. What asks for more processors than
    any machine has gets all of one."""
    lacking: list[str] = []
    if machine.cpus < requirements.cpus < MORE_CPUS_THAN_ANY:
        lacking.append(f"{requirements.cpus} cpus (it has {machine.cpus})")
    if machine.memory_bytes and requirements.memory_bytes > machine.memory_bytes:
        lacking.append(f"{gibibytes(requirements.memory_bytes)} of memory (it has {gibibytes(machine.memory_bytes)})")
    if requirements.gpus > machine.gpus:
        lacking.append(f"{requirements.gpus:g} GPUs (it has {machine.gpus:g})")
    has = dict(machine.labels)
    for name, value in requirements.labels:
        if has.get(name) != value:
            lacking.append(f"the label {name}={value} (it has {f'{name}={has[name]}' if name in has else 'none'})")
    return f"needs {', '.join(lacking)}" if lacking else ""


def _memory_bytes() -> int:
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in _CGROUP_LIMITS:
        try:
            limits.append(int(file.read_text()))
        except (OSError, ValueError):  # absent, or "max"
            continue
    return min(limits)


def _gpu_architectures() -> list[str]:
    """`sm_90` and the like, one for each GPU that the driver shows to this process."""
    if not any(Path("/dev").glob("nvidia[0-9]*")):
        return []
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return []
    return list(_architectures(driver, range(count.value)))


def _architectures(driver: ctypes.CDLL, ordinals: Iterable[int]) -> Iterable[str]:
    for ordinal in ordinals:
        values = []
        for attribute in (_CAPABILITY_MAJOR, _CAPABILITY_MINOR):
            value = ctypes.c_int()
            driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, ordinal)
            values.append(value.value)
        yield f"sm_{values[0]}{values[1]}"
