"""What a processor can do at most, by kernels that do nothing else: read memory, and multiply and add float32.

    python -m benchmarks.processor_limits [--threads N] [--level x86-64-v4] [--megabytes N]

Threads are those of TVM's pool, which share the work as the kernels of a library do. Each figure is the best of many
short rounds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

LEVELS = {"x86-64-v4": 16, "x86-64-v3": 8}  # floats of a register
_READ_AT_ONCE = 8  # registers
_WORDS_AHEAD = 1024
_CHAINS = 12  # sums that do not wait for each other
_PIECES = 64
_STEPS = 20_000


class Limits:
    """Kernels of a level that are compiled once. Threads have to be set before any kernel runs."""

    def __init__(self, level: str, size: int) -> None:
        """`size` bytes are read."""
        import tvm

        target = tvm.target.Target({"kind": "llvm", "mcpu": level, "mtriple": "x86_64-linux-gnu"})
        lanes = LEVELS[level]
        at_once = lanes * _READ_AT_ONCE
        words = -(-size // (4 * _PIECES * at_once)) * at_once
        self._read = _compiled(_reading(words, lanes), target)
        self._multiply = _compiled(_multiplying(lanes), target)
        self._memory = tvm.runtime.tensor(np.ones((_PIECES, words), np.uint32))
        self._size = self._memory.numpy().nbytes
        self._sums = tvm.runtime.tensor(np.zeros((_PIECES, lanes), np.uint32))
        self._factors = tvm.runtime.tensor(np.full((2, lanes), 1e-3, np.float32))
        self._results = tvm.runtime.tensor(np.zeros((_PIECES, lanes), np.float32))
        self._operations = 2 * _PIECES * _STEPS * _CHAINS * lanes

    def read(self, rounds: int = 5) -> float:
        """Bytes a second."""
        return self._size / _best(lambda: self._read(self._memory, self._sums), rounds)

    def multiply(self, rounds: int = 20) -> float:
        """Operations a second; a multiplication and an addition are two."""
        return self._operations / _best(lambda: self._multiply(self._factors, self._results), rounds)


def _best(call: Callable[[], object], rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        began = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - began)
    return best


def _compiled(func: Any, target: Any) -> Any:
    import tvm

    module = tvm.IRModule({"kernel": func.with_attr("global_symbol", "kernel")})
    return tvm.tirx.build(module, target=target)["kernel"]


def _reading(words: int, lanes: int) -> Any:
    """The sums of so many words of each piece, some registers at a time."""
    import tvm.tirx.script.builder as T  # noqa: N812
    from tvm import te

    from mlcbuild.compiler.kernels import building

    memory = te.placeholder((_PIECES, words), "uint32", name="memory")
    func = te.create_prim_func([memory, te.compute((_PIECES, lanes), lambda i, j: memory[i, j], name="sums")])
    given, found = func.params

    def body() -> None:
        with building.loop(_PIECES, parallel=True) as piece:
            whole = building.lanes(0, lanes)
            totals = [T.alloc_buffer((lanes,), "uint32") for _ in range(_READ_AT_ONCE)]
            for total in totals:
                building.store(total, building.splat(T.uint32(0), lanes), whole)
            with building.loop(words // (_READ_AT_ONCE * lanes)) as step:
                for number, total in enumerate(totals):
                    place = (step * _READ_AT_ONCE + number) * lanes
                    building.prefetch(given[piece, place + _WORDS_AHEAD])
                    building.store(total, total[whole] + given[piece, building.lanes(place, lanes)], whole)
            result = totals[0][whole]
            for total in totals[1:]:
                result = result + total[whole]
            building.store(found, result, piece, whole)

    return building.replace_body(func, building.statement(body))


def _multiplying(lanes: int) -> Any:
    """Sums that are multiplied and added to in registers."""
    import tvm.tirx.script.builder as T  # noqa: N812
    from tvm import te

    from mlcbuild.compiler.kernels import building

    factors = te.placeholder((2, lanes), "float32", name="factors")
    func = te.create_prim_func([factors, te.compute((_PIECES, lanes), lambda _, j: factors[0, j], name="results")])
    given, found = func.params

    def body() -> None:
        with building.loop(_PIECES, parallel=True) as piece:
            whole = building.lanes(0, lanes)
            factor, other = (T.bind(given[row, whole]) for row in range(2))
            totals = [T.alloc_buffer((lanes,), "float32") for _ in range(_CHAINS)]
            for number, total in enumerate(totals):
                building.store(total, building.splat(T.float32(number), lanes), whole)
            with building.loop(_STEPS):
                for total in totals:
                    building.store(total, total[whole] * factor + other, whole)
            result = totals[0][whole]
            for total in totals[1:]:
                result = result + total[whole]
            building.store(found, result, piece, whole)

    return building.replace_body(func, building.statement(body))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--level", choices=tuple(LEVELS), default="x86-64-v3")
    parser.add_argument("--megabytes", type=int, default=512)
    given = parser.parse_args()
    from mlcbuild.runtime.threads import set_threads

    set_threads(given.threads)
    limits = Limits(given.level, given.megabytes << 20)
    read, multiplied = limits.read() / 1e9, limits.multiply() / 1e9
    print(f"{given.threads} threads read {read:.1f} GB/s, and do {multiplied:.0f} GFLOP/s with {given.level}")


if __name__ == "__main__":
    main()
