"""Attention under a sliding window on GPUs: the kernels' own CUDA text, run on the CPU, against NumPy, one token after
another."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import tirx
from tvm.relax.frontend.nn.llm._decode_kernels import _attention_decode
from tvm.relax.frontend.nn.llm._prefill_kernels import _attention_prefill, _attention_prefill_ragged

from mlcbuild.compiler.backends.cuda.kernels import attention
from mlcbuild.compiler.backends.cuda.kernels import window as windowed
from mlcbuild.compiler.backends.cuda.kernels.kv_cache import with_own_kernels
from mlcbuild.compiler.kernels.bound_bfloat16 import store_before_binding
from mlcbuild.compiler.models.architecture.window import SlidingWindow
from mlcbuild.compiler.script_parsing import quick_script_parsing
from mlcbuild.errors import InternalError, StageError
from tests.compiler.attention_reference import LLAMA3, THETA
from tests.compiler.backends.cuda import cuda_emulation
from tests.compiler.backends.cuda.cuda_emulation import CUDA_TARGET, run_cuda
from tests.compiler.windowed_batch import WindowedBatch, merged

_TARGET = tvm.target.Target(CUDA_TARGET)
_HEADS = (4, 2, 32)
_PLAIN, _SINK, _LONG_SINK = SlidingWindow(size=12), SlidingWindow(size=12, sink=3), SlidingWindow(size=40, sink=20)
# What is rotated, and the results, are rounded to the type.
_TOLERANCE = {"float32": 5e-6, "float16": 6e-3, "bfloat16": 5e-2}
_PREFILLS = [[(0, 5)], [(7, 12), (11, 1), (0, 30)], [(12, 40), (60, 13), (2, 6), (13, 9)]]
_DECODES = [[0, 1], [2, 11, 12], [13, 39, 40, 41], [150, 5]]
pytestmark = pytest.mark.skipif(not cuda_emulation.AVAILABLE, reason="the C++ compiler g++ runs the kernels")


def _ready(kernel: tirx.PrimFunc) -> tirx.PrimFunc:
    return store_before_binding(tvm.IRModule({"kernel": kernel}))["kernel"]


@functools.cache
def _decode(window: SlidingWindow, dtype: str, *, ours: bool) -> tirx.PrimFunc:
    query_heads, key_heads, dim = _HEADS
    with quick_script_parsing():
        original = _attention_decode(key_heads, query_heads, dim, dtype, True, {}, _TARGET)
    if ours:
        return attention.paged_decode(original, rope_scaling={}, sliding_window=True, window=window)
    return _ready(windowed.paged_decode(original, window))


@functools.cache
def _prefills(window: SlidingWindow, dtype: str, llama3: bool) -> tuple[tirx.PrimFunc, tirx.PrimFunc]:
    query_heads, key_heads, dim = _HEADS
    rule = LLAMA3 if llama3 else {}
    with quick_script_parsing():
        paged = _attention_prefill(key_heads, query_heads, dim, dtype, True, rule, _TARGET)
        ragged = _attention_prefill_ragged(key_heads, query_heads, dim, dim, dtype, rule, _TARGET)
    return (
        _ready(windowed.paged_prefill(paged, window, rope_scaling=rule)),
        _ready(windowed.ragged_prefill(ragged, window, rope_scaling=rule)),
    )


_CASES = [
    (_PLAIN, "float16", False),
    (_SINK, "float16", False),
    *(
        pytest.param(*case, marks=pytest.mark.slow)
        for case in [
            (_PLAIN, "float32", False),
            (_SINK, "float32", True),
            (_LONG_SINK, "float32", False),
            (_SINK, "bfloat16", False),
        ]
    ),
    pytest.param(_PLAIN, "bfloat16", False, marks=[pytest.mark.slow, pytest.mark.exhaustive]),
]


@pytest.mark.parametrize(("window", "dtype", "llama3"), _CASES, ids=str)
@pytest.mark.parametrize("rotates", [0, 1])
def test_new_tokens_see_what_the_window_leaves_them(
    programs: Path, window: SlidingWindow, dtype: str, llama3: bool, rotates: int
) -> None:
    paged, ragged = _prefills(window, dtype, llama3)
    for drops in (False, True):
        for sequences in _PREFILLS:
            batch = WindowedBatch(sequences, window, drops=drops, heads=_HEADS, dtype=dtype)
            numbers = (1.0, THETA, batch.scale)
            among = run_cuda(ragged, batch.of_ragged(), programs, 1, rotates, *numbers)[7:]
            over = run_cuda(paged, batch.of_prefill(), programs, 0, rotates, *numbers)[8:]
            expected = batch.expected(LLAMA3 if llama3 else {}, rotates=bool(rotates))
            found = merged(among, over)
            np.testing.assert_allclose(found, expected, rtol=0, atol=_TOLERANCE[dtype], err_msg=str((drops, sequences)))


@pytest.mark.parametrize(
    ("window", "dtype", "ours"),
    [
        (_PLAIN, "float16", True),
        (_SINK, "float16", True),
        (_PLAIN, "float32", False),
        (_SINK, "float32", False),
        pytest.param(_LONG_SINK, "float16", True, marks=pytest.mark.slow),
        pytest.param(_SINK, "bfloat16", False, marks=pytest.mark.slow),
    ],
    ids=str,
)
@pytest.mark.parametrize("rotates", [0, 1])
def test_one_new_token_sees_what_the_window_leaves_it(
    programs: Path, window: SlidingWindow, dtype: str, ours: bool, rotates: int
) -> None:
    decode, (_, ragged) = _decode(window, dtype, ours=ours), _prefills(window, dtype, False)
    for drops in (False, True):
        for befores in _DECODES:
            batch = WindowedBatch([(before, 1) for before in befores], window, drops=drops, heads=_HEADS, dtype=dtype)
            numbers = (1.0, THETA, batch.scale)
            among = run_cuda(ragged, batch.of_ragged(), programs, 1, rotates, *numbers)[7:]
            over = run_cuda(decode, batch.of_decode(), programs, rotates, *numbers)[7:]
            expected = batch.expected({}, rotates=bool(rotates))
            found = merged(among, over)
            np.testing.assert_allclose(found, expected, rtol=0, atol=_TOLERANCE[dtype], err_msg=str((drops, befores)))


def test_a_kernel_of_another_form_is_refused() -> None:
    with quick_script_parsing():
        prefill = _attention_prefill(2, 4, 32, "float16", True, {}, _TARGET)
        decode = _attention_decode(2, 4, 32, "float16", True, {}, _TARGET)

    def without_conditions(kernel: tirx.PrimFunc) -> tirx.PrimFunc:
        return kernel.with_body(tvm_ffi.structural_map(kernel.body, (tirx.IfThenElse, lambda branch: branch.then_case)))

    with pytest.raises(InternalError, match="has a form that is not known"):
        windowed.paged_prefill(without_conditions(prefill), _PLAIN, rope_scaling={})
    with pytest.raises(InternalError, match="has a form that is not known"):
        windowed.paged_decode(without_conditions(decode), _PLAIN)


def test_a_sink_with_a_scaling_that_is_not_computed_here_is_refused() -> None:
    names = ["batch_decode_paged_kv", "batch_prefill_ragged_kv"]
    names += ["batch_decode_paged_kv_sliding_window", "batch_prefill_paged_kv_sliding_window"]
    with quick_script_parsing():
        kernel = _attention_decode(1, 1, 32, "float16", True, {}, _TARGET)
    module = tvm.IRModule(dict.fromkeys(names, kernel))
    with pytest.raises(StageError, match="there are no GPU kernels for an attention sink of 3 tokens"):
        with_own_kernels(module, rope_scaling={"rope_type": "yarn"}, target=_TARGET, window=_SINK)
