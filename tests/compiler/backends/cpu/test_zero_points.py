"""Products with integers that have zero points, in AWQ's layout, on a CPU."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from mlcbuild.compiler.backends.cpu.kernels import zero_points
from mlcbuild.compiler.backends.cpu.kernels.zero_points import schedule_zero_points
from mlcbuild.compiler.kernels.zero_point_matrix import match_zero_point_matrix
from mlcbuild.compiler.quantization.awq.reader import restoring
from mlcbuild.compiler.quantization.awq.scheme import AwqScheme
from tests.compiler import schemes
from tests.compiler.kernel_running import TARGET, Array, compiled, packed_product, run, scheduled
from tests.compiler.schemes import matrix

_SCHEME = AwqScheme(name="q4f16_autoawq", model_dtype="float16", group_size=128)


def _kernel(n: int, k: int, rows: int | None, *, residual: bool = False, dtype: str = "float16") -> tirx.PrimFunc:
    """x (1, rows, k) times the transpose of a matrix (n, k) as it is stored, and a residual is added."""
    count = te.var("rows", "int64") if rows is None else rows
    x = te.placeholder((1, count, k), dtype, "x")
    words, zeros, scales, restored = _restored(n, k)
    along = te.reduce_axis((0, k), "k")
    product = te.compute(
        (1, count, n),
        lambda b, i, j: te.sum(x[b, i, along].astype("float32") * restored[j, along].astype("float32"), axis=along),
        name="product",
    )
    more = [te.placeholder(product.shape, "float32", "residual")] if residual else []
    made = te.compute(product.shape, lambda *at: product[at] + more[0][at], name="add") if residual else product
    return te.create_prim_func([x, words, zeros, scales, *more, made])


def _restored(n: int, k: int) -> tuple[te.Tensor, ...]:
    """The three stored tensors, and what the scheme's reader restores of them."""
    groups = _SCHEME.groups(k)
    words = te.placeholder((k, n // 8), "uint32", "words")
    zeros = te.placeholder((groups, n // 8), "uint32", "zeros")
    scales = te.placeholder((groups, n), "float16", "scales")

    def element(row: tirx.Var, column: tirx.Var) -> tirx.Expr:
        shift = ((row % 8 // 2 + row % 2 * 4) * 4).astype("uint32")
        mask = tirx.const(15, "uint32")
        integer, zero = (
            tirx.bitwise_and(tirx.shift_right(found[place, row // 8], shift), mask).astype("float16")
            for found, place in ((words, column), (zeros, column // 128))
        )
        return (integer - zero) * scales[column // 128, row]

    return words, zeros, scales, te.compute((n, k), element, name="dequantize")


def _arrays(n: int, k: int, rows: int, *, residual: bool = False) -> tuple[list[Array], Array]:
    random = np.random.default_rng(n + k + rows)
    weight = matrix((n, k))
    numbers = random.standard_normal((n, k)).astype(np.float16)
    stored = schemes.encoder(_SCHEME).encode(weight, numbers)
    restored = schemes.encoder(_SCHEME).decode(weight, stored).astype(np.float64)
    x = random.standard_normal((1, rows, k)).astype(np.float16)
    expected = x.astype(np.float64) @ restored.T
    more = [random.standard_normal(expected.shape).astype(np.float32)] if residual else []
    arrays = [x, *stored, *more, np.zeros(expected.shape, np.float32)]
    return arrays, expected + more[0] if residual else expected


@pytest.fixture(params=[8, 16])
def registers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Processors with registers of eight floats compute with sixteen too, in two of them."""
    monkeypatch.setattr(zero_points, "register_lanes", lambda _target: request.param)
    return int(request.param)


@pytest.mark.parametrize(("n", "k"), [(16, 128), (48, 40), (64, 320), (576, 256)])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.usefixtures("registers")
def test_products_are_right(n: int, k: int, residual: bool) -> None:
    for known in (None, 1, 3):
        kernel = compiled(scheduled(schedule_zero_points, _kernel(n, k, known, residual=residual)))
        for rows in (1, 2, 4, 7) if known is None else (known,):
            arrays, expected = _arrays(n, k, rows, residual=residual)
            found = run(kernel, arrays)[-1]
            # The stored weights are rounded to float16 where they are restored, and here they are not.
            np.testing.assert_allclose(found, expected, atol=2.0**-10 * np.abs(expected).max(), rtol=0)


@pytest.mark.usefixtures("registers")
def test_a_vector_has_the_same_numbers_alone_and_among_others() -> None:
    kernel = compiled(scheduled(schedule_zero_points, _kernel(64, 320, None)))
    alone = compiled(scheduled(schedule_zero_points, _kernel(64, 320, 1)))
    (x, *stored, out), _ = _arrays(64, 320, 11)
    whole = run(kernel, [x, *stored, out])[-1]
    for first, count in ((0, 1), (4, 1), (10, 1), (3, 2), (2, 5)):
        part, made = x[:, first : first + count], np.zeros((1, count, 64), np.float32)
        np.testing.assert_array_equal(run(kernel, [part, *stored, made])[-1], whole[:, first : first + count])
        if count == 1:
            np.testing.assert_array_equal(run(alone, [part, *stored, made])[-1], whole[:, first : first + 1])


def test_threads_share_a_matrix_of_many_rows() -> None:
    assert "T.parallel" in scheduled(schedule_zero_points, _kernel(512, 256, 1)).script()


def test_the_readers_matrix_is_known() -> None:
    """The kernel above restores as the scheme's reader does."""
    kernel = restoring(_SCHEME, 64, 256)
    block = kernel.body.block.body
    while isinstance(block, tirx.For):
        block = block.body
    found = block.block
    n, k = (axis.var for axis in found.iter_vars)
    matched = match_zero_point_matrix(found.body.value, n=n, k=k)
    assert matched is not None
    assert (matched.group, matched.rows) == (128, (0, 2, 4, 6, 1, 3, 5, 7))


@pytest.mark.parametrize(
    "func", [packed_product(16, 64, None), _kernel(8, 128, None), _kernel(16, 12, None)], ids=["packed", "n", "k"]
)
def test_other_products_are_left_alone(func: tirx.PrimFunc) -> None:
    assert schedule_zero_points(func, TARGET) is None


def test_every_target_has_code() -> None:
    for mcpu, triple in (("x86-64-v4", "x86_64-linux-gnu"), ("neoverse-n1", "aarch64-linux-gnu")):
        target = tvm.target.Target({"kind": "llvm", "mcpu": mcpu, "mtriple": triple})
        kernel = schedule_zero_points(_kernel(256, 128, None), target)
        assert kernel is not None
        tvm.tirx.build(tvm.IRModule({"kernel": kernel.with_attr("global_symbol", "kernel")}), target=target)
