"""Products of one vector ask, as they end, for the matrices that are read after them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from mlcbuild.compiler.backends.cuda.kernels import instructions as gpu
from mlcbuild.compiler.backends.cuda.kernels import l2_prefetch
from mlcbuild.compiler.backends.cuda.kernels.gemv import schedule_packed_gemv
from mlcbuild.compiler.backends.cuda.kernels.l2_prefetch import Following
from mlcbuild.compiler.backends.cuda.passes import prefetch_weights
from tests.compiler.backends.cuda import cuda_emulation
from tests.compiler.backends.cuda.cuda_emulation import CUDA_TARGET, run_cuda
from tests.compiler.kernel_running import packed_arrays, packed_product, restored_matrix

_WIDTH = 128
_BYTES = _WIDTH * _WIDTH // 2  # of the words of a matrix


def _asked(arch: str = "sm_90", *, products: int = 3, made: bool = False) -> list[list[int]]:
    """What each product of a function asks for: bytes of the matrices after it. With `made` a kernel makes the words of
    the second matrix, behind the first product."""
    builder = relax.BlockBuilder()
    product = builder.add_func(
        packed_product(_WIDTH, _WIDTH, 1, dtype="float16").without_attr("global_symbol"), "product"
    )
    row = relax.TensorType((1, 1, _WIDTH), "float16")
    x = relax.Var("x", row)
    words = [relax.Var(f"words{i}", relax.TensorType((_WIDTH, _WIDTH // 8), "uint32")) for i in range(products)]
    scales = [relax.Var(f"scales{i}", relax.TensorType((_WIDTH, _WIDTH // 32), "float16")) for i in range(products)]
    with builder.function("main", [x, *words, *scales]):
        with builder.dataflow():
            result: Any = x
            for number in range(products):
                read = words[number]
                if made and number == 1:
                    read = builder.emit(relax.op.add(read, read))
                result = builder.emit(relax.call_tir(product, [result, read, scales[number]], row))
            output = builder.emit_output(result)
        builder.emit_func_output(output)
    target = tvm.target.Target({**CUDA_TARGET, "arch": arch})
    module = prefetch_weights.prefetch_weights(builder.get(), target)
    relax.analysis.well_formed(module)
    calls = [
        binding.value
        for block in module["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Call) and binding.value.op.name == "relax.call_tir"
    ]
    found = []
    for call in calls:
        function = module[call.args[0]]
        assert len(function.params) == len(call.args[1].fields) + 1
        found.append(json.loads(str(function.attrs.get(l2_prefetch.ATTRIBUTE, "[]"))))
    return found


def test_a_product_asks_for_the_matrices_after_it() -> None:
    assert _asked() == [[_BYTES, _BYTES], [_BYTES], []]


def test_no_more_is_asked_for_than_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch_weights, "MOST_BYTES", _BYTES + 1000)
    assert _asked() == [[_BYTES, 1000 // l2_prefetch.LINE * l2_prefetch.LINE], [_BYTES], []]


def test_what_is_not_made_yet_is_not_asked_for() -> None:
    assert _asked(made=True) == [[], [_BYTES], []]


def test_gpus_before_sm_90_are_asked_for_nothing() -> None:
    assert _asked("sm_89") == [[], [], []]


def test_a_function_with_one_product_stays_as_it_is() -> None:
    assert _asked(products=1) == [[]]


@pytest.mark.skipif(not cuda_emulation.AVAILABLE, reason="the C++ compiler g++ runs the kernels")
@pytest.mark.parametrize("size", [128, 4096, 8192 - 128])
def test_blocks_share_what_is_asked_for_and_the_product_is_the_same(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mark(source: Any, count: Any) -> None:
        body = "for (int i = 0; i < count; ++i) ((unsigned char*)source)[i] += 1;"
        gpu._call("mlcbuild_mark", "(const void* source, int count)", body, source, count)

    monkeypatch.setattr(gpu, "prefetch_bulk", mark)
    n, k = 72, 512
    func = packed_product(n, k, 1, dtype="float16", out_dtype="float32")
    longer = l2_prefetch.with_following(
        func, [Following((64, 16), "uint32", 4096), Following((33, 64), "uint32", size)]
    )
    scheduled = schedule_packed_gemv(longer, tvm.target.Target(CUDA_TARGET))
    assert scheduled is not None
    arrays = packed_arrays(n, k, 1, dtype="float16", bits=4, group=32)
    expected = arrays[0].astype(np.float64) @ restored_matrix(arrays[1], arrays[2], bits=4, group=32).T
    following = [np.zeros((64, 16), np.uint32), np.zeros((33, 64), np.uint32)]
    *_, first, second, result = run_cuda(
        scheduled, [*arrays, *following, np.zeros(expected.shape, np.float32)], tmp_path
    )
    np.testing.assert_allclose(result, expected, atol=1e-5, rtol=1e-5)
    assert (first.view(np.uint8) == 1).all()
    marked = second.view(np.uint8).ravel()
    assert (marked[:size] == 1).all()
    assert not marked[size:].any()
