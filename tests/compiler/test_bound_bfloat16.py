"""What a kernel binds to a name is right in bfloat16 too, where TVM computes it in float32."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import tvm
import tvm.tirx.script.builder as T  # noqa: N812
from tvm import te, tirx

from mlcbuild.compiler.kernels.bound_bfloat16 import store_before_binding
from mlcbuild.compiler.kernels.building import Buffer, lanes, loop, replace_body, statement, store
from tests.compiler.kernel_running import TARGET, Array, compiled, run

X = np.array([1.5, -2.25, 3.0, 0.125, 7.0, -0.5, 100.0, 1e-3], ml_dtypes.bfloat16)
Y = np.array([2.0, 4.0, -0.5, 8.0, 1.0, 3.0, 0.25, -16.0], ml_dtypes.bfloat16)


def _kernel(body: object) -> tirx.PrimFunc:
    """A kernel of x and y (8,) in bfloat16 → z (8,) in float32 and w (8,) in bfloat16, whose body `body` writes."""
    x, y = te.placeholder((8,), "bfloat16", name="x"), te.placeholder((8,), "bfloat16", name="y")
    z = te.compute((8,), lambda i: (x[i] + y[i]).astype("float32"), name="z")
    w = te.compute((8,), lambda i: x[i] + y[i], name="w")
    function = te.create_prim_func([x, y, z, w])
    return replace_body(function, statement(lambda: body(*function.params)))  # type: ignore[operator]


def _one_by_one(x: Buffer, y: Buffer, z: Buffer, w: Buffer) -> None:
    with loop(8) as i:
        wide = T.bind(T.Cast("float32", x[i]))
        product = T.bind(T.Cast("float32", x[i] * y[i]))
        store(z, wide + product, i)
        narrow = T.bind(x[i] * y[i])
        store(w, narrow + x[i], i)


def _in_vectors(x: Buffer, y: Buffer, z: Buffer, w: Buffer) -> None:
    places = lanes(T.int32(0), 8)
    left, right = (T.bind(T.Cast("float32x8", buffer[places])) for buffer in (x, y))
    store(z, left + left * right, places)
    store(w, T.Cast("bfloat16x8", left * right + left), places)


def _run(body: object) -> tuple[Array, Array]:
    z, w = run(_kernel(body), [X, Y, np.zeros(8, np.float32), np.zeros(8, ml_dtypes.bfloat16)])[-2:]
    return z, w.astype(np.float32)


def test_numbers_one_by_one_and_in_vectors() -> None:
    x, y = X.astype(np.float32), Y.astype(np.float32)
    for body in (_one_by_one, _in_vectors):
        z, w = _run(body)
        np.testing.assert_allclose(z, x + x * y, rtol=2**-8, err_msg=str(body))
        np.testing.assert_allclose(w, x * y + x, rtol=2**-7, err_msg=str(body))


def test_a_kernel_without_bfloat16_stays_as_it_is() -> None:
    x = te.placeholder((8,), "float16", name="x")
    module = tvm.IRModule({"main": te.create_prim_func([x, te.compute((8,), lambda i: x[i] * 2)])})
    assert store_before_binding(module) is module


def test_tvm_itself_still_takes_what_is_bound_for_integers() -> None:
    """The pass can go once this fails."""
    kernel = _kernel(_in_vectors)
    assert compiled(kernel) is not None
    module = tvm.IRModule({"kernel": kernel.with_attr("global_symbol", "kernel")})
    broken = tvm.tirx.build(module, target=TARGET)["kernel"]
    found = run(broken, [X, Y, np.zeros(8, np.float32), np.zeros(8, ml_dtypes.bfloat16)])[2]
    bits = [array.view(np.uint16).astype(np.float32) for array in (X, Y)]
    np.testing.assert_array_equal(found, bits[0] + bits[0] * bits[1])
