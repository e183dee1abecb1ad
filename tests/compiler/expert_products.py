"""Products of rows with their experts' matrices, as fusion leaves them, and what they should give."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx

from mlcbuild.compiler.models.layers.experts import expert_product
from mlcbuild.compiler.weights.tensor import dtype_of
from tests.compiler.kernel_running import Array


def product(
    experts: int,
    n: int,
    k: int,
    choices: int,
    tokens: int | None,
    *,
    dtype: str = "float32",
    packed: bool = True,
    numbers: bool = False,
    rows: bool = False,
) -> tirx.PrimFunc:
    """x (tokens, k), or with `rows` (tokens, choices, k), times matrices (experts, n, k), packed as q4f16_1 has them or
    as they are. With `numbers` a row's token is told by its choice's number. `tokens` None is known at run time."""
    count = tirx.Var("tokens", "int64") if tokens is None else _size(tokens)
    per_row = (_size(choices),) if rows else ()
    x = te.placeholder((count, *per_row, _size(k)), dtype, name="x")
    chosen = te.placeholder((count, _size(choices)), "int32", name="chosen")
    order = [te.placeholder((count, _size(choices)), "int32", name="numbers")] if numbers else []
    if packed:
        words = te.placeholder((_size(experts), _size(n), _size(k // 8)), "uint32", name="words")
        scales = te.placeholder((_size(experts), _size(n), _size(k // 32)), dtype, name="scales")
        stored = [words, scales]

        def element(e: tirx.Var, row: tirx.Var, place: tirx.Var) -> tirx.Expr:
            shift = (place % 8 * 4).astype("uint32")
            integer = tirx.bitwise_and(tirx.shift_right(words[e, row, place // 8], shift), tirx.const(15, "uint32"))
            return (integer.astype(dtype) - tirx.const(7, dtype)) * scales[e, row, place // 32]

        matrices = te.compute((_size(experts), _size(n), _size(k)), element, name="dequantize")
    else:
        matrices = te.placeholder((_size(experts), _size(n), _size(k)), dtype, name="matrices")
        stored = [matrices]
    return te.create_prim_func([x, chosen, *stored, *order, expert_product(x, chosen, matrices, *order)])


def arguments(
    chosen: Array, experts: int, n: int, k: int, *, dtype: str, packed: bool, numbers: Array | None, rows: bool
) -> list[Array]:
    """The arguments of such a kernel for chosen experts (tokens, choices), with room for the result."""
    random = np.random.default_rng(3)
    tokens, choices = chosen.shape
    kind = dtype_of(dtype)
    x = random.standard_normal((tokens, choices, k) if rows else (tokens, k), np.float32).astype(kind)
    if packed:
        words = random.integers(0, 2**32, (experts, n, k // 8), dtype=np.uint32)
        stored = [words, (random.random((experts, n, k // 32), np.float32) / 8).astype(kind)]
    else:
        stored = [random.standard_normal((experts, n, k), np.float32).astype(kind)]
    order = [] if numbers is None else [numbers.astype(np.int32)]
    return [x, chosen.astype(np.int32), *stored, *order, np.zeros((tokens, choices, n), kind)]


def arrays(
    chosen: Array, experts: int, n: int, k: int, *, dtype: str, packed: bool, numbers: Array | None, rows: bool
) -> tuple[list[Array], Array]:
    """The arguments, and the result in float64."""
    given = arguments(chosen, experts, n, k, dtype=dtype, packed=packed, numbers=numbers, rows=rows)
    stored: list[Array]
    x, _, *stored = (array.astype(np.float64) if array.dtype != np.uint32 else array for array in given)
    tokens, choices = chosen.shape
    matrices = stored[0]
    if packed:
        integers = (stored[0][..., None] >> (4 * np.arange(8, dtype=np.uint32))) & 15
        matrices = (integers.reshape(experts, n, k).astype(np.float64) - 7) * np.repeat(stored[1], 32, axis=-1)
    order = np.arange(tokens * choices) if numbers is None else numbers.reshape(-1)
    vectors = x.reshape(-1, k) if rows else x[order // choices]
    expected = np.einsum("rnk,rk->rn", matrices[chosen.reshape(-1)], vectors).reshape(tokens, choices, n)
    return given, expected


def sorted_choices(chosen: Array) -> tuple[Array, Array]:
    """The experts in order, and the choices' numbers in that order."""
    numbers = np.argsort(chosen.reshape(-1), kind="stable")
    return chosen.reshape(-1)[numbers].reshape(chosen.shape), numbers.reshape(chosen.shape)


def random_choices(experts: int, tokens: int, choices: int) -> Array:
    """Experts of tokens, those of a token distinct."""
    random = np.random.default_rng(5)
    return np.stack([random.permutation(experts)[:choices] for _ in range(tokens)])


def _size(size: int) -> Any:
    return tirx.IntImm("int64", size)
