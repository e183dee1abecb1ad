"""Attention under a sliding window on CPUs, against NumPy, one token after another."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.relax.frontend.nn.llm._decode_kernels import _attention_decode_cpu
from tvm.relax.frontend.nn.llm._prefill_kernels import _attention_prefill_cpu, _attention_prefill_ragged_cpu

from mlcbuild.compiler.backends.cpu.kernels import attention
from mlcbuild.compiler.backends.cpu.kernels.kv_cache import with_vector_kernels
from mlcbuild.compiler.models.architecture.window import SlidingWindow
from mlcbuild.compiler.script_parsing import quick_script_parsing
from mlcbuild.errors import StageError
from tests.compiler.attention_reference import LLAMA3, THETA
from tests.compiler.kernel_running import compiled, run
from tests.compiler.windowed_batch import WindowedBatch, merged

_HEADS = (4, 2, 32)
_WINDOWS = [SlidingWindow(size=12), SlidingWindow(size=12, sink=3), SlidingWindow(size=40, sink=20)]
_TOLERANCE = {"float32": 3e-6, "float16": 4e-3}
# Tokens before and new ones: pieces that are shorter, as long and longer than the window, and begin anywhere.
_PREFILLS = [[(0, 5)], [(0, 90)], [(7, 12), (11, 1), (0, 30)], [(12, 40), (60, 13), (2, 6), (13, 9)], [(100, 100)]]
_DECODES = [[0, 1], [2, 11, 12], [13, 39, 40, 41], [150, 5]]


@functools.cache
def _kernels(window: SlidingWindow, dtype: str, llama3: bool) -> dict[str, Any]:
    query_heads, key_heads, dim = _HEADS
    rule = LLAMA3 if llama3 else {}
    given: Any = {"rope_scaling": rule, "window": window}
    with quick_script_parsing():
        decode = _attention_decode_cpu(key_heads, query_heads, dim, dtype, True, rule)
        prefill = _attention_prefill_cpu(key_heads, query_heads, dim, dtype, True, rule)
        ragged = _attention_prefill_ragged_cpu(key_heads, query_heads, dim, dim, dtype, rule)
    return {
        "decode": compiled(attention.paged_decode(decode, sliding_window=True, **given)),
        "prefill": compiled(attention.paged_prefill(prefill, layer_window=1024, **given)),
        "ragged": compiled(attention.ragged_prefill(ragged, **given)),
    }


@pytest.mark.parametrize("window", _WINDOWS, ids=str)
@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize(("dtype", "llama3"), [("float32", False), ("float32", True), ("float16", False)])
@pytest.mark.parametrize("rotates", [0, 1])
def test_new_tokens_see_what_the_window_leaves_them(
    window: SlidingWindow, drops: bool, dtype: str, llama3: bool, rotates: int
) -> None:
    kernels = _kernels(window, dtype, llama3)
    rule = LLAMA3 if llama3 else {}
    for sequences in _PREFILLS:
        batch = WindowedBatch(sequences, window, drops=drops, heads=_HEADS, dtype=dtype)
        numbers = (1.0, THETA, batch.scale)
        among = run(kernels["ragged"], batch.of_ragged(), 1, rotates, *numbers)[7:]
        over = run(kernels["prefill"], batch.of_prefill(), 0, rotates, *numbers)[8:]
        expected = batch.expected(rule, rotates=bool(rotates))
        np.testing.assert_allclose(
            merged(among, over), expected, rtol=0, atol=_TOLERANCE[dtype], err_msg=str(sequences)
        )


@pytest.mark.parametrize("window", _WINDOWS, ids=str)
@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("rotates", [0, 1])
def test_one_new_token_sees_what_the_window_leaves_it(window: SlidingWindow, drops: bool, rotates: int) -> None:
    kernels = _kernels(window, "float32", False)
    for befores in _DECODES:
        batch = WindowedBatch([(before, 1) for before in befores], window, drops=drops, heads=_HEADS)
        numbers = (1.0, THETA, batch.scale)
        among = run(kernels["ragged"], batch.of_ragged(), 1, rotates, *numbers)[7:]
        over = run(kernels["decode"], batch.of_decode(), rotates, *numbers)[7:]
        expected = batch.expected({}, rotates=bool(rotates))
        np.testing.assert_allclose(merged(among, over), expected, rtol=0, atol=3e-6, err_msg=str(befores))


def test_a_window_that_no_kernel_here_computes_is_refused() -> None:
    names = ["batch_decode_paged_kv_cpu", "batch_prefill_paged_kv_cpu", "batch_prefill_ragged_kv", "fused_rope"]
    names += ["batch_decode_paged_kv_cpu_sliding_window", "batch_prefill_paged_kv_cpu_sliding_window"]
    with quick_script_parsing():
        kernel = _attention_decode_cpu(1, 1, 32, "float32", True, {})
    module = tvm.IRModule(dict.fromkeys(names, kernel))
    given: Any = {"theta": THETA, "scale": 1.0, "rope_scaling": {"rope_type": "yarn"}, "layer_window": 1024}
    with pytest.raises(StageError, match="there are no CPU kernels for a sliding window of 12 tokens"):
        with_vector_kernels(module, **given, window=_WINDOWS[0])
