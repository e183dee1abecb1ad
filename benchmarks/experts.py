"""How fast the products of a mixture of experts are on a CPU.

    python -m benchmarks.experts [--threads N] [--rounds N]

It times the two products of a layer of OLMoE-1B-7B (64 experts of 1024 elements, 8 a token, q4f32_1) for 1, 8 and 128
tokens, whose experts are random, against the same kernels without our schedule, as TVM's own rules for CPUs leave them:
in turn, in one process. The ratio is of medians; the spread is that of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

EXPERTS, CHOICES, HIDDEN, INNER = 64, 8, 2048, 1024
TOKENS = (1, 8, 128)


def products(rounds: int) -> None:
    import tvm
    from tvm.s_tir import dlight

    from mlcbuild.compiler.backends.cpu.kernels.expert_product import schedule_expert_product
    from mlcbuild.compiler.kernels.blocks import inline_all
    from tests.compiler.expert_products import arguments, product, random_choices, sorted_choices
    from tests.compiler.kernel_running import TARGET, compiled

    for name, n, k, rows in (("gate and up", 2 * INNER, HIDDEN, False), ("down", HIDDEN, INNER, True)):
        func = inline_all(product(EXPERTS, n, k, CHOICES, None, numbers=not rows, rows=rows))
        assert func is not None
        module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
        with TARGET:
            theirs = compiled(dlight.ApplyDefaultSchedule(dlight.cpu.GEMV())(module)["main"])
        scheduled = schedule_expert_product(func, TARGET)
        assert scheduled is not None
        ours = compiled(scheduled)
        for tokens in TOKENS:
            chosen, numbers = sorted_choices(random_choices(EXPERTS, tokens, CHOICES))
            order = None if rows else numbers
            given = arguments(chosen, EXPERTS, n, k, dtype="float32", packed=True, numbers=order, rows=rows)
            tensors = [tvm.runtime.tensor(array) for array in given]
            pairs = [(_seconds(ours, tensors), _seconds(theirs, tensors)) for _ in range(rounds)]
            own, other = (statistics.median(times) for times in zip(*pairs, strict=True))
            ratios = [second / first for first, second in pairs]
            weights = tokens * CHOICES * n * k
            print(
                f"{name:12} {tokens:4} tokens  {own * 1e3:9.2f} ms  {2 * weights / own / 1e9:6.1f} GFLOP/s  "
                f"TVM's rules: {other * 1e3:9.2f} ms, {other / own:.1f} times as slow "
                f"({min(ratios):.1f} to {max(ratios):.1f})",
                flush=True,
            )


def _seconds(kernel: Any, tensors: list[Any]) -> float:
    begin = time.perf_counter()
    kernel(*tensors)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    os.environ["TVM_NUM_THREADS"] = str(given.threads)
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    products(given.rounds)


if __name__ == "__main__":
    main()
