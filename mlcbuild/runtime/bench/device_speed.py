"""How fast a device reads and writes memory, and how fast it can multiply: what times are held against."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from mlcbuild.runtime.devices import CPU
from mlcbuild.runtime.machine import Machine
from mlcbuild.runtime.threads import available_cores

_BYTES = 256 << 20
_ROUNDS = 5
# Operations a second on halves with sums in float32, without sparsity: NVIDIA's data sheets.
_TENSOR_CORES = {r"H[12]00": 989e12, r"A100\b": 312e12, r"L40S": 362e12, r"L4\b": 121e12, r"B200": 2250e12}


def copied_bytes_a_second(machine: Machine, kind: str, *, threads: int = 0) -> float:
    """Bytes that are read or written in a second while memory is copied: the best of some rounds."""
    return 2 * _BYTES / min(_copy_on_cpu(threads) if kind == CPU else _copy_on(machine))


def operations_a_second(name: str) -> float:
    """Of a device by its name; 0 where it is not known."""
    return next((speed for pattern, speed in _TENSOR_CORES.items() if re.search(pattern, name)), 0.0)


def _copy_on_cpu(threads: int) -> list[float]:
    count = threads or available_cores()
    source, to = np.ones(_BYTES, np.uint8), np.zeros(_BYTES, np.uint8)
    parts = list(zip(np.array_split(source, count), np.array_split(to, count), strict=True))
    seconds = []
    with ThreadPoolExecutor(count) as pool:
        for _ in range(_ROUNDS):
            began = time.perf_counter()
            list(pool.map(lambda part: np.copyto(part[1], part[0]), parts))
            seconds.append(time.perf_counter() - began)
    return seconds


def _copy_on(machine: Machine) -> list[float]:
    source, to = (machine.tensor(np.zeros(_BYTES, np.uint8)) for _ in range(2))
    seconds: list[float] = []
    for _ in range(_ROUNDS + 1):
        machine.device.sync()
        began = time.perf_counter()
        _copy(source, to)
        machine.device.sync()
        seconds.append(time.perf_counter() - began)
    return seconds[1:]


def _copy(source: Any, to: Any) -> None:
    source.copyto(to)
