"""Where a pass's time goes: calls of one kernel in one, with what memory and arithmetic it asks of the device."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mlcbuild.compiler.kernel_description import KernelDescription, short_name
from mlcbuild.runtime.bench.call_clock import REPLAY
from mlcbuild.runtime.bench.workload import CallTime

OTHER = "the virtual machine: shapes, memory, views"
_KERNEL = "kernel_"
# Functions of TVM's runtime that start kernels themselves.
_RUNTIME = ("attention", "rnn_state")
_RUNTIME_PREFIX = "vm.builtin."


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTime:
    """Of one pass: `bytes` and `operations` are of all calls together, 0 where they are not known."""

    name: str
    text: str
    calls: int
    seconds: float
    bytes: int
    operations: int


def kernel_times(calls: Iterable[CallTime], descriptions: Mapping[str, KernelDescription]) -> list[KernelTime]:
    """The kernels, the one that took longest first, and all of the virtual machine's own calls as one; without replays
    of a CUDA graph, whose kernels are among them."""
    groups: dict[str, list[CallTime]] = {}
    for call in calls:
        if call.name == REPLAY:
            continue
        groups.setdefault(_group(call.name), []).append(call)
    found = [
        KernelTime(
            name=name,
            text=_text(name, descriptions.get(name)),
            calls=sum(call.calls for call in group),
            seconds=sum(call.seconds for call in group),
            bytes=sum(call.calls * call.bytes for call in group),
            operations=sum(call.calls * _operations(call.shapes, descriptions.get(name)) for call in group),
        )
        for name, group in groups.items()
    ]
    return sorted(found, key=lambda each: -each.seconds)


def replay_seconds(calls: Iterable[CallTime]) -> float:
    """Of all replays of CUDA graphs together; 0 without any."""
    return sum(call.seconds for call in calls if call.name == REPLAY)


def _group(name: str) -> str:
    if name.startswith(_KERNEL) or any(part in name for part in _RUNTIME) or not name.startswith(_RUNTIME_PREFIX):
        return name
    return OTHER


def _text(name: str, description: KernelDescription | None) -> str:
    if description is not None:
        return description.text(name)
    return f"kernel ({short_name(name)})" if name.startswith(_KERNEL) else name.removeprefix(_RUNTIME_PREFIX)


def _operations(shapes: Sequence[tuple[int, ...]], description: KernelDescription | None) -> int:
    """Two for each number of the matrix and each vector that a product multiplies it by."""
    if description is None or len(description.matrix) != 2 or not all(type(size) is int for size in description.matrix):
        return 0
    rows, columns = (int(size) for size in description.matrix)
    results = [shape for shape in shapes if shape and shape[-1] == rows]
    return 2 * math.prod(results[-1]) * columns if results else 0
