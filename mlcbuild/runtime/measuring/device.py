"""What a kernel is measured on: the device's name, its driver and clocks, and how much its last cache holds."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path

from mlcbuild.runtime.devices import CPU
from mlcbuild.runtime.measuring.measurement import MeasuringDevice
from mlcbuild.runtime.measuring.processor import processor_name
from mlcbuild.runtime.threads import available_cores

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNKNOWN_CACHE_BYTES = 64 << 20
# CUdevice_attribute, cuda.h.
_CLOCK_RATE, _MEMORY_CLOCK_RATE, _L2_CACHE_SIZE = 13, 36, 38


def measuring_device(kind: str, *, threads: int = 0) -> MeasuringDevice:
    """The first device of a kind, as libraries for it use it; for CPUs with so many threads, 0 for one a core."""
    if kind == CPU:
        highest = _text(Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"))
        clocks = f"{int(highest) // 1000} MHz" if highest.isdigit() else ""
        return MeasuringDevice(name=processor_name(), clocks=clocks, threads=threads or available_cores())
    driver = _driver()
    if driver is None:
        return MeasuringDevice(name=kind)
    version = ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(version))
    name = ctypes.create_string_buffer(256)
    driver.cuDeviceGetName(name, len(name), 0)
    clock, memory = _attribute(driver, _CLOCK_RATE), _attribute(driver, _MEMORY_CLOCK_RATE)
    return MeasuringDevice(
        name=name.value.decode(errors="replace"),
        driver=f"CUDA {version.value // 1000}.{version.value % 1000 // 10}",
        clocks=f"{clock // 1000} MHz, memory {memory // 1000} MHz",
    )


def cache_bytes(kind: str) -> int:
    """How much the last cache of the device holds; a guess where it does not say."""
    if kind != CPU:
        driver = _driver()
        return (_attribute(driver, _L2_CACHE_SIZE) if driver is not None else 0) or _UNKNOWN_CACHE_BYTES
    sizes = [_text(path / "size") for path in sorted(_CACHES.glob("index*"))]
    units = {"K": 1 << 10, "M": 1 << 20}
    return max((int(size[:-1]) * units[size[-1]] for size in sizes if re.fullmatch(r"\d+[KM]", size)), default=0) or (
        _UNKNOWN_CACHE_BYTES
    )


def _driver() -> ctypes.CDLL | None:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return None if driver.cuInit(0) else driver


def _attribute(driver: ctypes.CDLL, number: int) -> int:
    value = ctypes.c_int()
    driver.cuDeviceGetAttribute(ctypes.byref(value), number, 0)
    return value.value


def _text(path: str | os.PathLike[str]) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
