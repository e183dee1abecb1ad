"""Packed matrices that are multiplied as bytes: as near to float64 as float32, at every level, whatever x has."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import pytest
import tvm

from mlcbuild.compiler.backends.cpu.kernels.gemv import schedule_gemv
from mlcbuild.compiler.kernels.bound_bfloat16 import store_before_binding
from mlcbuild.compiler.weights.tensor import dtype_of
from mlcbuild.toolchains.entries.processor import CPUINFO, instructions
from tests.compiler.kernel_running import Array, packed_arrays, packed_product, restored_matrix, run

_LEVELS: dict[str, dict[str, Any]] = {
    "avx2": {"mcpu": "x86-64-v3"},
    "avx512bw": {"mcpu": "x86-64-v4"},
    "avx512_vnni": {"mcpu": "x86-64-v4", "mattr": ["+avx512vnni"]},
}


def _target(level: dict[str, Any]) -> tvm.target.Target:
    return tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu"} | level)


def _built(target: tvm.target.Target, n: int, k: int, **kinds: Any) -> Any:
    kernel = schedule_gemv(packed_product(n, k, 1, **kinds), target)
    assert kernel is not None
    module = tvm.IRModule({"kernel": kernel.with_attr("global_symbol", "kernel")})
    return tvm.tirx.build(store_before_binding(module), target=target)


@pytest.fixture(params=_LEVELS)
def target(request: pytest.FixtureRequest) -> tvm.target.Target:
    """Each level that this processor has."""
    if platform.machine() != "x86_64" or request.param not in instructions(CPUINFO.read_text(), "x86_64"):
        pytest.skip(f"the processor has no {request.param}")
    return _target(_LEVELS[request.param])


def _check(target: tvm.target.Target, n: int, x: Array, *, bits: int = 4, group: int = 32) -> None:
    """x times a random matrix is nearer to float64 than the sum of the absolute values times float32's precision."""
    k, dtype = x.shape[-1], str(x.dtype)
    _, words, scales = packed_arrays(n, k, 1, dtype=dtype, bits=bits, group=group)
    kernel = _built(target, n, k, dtype=dtype, out_dtype="float32", bits=bits, group=group)["kernel"]
    found = run(kernel, [x, words, scales, np.zeros((1, 1, n), np.float32)])[-1]
    matrix = restored_matrix(words, scales, bits=bits, group=group).T
    terms = np.abs(x).astype(np.float64) @ np.abs(matrix)
    assert np.all(np.abs(found - x.astype(np.float64) @ matrix) <= 2.0**-22 * terms)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("n", "k", "group"), [(48, 2048, 32), (10, 576, 32), (7, 96, 32), (8, 4352, 128), (6, 320, 64), (12, 160, 16)]
)
def test_sums_are_those_of_float32(target: tvm.target.Target, n: int, k: int, group: int, dtype: str) -> None:
    x = np.random.default_rng(k).standard_normal((1, 1, k)).astype(dtype_of(dtype))
    _check(target, n, x, group=group)


def test_numbers_of_very_different_sizes_keep_their_digits(target: tvm.target.Target) -> None:
    """Each word's numbers have an exponent of their own, so small ones are not lost beside those of other words."""
    random = np.random.default_rng(3)
    sizes = np.exp2(random.integers(-60, 60, (1, 1, 32))).repeat(8, axis=-1)
    _check(target, 16, (random.standard_normal((1, 1, 256)) * sizes).astype(np.float32))


@pytest.mark.parametrize("bits", [0x3F7EFEFD, 0x3F7EFEFE, 0x3F7EFEFF, 0x3F7F7F80, 0x3F7FFFFF, 0x3F800000])
def test_the_first_digit_is_never_above_127(target: tvm.target.Target, bits: int) -> None:
    """The numbers about where another exponent is taken, and their negatives."""
    value = np.array([bits], np.uint32).view(np.float32)[0]
    signs = np.random.default_rng(bits).choice([-1, 1], (1, 1, 96))
    _check(target, 16, (signs * value).astype(np.float32))


@pytest.mark.parametrize("value", [0.0, 1e-30, 1e-38, 1e-42, 1e36])
def test_extremes_of_float32(target: tvm.target.Target, value: float) -> None:
    x = np.full((1, 1, 96), value, np.float32)
    _, words, scales = packed_arrays(16, 96, 1, dtype="float32", bits=4, group=32)
    matrix = restored_matrix(words, scales, bits=4, group=32).T
    found = run(_built(target, 16, 96)["kernel"], [x, words, scales, np.zeros((1, 1, 16), np.float32)])[-1]
    expected = x.astype(np.float64) @ matrix
    bound = (2.0**-22 * value + 2.0**-127) * np.abs(matrix).sum(axis=0)  # no unit is below 2**-126
    fits = np.abs(expected) < np.finfo(np.float32).max / 2
    assert np.all(np.where(fits, np.abs(found - expected) <= bound, ~np.isnan(found)))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_shows_in_all_results(target: tvm.target.Target, value: float) -> None:
    x, words, scales = packed_arrays(8, 192, 1, dtype="float32", bits=4, group=32)
    x[0, 0, 77] = value
    found = run(_built(target, 8, 192)["kernel"], [x, words, scales, np.zeros((1, 1, 8), np.float32)])[-1]
    assert not np.isfinite(found).any()


@pytest.mark.parametrize(
    ("level", "intrinsics"),
    [
        ({"mcpu": "x86-64-v2"}, []),
        ({"mcpu": "x86-64-v3"}, ["avx2.pmadd.ub.sw"]),
        ({"mcpu": "x86-64-v4"}, ["avx512.pmaddubs.w.512", "avx2.pmadd.ub.sw"]),
        ({"mcpu": "icelake-server"}, ["avx512.vpdpbusd.512", "avx2.pmadd.ub.sw"]),
        ({"mcpu": "neoverse-n1", "mtriple": "aarch64-linux-gnu"}, []),
    ],
)
def test_instructions_are_those_of_the_target(level: dict[str, Any], intrinsics: list[str]) -> None:
    """A row of 72 words is four registers of 16 and one of eight."""
    code = _built(_target(level), 16, 576).inspect_source("ll")
    kinds = ("avx2.pmadd.ub.sw", "avx512.pmaddubs.w.512", "avx512.vpdpbusd.512")
    assert {kind for kind in kinds if f"llvm.x86.{kind}(" in code} == set(intrinsics)


@pytest.mark.parametrize("bits", [2, 8])
def test_other_packings_become_floats(bits: int) -> None:
    code = _built(_target(_LEVELS["avx2"]), 16, 512, bits=bits).inspect_source("ll")
    assert "pmadd" not in code
