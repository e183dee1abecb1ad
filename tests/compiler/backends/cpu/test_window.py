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
from tests.compiler.kernel_running import TARGET, compiled, run
from tests.compiler.windowed_batch import WindowedBatch, merged

_HEADS = (4, 2, 32)
_KEYS_FIRST = (2, 4, 32)  # as TVM's kernels take them
_PLAIN, _SINK, _LONG_SINK = SlidingWindow(size=12), SlidingWindow(size=12, sink=3), SlidingWindow(size=40, sink=20)
_WINDOWS = [_PLAIN, _SINK, _LONG_SINK]
# Each window, type and rotation is seen, and a sink with each; the other pairs, whose parts are all in these, by
# `pytest -m exhaustive`.
_SEEN = {(_SINK, "float32", True), (_LONG_SINK, "float16", False), *((each, "float32", False) for each in _WINDOWS)}
_TOLERANCE = {"float32": 3e-6, "float16": 4e-3}
# Tokens before and new ones: pieces that are shorter, as long and longer than the window, and begin anywhere.
_PREFILLS = [[(0, 5)], [(0, 90)], [(7, 12), (11, 1), (0, 30)], [(12, 40), (60, 13), (2, 6), (13, 9)], [(100, 100)]]
_DECODES = [[0, 1], [2, 11, 12], [13, 39, 40, 41], [150, 5]]


# Kernels, each compiled once for all numbers that it is tried with, and only where a test asks for it.


@functools.cache
def _decode(window: SlidingWindow) -> Any:
    with quick_script_parsing():
        original = _attention_decode_cpu(*_KEYS_FIRST, "float32", True, {})
    return compiled(attention.paged_decode(original, sliding_window=True, rope_scaling={}, window=window))


@functools.cache
def _prefill(window: SlidingWindow, dtype: str, llama3: bool) -> Any:
    rule = LLAMA3 if llama3 else {}
    with quick_script_parsing():
        original = _attention_prefill_cpu(*_KEYS_FIRST, dtype, True, rule)
    return compiled(attention.paged_prefill(original, layer_window=1024, rope_scaling=rule, window=window))


@functools.cache
def _ragged(window: SlidingWindow, dtype: str, llama3: bool) -> Any:
    rule = LLAMA3 if llama3 else {}
    with quick_script_parsing():
        original = _attention_prefill_ragged_cpu(*_KEYS_FIRST, _HEADS[2], dtype, rule)
    return compiled(attention.ragged_prefill(original, rope_scaling=rule, window=window))


@pytest.mark.parametrize(
    ("window", "dtype", "llama3"),
    [
        pytest.param(window, *more, marks=() if (window, *more) in _SEEN else pytest.mark.exhaustive)
        for window in _WINDOWS
        for more in (("float32", False), ("float32", True), ("float16", False))
    ],
    ids=str,
)
@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("rotates", [0, 1])
def test_new_tokens_see_what_the_window_leaves_them(
    window: SlidingWindow, drops: bool, dtype: str, llama3: bool, rotates: int
) -> None:
    prefill, ragged = _prefill(window, dtype, llama3), _ragged(window, dtype, llama3)
    rule = LLAMA3 if llama3 else {}
    for sequences in _PREFILLS:
        batch = WindowedBatch(sequences, window, drops=drops, heads=_HEADS, dtype=dtype)
        numbers = (1.0, THETA, batch.scale)
        among = run(ragged, batch.of_ragged(), 1, rotates, *numbers)[7:]
        over = run(prefill, batch.of_prefill(), 0, rotates, *numbers)[8:]
        expected = batch.expected(rule, rotates=bool(rotates))
        np.testing.assert_allclose(
            merged(among, over), expected, rtol=0, atol=_TOLERANCE[dtype], err_msg=str(sequences)
        )


@pytest.mark.parametrize("window", _WINDOWS, ids=str)
@pytest.mark.parametrize("drops", [False, True])
@pytest.mark.parametrize("rotates", [0, 1])
def test_one_new_token_sees_what_the_window_leaves_it(window: SlidingWindow, drops: bool, rotates: int) -> None:
    decode, ragged = _decode(window), _ragged(window, "float32", False)
    for befores in _DECODES:
        batch = WindowedBatch([(before, 1) for before in befores], window, drops=drops, heads=_HEADS)
        numbers = (1.0, THETA, batch.scale)
        among = run(ragged, batch.of_ragged(), 1, rotates, *numbers)[7:]
        over = run(decode, batch.of_decode(), rotates, *numbers)[7:]
        expected = batch.expected({}, rotates=bool(rotates))
        np.testing.assert_allclose(merged(among, over), expected, rtol=0, atol=3e-6, err_msg=str(befores))


def test_a_window_that_no_kernel_here_computes_is_refused() -> None:
    names = ["batch_decode_paged_kv_cpu", "batch_prefill_paged_kv_cpu", "batch_prefill_ragged_kv", "fused_rope"]
    names += ["batch_decode_paged_kv_cpu_sliding_window", "batch_prefill_paged_kv_cpu_sliding_window"]
    with quick_script_parsing():
        kernel = _attention_decode_cpu(1, 1, 32, "float32", True, {})
    module = tvm.IRModule(dict.fromkeys(names, kernel))
    given: Any = {"theta": THETA, "scale": 1.0, "rope_scaling": {"rope_type": "yarn"}, "layer_window": 1024}
    given["target"] = TARGET
    with pytest.raises(StageError, match="there are no CPU kernels for a sliding window of 12 tokens"):
        with_vector_kernels(module, **given, window=_WINDOWS[0])
