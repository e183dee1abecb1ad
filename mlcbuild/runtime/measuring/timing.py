"""The time of a candidate beside that of the kernel with its default shape, in this process.

Both are called in turn, so that what slows the machine down slows both. A round calls one of them so often that a
clock can tell, and waits for the device; the median of the rounds counts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlcbuild.runtime.devices import device_of, kind_of
from mlcbuild.runtime.machine import import_tvm
from mlcbuild.runtime.measuring.arguments import largest_difference, random_arrays, set_count
from mlcbuild.runtime.measuring.candidate_list import Argument
from mlcbuild.runtime.measuring.device import cache_bytes, measuring_device
from mlcbuild.runtime.measuring.measurement import MEASURED, WRONG, Measurement
from mlcbuild.runtime.threads import set_threads

# Sums of the same numbers in another order, as a share of the largest.
_ROUNDING = {"float32": 2e-4, "float16": 6e-3, "bfloat16": 4e-2}
_ROUND_SECONDS = 0.003
_ROUNDS, _LEAST_ROUNDS = 21, 5
_MOST_SECONDS = 2.0  # of all rounds of one measurement


def time_candidate(
    candidate: Path,
    untuned: Path,
    *,
    kernel: str,
    arguments: Sequence[Argument],
    sizes: Mapping[str, int],
    threads: int = 0,
) -> Measurement:
    """Both are libraries with the function `kernel`. Raises what loading and calling them raises."""
    tvm = import_tvm()
    set_threads(threads)
    kind = kind_of(untuned)
    device = device_of(kind, tvm)
    described = measuring_device(kind, threads=threads)
    functions = [tvm.runtime.load_module(str(path))[kernel] for path in (candidate, untuned)]
    arrays = random_arrays(arguments, sizes)

    def tensors() -> list[Any]:
        return [tvm.runtime.tensor(array, device) for array in arrays]

    results = []
    for function in functions:
        given = tensors()
        function(*given)
        device.sync()
        results.append([tensor.numpy() for tensor in given])
    difference = largest_difference(*results)
    allowed = max((_ROUNDING.get(argument.dtype, 0.0) for argument in arguments), default=0.0)
    if not difference <= allowed:
        message = f"its results are {difference:.3g} of the largest from those of the default shape"
        return Measurement(outcome=WRONG, device=described, sizes=sizes, message=message)
    sets = [tensors() for _ in range(set_count(arrays, cache_bytes(kind)))]
    rounds = [_Rounds(function, sets, device.sync) for function in functions]
    began = time.perf_counter()
    for number in range(_ROUNDS):
        if number >= _LEAST_ROUNDS and time.perf_counter() - began > _MOST_SECONDS:
            break
        for each in rounds:
            each.run()
    ours, theirs = (each.seconds for each in rounds)
    median = statistics.median(ours)
    low, _, high = statistics.quantiles(ours, n=4)
    return Measurement(
        outcome=MEASURED,
        device=described,
        sizes=sizes,
        seconds=median,
        spread=(high - low) / median,
        untuned_seconds=statistics.median(theirs),
        calls=len(ours) * rounds[0].calls,
    )


class _Rounds:
    """Rounds of calls of one function, with one set of arguments after the other."""

    def __init__(
        self, function: Callable[..., object], sets: Sequence[Sequence[Any]], wait: Callable[[], object]
    ) -> None:
        self._function = function
        self._sets = sets
        self._wait = wait
        self._next = 0
        self.seconds: list[float] = []
        self.calls = 1
        self._timed()  # the first call is slower than others
        once = self._timed()
        self.calls = max(1, min(1000, int(_ROUND_SECONDS / max(once, 1e-7))))

    def run(self) -> None:
        self.seconds.append(self._timed())

    def _timed(self) -> float:
        """Seconds a call."""
        self._wait()
        began = time.perf_counter()
        for _ in range(self.calls):
            self._function(*self._sets[self._next])
            self._next = (self._next + 1) % len(self._sets)
        self._wait()
        return max((time.perf_counter() - began) / self.calls, 1e-9)
