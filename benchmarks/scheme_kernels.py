"""How fast products with the matrices of each quantization scheme are on a CPU, against TVM's default schedule.

    python -m benchmarks.scheme_kernels [--schemes NAME …] [--columns N] [--rows N] [--threads N] [--rounds N]

It compiles a small llama by each scheme to Phase3, and takes the product of `down_proj`, of one vector and of `--rows`
of them. What is compared is that kernel by the rules of this project and as TVM's rules for CPUs leave it, which is as
it comes where none of them fits: both run in turn, and the ratio is of the fastest runs, so that other work on the
machine hardly changes it. One row is printed a scheme, and of products of bytes the kernels that round activations are
left out, which both have alike.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

SCHEMES = (
    *("q4f16_1", "q8f16_1", "q3f16_1", "q4f16_ft", "int8_int8_f16", "q8_0_f16", "q6_k_f16", "q5_k_f16", "q4_k_f16"),
    *("e4m3_e4m3_f16", "fp8_e4m3fn_bf16_block_scale", "mxfp4_bf16", "nvfp4_bf16", "q4f16_autoawq"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemes", nargs="+", default=SCHEMES)
    parser.add_argument("--columns", type=int, default=1280, help="of the matrix, which has 512 rows")
    parser.add_argument("--rows", type=int, default=64, help="vectors of the larger product")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    os.environ["TVM_NUM_THREADS"] = str(given.threads)
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    print(f"| scheme | one vector | {given.rows} vectors |\n|---|---|---|", flush=True)
    for name in given.schemes:
        with tempfile.TemporaryDirectory() as folder:
            products = _products(name, given.columns, Path(folder))
        cells = [_cell(kernel, name, given.rows, given.rounds) for kernel in products]
        print(f"| `{name}` | {' | '.join(cells)} |", flush=True)


def _products(name: str, columns: int, folder: Path) -> list[Any]:
    """The kernel of `down_proj` for one vector, and for any number."""
    from tvm import tirx

    from mlcbuild.compiler import ir
    from tests.compiler.pipeline import CPU_TARGET, compile_graph
    from tests.compiler.tiny_llama import TINY_LLAMA

    config = TINY_LLAMA | {"hidden_size": 512, "intermediate_size": columns, "num_attention_heads": 8}
    (folder / "config.json").write_text(json.dumps(config))
    compile_graph(name, CPU_TARGET, folder)
    found: dict[bool, Any] = {}
    for _, kernel in ir.load_module(folder / "phase3.json").functions_items():
        if not isinstance(kernel, tirx.PrimFunc):
            continue
        shapes = [
            [int(size) if isinstance(size, tirx.IntImm) else 0 for size in one.shape]
            for one in kernel.params
            if hasattr(one, "shape")
        ]
        if shapes and shapes[-1][-1:] == [512] and any(shape[-1:] == [columns] and len(shape) == 3 for shape in shapes):
            rows = {size for shape in shapes for size in shape[:-1] if len(shape) == 3}
            if rows <= {0, 1}:
                found.setdefault(0 not in rows, kernel)
    return [found[True], found[False]]


def _cell(kernel: Any, name: str, rows: int, rounds: int) -> str:
    import tvm
    from tvm.s_tir import dlight

    from mlcbuild.compiler.backends.cpu.schedule import SCHEDULING
    from tests.compiler import schemes
    from tests.compiler.kernel_arguments import random_arguments
    from tests.compiler.kernel_running import TARGET, compiled

    tensors = [tvm.runtime.tensor(array) for array in random_arguments(kernel, schemes.scheme(name), size=rows)]
    default = kernel
    # TVM's rule fails on kernels that it cannot follow, such as those of blocks of GGUF: these stay as they come.
    with TARGET, contextlib.suppress(AssertionError, ValueError, tvm.error.InternalError):
        module = tvm.IRModule({"main": kernel.with_attr("global_symbol", "main")})
        default = dlight.ApplyDefaultSchedule(dlight.cpu.GEMV())(module)["main"]
    made = next(made for made in (rule(kernel, TARGET) for rule in SCHEDULING.rules) if made is not None)
    ours, theirs = compiled(made), compiled(default)
    pairs = [[_seconds(each, tensors) for each in (ours, theirs)] for _ in range(rounds)]
    fastest = [min(times) for times in zip(*pairs, strict=True)]
    return f"{fastest[0] * 1e6:,.0f} µs, TVM's × {fastest[1] / fastest[0]:.2f}"


def _seconds(kernel: Any, tensors: list[Any]) -> float:
    """Of the fastest of some calls."""
    best, begin = float("inf"), time.perf_counter()
    while time.perf_counter() - begin < 0.1:
        start = time.perf_counter()
        kernel(*tensors)
        best = min(best, time.perf_counter() - start)
    return best


if __name__ == "__main__":
    main()
