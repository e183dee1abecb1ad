"""What each function takes that a library calls: TVM's virtual machine tells of every call, before and after it.

The device is waited for around each, so nothing overlaps, and a launch counts with its kernel: the times together are
more than a pass takes undisturbed, most of all on a GPU and for small kernels.

A CUDA graph is replayed as one call, in which no kernel is told of. So what was captured is called once more before
each replay, kernel by kernel: that writes the same numbers to the same places as the replay after it.
"""

from __future__ import annotations

import math
import time
from typing import Any

from mlcbuild.runtime.bench.workload import CallTime
from mlcbuild.runtime.machine import Machine

REPLAY = "vm.builtin.cuda_graph.run_or_capture"
_GOES_ON = 0  # TVM's VMInstrumentReturnKind::kNoOp

Shapes = tuple[tuple[int, ...], ...]


class CallClock:
    """While it is entered, the calls of the machine's library are timed."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._began: list[float] = []
        self._times: dict[tuple[str, Shapes], tuple[int, float, int]] = {}

    def __enter__(self) -> CallClock:
        self._machine.tell_of_calls(self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        self._machine.tell_of_calls(None)

    def times(self) -> tuple[CallTime, ...]:
        """Those of all calls so far, in the order of the first of each."""
        return tuple(
            CallTime(name=name, shapes=shapes, calls=calls, seconds=seconds, bytes=size)
            for (name, shapes), (calls, seconds, size) in self._times.items()
        )

    def _hear(self, name: str, before: bool, arguments: tuple[Any, ...]) -> int:
        if before and name == REPLAY:
            machine, captured, given, *_ = arguments
            self._machine.function("vm.builtin.invoke_closure")(machine, captured, *given)
        self._machine.device.sync()
        if before:
            self._began.append(time.perf_counter())
            return _GOES_ON
        took = time.perf_counter() - self._began.pop()
        tensors = [each for each in arguments if hasattr(each, "shape") and hasattr(each, "dtype")]
        shapes = tuple(tuple(map(int, each.shape)) for each in tensors)
        size = sum(map(_bytes_of, tensors)) if len(tensors) == len(arguments) else 0
        calls, seconds, _ = self._times.get((name, shapes), (0, 0.0, 0))
        self._times[name, shapes] = calls + 1, seconds + took, size
        return _GOES_ON


def _bytes_of(tensor: Any) -> int:
    bits = int(getattr(tensor.dtype, "bits", 0) or 8 * tensor.dtype.itemsize)
    return math.prod(map(int, tensor.shape)) * bits // 8
