"""The kernels of a tiny model, each run as CUDA text on the CPU and as the CPU's own kernel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx

from mlcbuild.compiler import ir
from mlcbuild.compiler.backends.cuda.schedule import SCHEDULING
from mlcbuild.compiler.kernels.scheduling import apply_rules
from mlcbuild.compiler.weights.tensor import dtype_of
from tests.compiler.backends.cuda.cuda_emulation import CUDA_TARGET, run_cuda
from tests.compiler.kernel_running import Array, run
from tests.compiler.pipeline import compile_graph
from tests.compiler.tiny_llama import TINY_LLAMA

# The kernels of the cache have tests of their own; the others move numbers without looking at them.
_LEFT_OUT = ("attn", "kv", "rope", "copy", "merge_state", "reshape")


def compare_kernels(
    quantization: str, directory: Path, *, dtype: str, tolerance: float, checked: set[int], only: str = ""
) -> int:
    """Compares those kernels of a tiny llama that have numbers of the type, and `only` in their names. Returns how many
    products of matrices were among them. `checked` are kernels that were run: quantizations have many in common.
    Differences are allowed up to `tolerance` times the largest result."""
    (directory / "config.json").write_text(json.dumps(TINY_LLAMA))
    compile_graph(quantization, CUDA_TARGET, directory)
    found = 0
    for variable, kernel in ir.load_module(directory / "phase3.json").functions_items():
        name = str(variable.name_hint)
        if not isinstance(kernel, tirx.PrimFunc) or only not in name or any(part in name for part in _LEFT_OUT):
            continue
        found += "matmul" in name
        if any(isinstance(parameter.ty, tvm.ir.PrimType) for parameter in kernel.params):
            continue  # softmax over the vocabulary, which is in float32
        buffers = [(str(buffer.dtype), [_size(size) for size in buffer.shape]) for buffer in kernel.params]
        content = tvm_ffi.structural_hash(kernel)
        if dtype not in (other for other, _ in buffers) or content in checked:
            continue
        checked.add(content)
        arrays = _random_arrays(buffers)
        on_cpu = run(kernel, arrays)[-1].astype(np.float64)
        on_gpu = run_cuda(scheduled(kernel), arrays, directory)[-1].astype(np.float64)
        np.testing.assert_allclose(on_gpu, on_cpu, atol=tolerance * np.abs(on_cpu).max(), err_msg=name)
    return found


def scheduled(kernel: tirx.PrimFunc, architecture: str = CUDA_TARGET["arch"]) -> tirx.PrimFunc:
    """The kernel as the rules for GPUs schedule it."""
    target = tvm.target.Target(CUDA_TARGET | {"arch": architecture})
    with target:
        return SCHEDULING.lift_workspace(apply_rules(kernel, target, SCHEDULING.rules))[0]


def _size(size: Any) -> int:
    return int(size) if isinstance(size, int | tirx.IntImm) else 3


def _random_arrays(buffers: list[tuple[str, list[int]]]) -> list[Array]:
    """Numbers for all but the last, which is what is computed."""
    random = np.random.default_rng(0)
    # Of integers with random scales, products are large, and those of a gate and what it lets through larger.
    size = 0.25 if any(dtype == "uint32" for dtype, _ in buffers) else 1.0
    arrays: list[Array] = []
    for dtype, shape in buffers[:-1]:
        if dtype == "uint32":
            arrays.append(random.integers(0, 2**32, shape, dtype=np.uint32))
        elif dtype == "uint8":
            arrays.append(random.integers(0, 60, shape, dtype=np.uint8))  # two of which are a finite float16
        elif dtype.startswith("int"):
            arrays.append(random.integers(0, 3, shape).astype(dtype))
        else:
            arrays.append((size * random.standard_normal(shape)).astype(dtype_of(dtype)))
    dtype, shape = buffers[-1]
    return [*arrays, np.zeros(shape, dtype_of(dtype))]
