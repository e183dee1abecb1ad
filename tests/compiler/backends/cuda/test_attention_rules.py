"""Attention by the rules of a model on GPUs: the kernels' own CUDA text, run on the CPU, against NumPy, one token after
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
from mlcbuild.compiler.backends.cuda.kernels import attention_rules as ruled
from mlcbuild.compiler.kernels.bound_bfloat16 import store_before_binding
from mlcbuild.compiler.models.architecture.attention_rules import AttentionRules
from mlcbuild.compiler.script_parsing import quick_script_parsing
from mlcbuild.errors import InternalError
from tests.compiler.backends.cuda import cuda_emulation
from tests.compiler.backends.cuda.cuda_emulation import CUDA_TARGET, run_cuda
from tests.compiler.ruled_batch import RuledBatch
from tests.compiler.windowed_batch import merged

_TARGET = tvm.target.Target(CUDA_TARGET)
_HEADS = (6, 2, 32)
_WINDOW, _ALL = AttentionRules(window=12), AttentionRules(window=12, soft_cap=5.0, sinks=True)
_CHUNKED, _CAPPED = AttentionRules(window=16, chunked=True), AttentionRules(soft_cap=5.0)
_TOLERANCE = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 8e-2}
_PREFILLS = [[(7, 12), (11, 1), (0, 30)], [(12, 40), (60, 13), (2, 6), (16, 16), (100, 9)]]
_DECODES = [[2, 11, 12, 16], [150, 5]]
pytestmark = pytest.mark.skipif(not cuda_emulation.AVAILABLE, reason="the C++ compiler g++ runs the kernels")


def _ready(kernel: tirx.PrimFunc) -> tirx.PrimFunc:
    return store_before_binding(tvm.IRModule({"kernel": kernel}))["kernel"]


@functools.cache
def _decode(rules: AttentionRules, dtype: str, *, ours: bool) -> tirx.PrimFunc:
    query_heads, key_heads, dim = _HEADS
    with quick_script_parsing():
        original = _attention_decode(key_heads, query_heads, dim, dtype, False, {}, _TARGET)
    if ours:
        return attention.paged_decode(original, rope_scaling={}, rules=rules)
    return _ready(ruled.paged_decode(original, rules))


@functools.cache
def _prefills(rules: AttentionRules, dtype: str) -> tuple[tirx.PrimFunc, tirx.PrimFunc]:
    query_heads, key_heads, dim = _HEADS
    with quick_script_parsing():
        paged = _attention_prefill(key_heads, query_heads, dim, dtype, False, {}, _TARGET)
        ragged = _attention_prefill_ragged(key_heads, query_heads, dim, dim, dtype, {}, _TARGET)
    return _ready(ruled.paged_prefill(paged, rules)), _ready(ruled.ragged_prefill(ragged, rules))


_CASES = [
    (_ALL, "float16", True),
    *(
        pytest.param(*case, marks=pytest.mark.exhaustive)
        for case in [
            (_ALL, "float32", False),
            (_WINDOW, "float16", True),
            (_CHUNKED, "float16", True),
            (_CHUNKED, "float32", False),
            (_CAPPED, "float16", True),
            (_CAPPED, "bfloat16", False),
            (AttentionRules(sinks=True), "float16", True),
            (AttentionRules(alibi=True), "float16", True),
            (AttentionRules(alibi=True), "float32", False),
            (AttentionRules(alibi=True), "bfloat16", False),
        ]
    ),
]


@pytest.mark.parametrize(("rules", "dtype", "ours"), _CASES, ids=str)
@pytest.mark.parametrize("sees_less", [False, True])
def test_tokens_see_what_the_rules_leave_them(
    programs: Path, rules: AttentionRules, dtype: str, ours: bool, sees_less: bool
) -> None:
    if sees_less and not rules.window:
        pytest.skip("all layers of the model see all of the text")
    decode, (paged, ragged) = _decode(rules, dtype, ours=ours), _prefills(rules, dtype)
    for sequences in [*_PREFILLS, *([(before, 1) for before in befores] for befores in _DECODES)]:
        batch = RuledBatch(sequences, rules, heads=_HEADS, dtype=dtype)
        numbers = (1.0, 10000.0, batch.scale_of(sees_less=sees_less))
        among = run_cuda(ragged, batch.of_ragged(), programs, 1, 0, *numbers)[7:]
        over = [run_cuda(paged, batch.of_prefill(), programs, 0, 0, *numbers)[8:]]
        if all(new == 1 for _, new in sequences):
            over.append(run_cuda(decode, batch.of_decode(), programs, 0, *numbers)[7:])
        expected = batch.expected_of(sees_less=sees_less)
        for part in over:
            found = batch.query_heads(merged(among, part))
            np.testing.assert_allclose(found, expected, rtol=0, atol=_TOLERANCE[dtype], err_msg=str(sequences))


def test_a_kernel_of_another_form_is_refused() -> None:
    with quick_script_parsing():
        prefill = _attention_prefill(2, 4, 32, "float16", False, {}, _TARGET)

    def without_stores(kernel: tirx.PrimFunc) -> tirx.PrimFunc:
        changed = tvm_ffi.structural_map(kernel.body, (tirx.BufferStore, lambda _: tirx.Evaluate(0)))
        return kernel.with_body(changed)

    with pytest.raises(InternalError, match="has a form that is not known"):
        ruled.paged_prefill(without_stores(prefill), _CAPPED)
