"""How fast the packed matrix products of a decoding step are on a CPU.

    python -m benchmarks.kernels [--threads N] [--rounds N]

It times each product of SmolLM2-135M's decoding step (q4f32_1, one token) against the schedule of TVM's own rules for
CPUs, in turn, on matrices that are no longer in the cache, and compares it with the speed at which the same number of
threads read memory. The ratio is of medians; the spread is that of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

import numpy as np

PRODUCTS = {"qkv": (960, 576), "o": (576, 576), "gate_up": (3072, 576), "down": (576, 1536), "head": (49152, 576)}
_CACHE_BYTES = 128 << 20  # more than any cache: so much is read between two uses of a matrix


def products(threads: int, rounds: int) -> None:
    import tvm
    from tvm.s_tir import dlight

    from mlcbuild.compiler.backends.cpu.kernels.gemv import schedule_gemv
    from tests.compiler.kernel_running import TARGET, compiled, packed_arrays, packed_product

    bound = _read_speed(threads)
    print(f"{threads} threads read memory at {bound:.1f} GB/s")
    for name, (n, k) in PRODUCTS.items():
        func = packed_product(n, k, 1)
        module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
        with TARGET:
            default = dlight.ApplyDefaultSchedule(dlight.cpu.GEMV())(module)["main"]
        made = schedule_gemv(func, TARGET)
        assert made is not None
        arrays = packed_arrays(n, k, 1, dtype="float32", bits=4, group=32)
        size = sum(array.nbytes for array in arrays)
        copies = max(2, _CACHE_BYTES // size)
        calls = [[*map(tvm.runtime.tensor, [*arrays, np.zeros((1, 1, n), np.float32)])] for _ in range(copies)]
        ours, theirs = compiled(made), compiled(default)
        few = calls[: max(2, copies // 16)]  # the other schedule is slower
        pairs = [(_seconds_a_call(ours, calls), _seconds_a_call(theirs, few)) for _ in range(rounds)]
        seconds = statistics.median(pair[0] for pair in pairs)
        speed = size / seconds / 1e9
        print(
            f"{name:8} {n:6} x {k:5}  {seconds * 1e6:8.1f} us  {seconds / n / k * 1e12:6.1f} ps/weight  "
            f"{speed:5.1f} GB/s ({speed / bound:4.0%} of memory)  TVM's rules: {_ratio(pairs)}",
            flush=True,
        )


def _seconds_a_call(kernel: Any, calls: list[list[Any]]) -> float:
    begin = time.perf_counter()
    for tensors in calls:
        kernel(*tensors)
    return (time.perf_counter() - begin) / len(calls)


def _read_speed(threads: int) -> float:
    """GB/s at which `threads` threads together sum what no cache holds."""
    from concurrent.futures import ThreadPoolExecutor

    parts = [np.ones(_CACHE_BYTES // 8, np.float64) for _ in range(threads)]
    best = float("inf")
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(5):
            begin = time.perf_counter()
            list(pool.map(np.sum, parts))
            best = min(best, time.perf_counter() - begin)
    return threads * _CACHE_BYTES / best / 1e9


def _ratio(pairs: list[tuple[float, float]]) -> str:
    """How many times as long the second takes."""
    ratios = [theirs / ours for ours, theirs in pairs]
    middle = statistics.median(theirs for _, theirs in pairs) / statistics.median(ours for ours, _ in pairs)
    return f"{middle:.1f} times as fast ({min(ratios):.1f} … {max(ratios):.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    os.environ["TVM_NUM_THREADS"] = str(given.threads)
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    products(given.threads, given.rounds)


if __name__ == "__main__":
    main()
