"""The time of candidates beside that of the kernel with its default shape, in this process.

Both are called in turn, so that what slows the machine down slows both. A round calls one of them so often that a
clock can tell, and waits for the device; the median of the rounds counts. Where a device can play recorded calls, it
does: its host is slower at asking for a short kernel than the device at running it.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mlcbuild.runtime.devices import RECORDED, device_of, kind_of
from mlcbuild.runtime.machine import import_tvm
from mlcbuild.runtime.measuring.arguments import ArgumentSets, equal_bytes, largest_difference, set_count
from mlcbuild.runtime.measuring.candidate_list import Argument
from mlcbuild.runtime.measuring.device import cache_bytes, measuring_device
from mlcbuild.runtime.measuring.measurement import MEASURED, WRONG, Measurement
from mlcbuild.runtime.threads import available_cores, set_threads

# Sums of the same numbers in another order, as a share of the largest.
_ROUNDING = {"float32": 2e-4, "float16": 6e-3, "bfloat16": 4e-2}
_ROUND_SECONDS = 0.003
_ROUNDS, _LEAST_ROUNDS = 21, 5
_MOST_SECONDS = 2.0  # of all rounds of one measurement
_MOST_CALLS = 1024  # of a round

Call = Callable[..., object]


class CandidateTimer:
    """Times candidates of one kernel. `untuned` is a library with its default shape; all have the function `kernel`.

    Raises, as its methods do, what loading and calling them raises. No candidate is to blame for what is raised before
    one is timed, when the timer is made or prepared.
    """

    def __init__(self, untuned: Path, *, kernel: str, arguments: Sequence[Argument], threads: int = 0) -> None:
        self._tvm = import_tvm()
        set_threads(threads or available_cores())
        self._kernel = kernel
        self._kind = kind_of(untuned)
        self._device = device_of(self._kind, self._tvm)
        self._described = measuring_device(self._kind, threads=threads)
        self._untuned = self._load(untuned)
        self._sets = ArgumentSets(arguments, lambda array: self._tvm.runtime.tensor(array, self._device))
        self._untuned_results: dict[tuple[tuple[str, int], ...], _Results] = {}
        self._allowed = max((_ROUNDING.get(argument.dtype, 0.0) for argument in arguments), default=0.0)

    def prepare(self, sizes: Iterable[Mapping[str, int]]) -> None:
        """Makes all tensors of these sizes, and calls the kernel with its default shape."""
        for each in sizes:
            self._expected(each)
            self._all_tensors(each)

    def time(self, candidate: Path, sizes: Mapping[str, int]) -> Measurement:
        """Calls a candidate with tensors of these sizes."""
        functions = (self._load(candidate), self._untuned)
        expected = self._expected(sizes)
        results = self._results(functions[0], sizes, expected.changed)
        difference = largest_difference(results, expected.arrays)
        if not difference <= self._allowed:
            message = f"its results are {difference:.3g} of the largest from those of the default shape"
            return Measurement(outcome=WRONG, device=self._described, sizes=sizes, message=message)
        with self._rounds(functions, sizes, expected) as made:
            ours, theirs = made.rounds
            began = time.perf_counter()
            for number in range(_ROUNDS):
                if number >= _LEAST_ROUNDS and time.perf_counter() - began > _MOST_SECONDS:
                    break
                ours.run()
                theirs.run()
        median = statistics.median(ours.seconds)
        low, _, high = statistics.quantiles(ours.seconds, n=4)
        return Measurement(
            outcome=MEASURED,
            device=self._described,
            sizes=sizes,
            seconds=median,
            spread=(high - low) / median,
            untuned_seconds=statistics.median(theirs.seconds),
            calls=len(ours.seconds) * ours.calls,
            message=made.message,
        )

    def _load(self, library: Path) -> Call:
        function: Call = self._tvm.runtime.load_module(str(library))[self._kernel]
        return function

    def _expected(self, sizes: Mapping[str, int]) -> _Results:
        """What the default shape makes of the first set of tensors, which are new."""
        key = tuple(sorted(sizes.items()))
        if key not in self._untuned_results:
            given = self._sets.arrays(sizes)
            arrays = self._results(self._untuned, sizes, self._sets.tensor_places)
            changed = [place for place, array in enumerate(arrays) if not equal_bytes(array, given[place])]
            self._untuned_results[key] = _Results(arrays=arrays, changed=changed)
        return self._untuned_results[key]

    def _results(self, function: Call, sizes: Mapping[str, int], changed: Iterable[int]) -> list[Any]:
        """What a call makes of the first set of tensors. Those that calls change are as they were at first."""
        tensors = self._renewed(sizes, changed)
        function(*tensors)
        self._device.sync()
        found = list(self._sets.arrays(sizes))
        for place in self._sets.tensor_places:
            found[place] = tensors[place].numpy()
        return found

    def _all_tensors(self, sizes: Mapping[str, int]) -> list[list[Any]]:
        """So many sets of tensors that caches are cold."""
        count = set_count(self._sets.arrays(sizes), cache_bytes(self._kind))
        return [self._sets.tensors(sizes, number) for number in range(count)]

    def _renewed(self, sizes: Mapping[str, int], changed: Iterable[int]) -> list[Any]:
        tensors, arrays = self._sets.tensors(sizes, 0), self._sets.arrays(sizes)
        for place in changed:
            tensors[place].copyfrom(arrays[place])
        return tensors

    @contextlib.contextmanager
    def _rounds(self, functions: Sequence[Call], sizes: Mapping[str, int], expected: _Results) -> Iterator[_Made]:
        """Rounds of calls of each function: of recorded ones, if those of all can be and compute the same."""
        sets = self._all_tensors(sizes)
        count = len(sets)

        def call(function: Call, times: int) -> None:
            for number in range(times):
                function(*sets[number % count])

        def call_and_wait(function: Call, times: int) -> None:
            call(function, times)
            self._device.sync()

        asked = []
        for function in functions:
            call_and_wait(function, 1)  # the first call is slower than others
            times = _calls_of_a_round(partial(call_and_wait, function))
            asked.append(_Rounds(partial(call_and_wait, function, times), times))
        record = RECORDED.get(self._kind)
        if record is None:
            yield _Made(rounds=asked)
            return
        with contextlib.ExitStack() as stack:
            played = []
            message = ""
            try:
                for function, rounds in zip(functions, asked, strict=True):
                    times = max(rounds.calls, count)
                    recorded = stack.enter_context(record(self._device, partial(call, function, times)))
                    self._check(recorded.play, sizes, expected)
                    played.append(_Rounds(recorded.play, times))
            except Exception as error:  # whatever drivers and kernels raise
                played, message = asked, f"calls are not recorded: {error}"
            yield _Made(rounds=played, message=message)

    def _check(self, play: Call, sizes: Mapping[str, int], expected: _Results) -> None:
        """Raises RuntimeError where recorded calls do not compute what calls do."""
        tensors = self._renewed(sizes, expected.changed)
        self._device.sync()
        play()
        found = [tensors[place].numpy() for place in expected.changed]
        wanted = [expected.arrays[place] for place in expected.changed]
        if not (difference := largest_difference(found, wanted)) <= self._allowed:
            raise RuntimeError(f"played, they are {difference:.3g} of the largest from those that were asked for")


def _calls_of_a_round(make: Callable[[int], object]) -> int:
    """So many calls that a round takes long enough: of more and more calls, the first that do."""
    times = 1
    while times < _MOST_CALLS:
        began = time.perf_counter()
        make(times)
        if time.perf_counter() - began > _ROUND_SECONDS / 2:
            break
        times *= 2
    return times


@dataclass(frozen=True, kw_only=True)
class _Made:
    """Rounds of each function; `message` says why they are no recorded ones, where such could have been."""

    rounds: Sequence[_Rounds]
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class _Results:
    """All tensors after a call, and the places of those that it changed."""

    arrays: Sequence[Any]
    changed: Sequence[int]


class _Rounds:
    """Rounds, each of which makes `calls` calls and waits for them."""

    def __init__(self, make: Callable[[], object], calls: int) -> None:
        self._make = make
        self.calls = calls
        self.seconds: list[float] = []  # a call, by round

    def run(self) -> None:
        began = time.perf_counter()
        self._make()
        self.seconds.append(max((time.perf_counter() - began) / self.calls, 1e-9))
