"""Compile kernels alone, and run them on arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import te, tirx

from mlcbuild.compiler.kernels.bound_bfloat16 import store_before_binding
from mlcbuild.compiler.kernels.scheduling import Rule
from mlcbuild.compiler.weights.tensor import dtype_of
from tests.compiler.pipeline import CPU_TARGET

Array = npt.NDArray[Any]

TARGET = tvm.target.Target(dict(CPU_TARGET))


def compiled(func: tirx.PrimFunc) -> Any:
    """The kernel as a function of tensors."""
    module = tvm.IRModule({"kernel": func.with_attr("global_symbol", "kernel")})
    return tvm.tirx.build(store_before_binding(module), target=TARGET)["kernel"]


def run(func: Any, arrays: Sequence[Array], *scalars: float) -> list[Array]:
    """The arrays after a call with copies of them; `func` is a PrimFunc or what `compiled` made of one."""
    tensors = [tvm.runtime.tensor(np.ascontiguousarray(array)) for array in arrays]
    callable_ = compiled(func) if isinstance(func, tirx.PrimFunc) else func
    callable_(*tensors, *scalars)
    return [tensor.numpy() for tensor in tensors]


def scheduled(rule: Rule, func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The kernel as a rule that has to fit schedules it."""
    result = rule(func, TARGET)
    assert result is not None
    return result


def packed_product(
    n: int,
    k: int,
    rows: int | None,
    *,
    dtype: str = "float32",
    out_dtype: str | None = None,
    bits: int = 4,
    group: int = 32,
    residual: bool = False,
    gated: bool = False,
    batch_first: bool = False,
    by_columns: bool = False,
) -> tirx.PrimFunc:
    """x (1, rows, k) times a packed matrix (n, k) → (1, rows, n), as fusion leaves it: restored, turned, multiplied.

    `rows` None is a size known at run time; `residual` adds an array of the result's shape; `gated` makes n / 2 columns
    of it, silu of the first half times the second; `batch_first` has x and
    the result as (rows, 1, ..); words and scales that are `by_columns` have n as their last axis.
    """
    out = out_dtype or dtype
    per_word = 32 // bits
    count, columns, places = _size(rows), tirx.IntImm("int64", n), tirx.IntImm("int64", k)
    one = tirx.IntImm("int64", 1)

    def shape(last: tirx.IntImm) -> tuple[Any, ...]:
        return (count, one, last) if batch_first else (one, count, last)

    x = te.placeholder(shape(places), dtype, name="x")
    groups = -(-k // group)
    stored = [(n, groups * (group // per_word)), (n, groups)]
    words, scales = (
        te.placeholder(shape[::-1] if by_columns else shape, kind, name=name)
        for shape, kind, name in zip(stored, ("uint32", dtype), ("words", "scales"), strict=True)
    )
    element = _restored(words, scales, bits, group, dtype, by_columns)
    restored = te.compute((columns, places), element, name="dequantize")
    turned = te.compute((places, columns), lambda i, j: restored[j, i], name="transpose")
    axis = te.reduce_axis((0, places), "k")
    product = te.compute(
        shape(columns),
        lambda a, b, j: te.sum(x[a, b, axis].astype(out) * turned[axis, j].astype(out), axis=axis),
        name="matmul",
    )
    arguments = [x, words, scales]
    if gated:
        return te.create_prim_func([*arguments, _gated(product, shape(tirx.IntImm("int64", n // 2)), n // 2, dtype)])
    if not residual:
        return te.create_prim_func([*arguments, product])
    other = te.placeholder(shape(columns), out, name="other")
    total = te.compute(shape(columns), lambda a, b, j: product[a, b, j] + other[a, b, j], name="add")
    return te.create_prim_func([*arguments, other, total])


def plain_product(n: int, k: int, rows: int | None, *, dtype: str = "float32", gated: bool = False) -> tirx.PrimFunc:
    """x (1, rows, k) times a matrix (n, k) → (1, rows, n), or `gated` as in `packed_product`."""
    count, columns, places = _size(rows), tirx.IntImm("int64", n), tirx.IntImm("int64", k)
    one = tirx.IntImm("int64", 1)
    x = te.placeholder((one, count, places), dtype, name="x")
    matrix = te.placeholder((columns, places), dtype, name="matrix")
    axis = te.reduce_axis((0, places), "k")
    product = te.compute(
        (one, count, columns), lambda a, b, j: te.sum(x[a, b, axis] * matrix[j, axis], axis=axis), name="matmul"
    )
    if gated:
        return te.create_prim_func([x, matrix, _gated(product, (one, count, n // 2), n // 2, dtype)])
    return te.create_prim_func([x, matrix, product])


def float8_product(n: int, k: int, rows: int) -> tirx.PrimFunc:
    """x (1, rows, k) in float16 times a matrix (n, k) of bytes that are the higher ones of float16s."""
    count, columns, places = (tirx.IntImm("int64", size) for size in (rows, n, k))
    one = tirx.IntImm("int64", 1)
    x = te.placeholder((one, count, places), "float16", name="x")
    stored = te.placeholder((columns, places), "uint8", name="stored")
    matrix = te.compute(
        stored.shape,
        lambda i, j: tirx.reinterpret("float16", stored[i, j].astype("uint16") << tirx.const(8, "uint16")),
        name="dequantize",
    )
    axis = te.reduce_axis((0, places), "k")
    product = te.compute(
        (one, count, columns), lambda a, b, j: te.sum(x[a, b, axis] * matrix[j, axis], axis=axis), name="matmul"
    )
    return te.create_prim_func([x, stored, product])


def _gated(product: te.Tensor, shape: tuple[Any, ...], half: int, dtype: str) -> te.Tensor:
    rounded = te.compute(product.shape, lambda a, b, j: product[a, b, j].astype(dtype), name="cast")
    gate = te.compute(shape, lambda a, b, j: rounded[a, b, j], name="gate")
    up = te.compute(shape, lambda a, b, j: rounded[a, b, j + half], name="up")
    one = tirx.const(1, "float32")

    def element(a: Any, b: Any, j: Any) -> Any:
        value = gate[a, b, j].astype("float32")
        return (value / (one + tirx.exp(-value))).astype(dtype) * up[a, b, j]

    return te.compute(shape, element, name="silu_multiply")


def silu_gated(product: Array) -> Array:
    """What a `gated` product stores of (…, n) numbers."""
    gate, up = np.split(product, 2, axis=-1)
    return np.asarray(gate / (1 + np.exp(-gate)) * up)


def _size(rows: int | None) -> Any:
    return tirx.Var("rows", "int64") if rows is None else tirx.IntImm("int64", rows)


def _restored(words: te.Tensor, scales: te.Tensor, bits: int, group: int, dtype: str, by_columns: bool) -> Any:
    per_word = 32 // bits

    def at(row: tirx.Var, along: tirx.Expr) -> tuple[tirx.Expr, tirx.Expr]:
        return (along, row) if by_columns else (row, along)

    def element(row: tirx.Var, place: tirx.Var) -> tirx.Expr:
        shift = (place % per_word * bits).astype("uint32")
        mask = tirx.const((1 << bits) - 1, "uint32")
        integer = tirx.bitwise_and(tirx.shift_right(words[at(row, place // per_word)], shift), mask).astype(dtype)
        return (integer - tirx.const((1 << (bits - 1)) - 1, dtype)) * scales[at(row, place // group)]

    return element


def packed_arrays(n: int, k: int, rows: int, *, dtype: str, bits: int, group: int, seed: int = 0) -> list[Array]:
    """x, words and scales for `packed_product`, by rows."""
    random = np.random.default_rng(seed)
    per_word, groups = 32 // bits, -(-k // group)
    words = random.integers(0, 2**32, (n, groups * (group // per_word)), dtype=np.uint32)
    x = random.standard_normal((1, rows, k)).astype(dtype_of(dtype))
    return [x, words, (random.random((n, groups)) / 8).astype(dtype_of(dtype))]


def restored_matrix(words: Array, scales: Array, *, bits: int, group: int) -> Array:
    """The matrix in float64, with all columns of its last group."""
    per_word = 32 // bits
    integers = (words[:, :, None] >> (bits * np.arange(per_word, dtype=np.uint32))) & ((1 << bits) - 1)
    values = integers.reshape(words.shape[0], -1).astype(np.float64) - ((1 << (bits - 1)) - 1)
    restored: Array = values * np.repeat(scales.astype(np.float64), group, axis=1)
    return restored
