"""DispatchTritonKernel: kernels stand where patterns are, and are started with what they are declared to get."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, tirx

from mlcbuild.compiler.backends.cuda import triton_launch
from mlcbuild.compiler.backends.cuda.passes.dispatch_triton_kernel import dispatch_triton_kernels
from mlcbuild.compiler.operator_pattern import check_expression, parse_pattern, tensors_of
from mlcbuild.compiler.passes.canonical_kernel import canonicalize
from mlcbuild.errors import StageError

WIDTH, BLOCK = 48, 64
HALVES = "split(x, indices_or_sections=2, axis=-1)"
SILU: Mapping[str, Any] = {
    "function": "kernels.silu:silu_multiply",
    "pattern": f"multiply(nn.silu({HALVES}[0]), {HALVES}[1])",
    "output": "output",
    "signature": [["x", "*fp32"], ["output", "*fp32"], ["elements", "i32"], ["width", "i32"]],
    "aligned": ["x", "width"],
    "constants": [["BLOCK", BLOCK]],
    "arguments": {"elements": "size(output)", "width": "output.shape[-1]"},
    "grid": ["cdiv(size(output), BLOCK)", "x.shape[0]"],
    "warps": 4,
    "stages": 2,
}


def _module(axis: int = -1) -> tvm.IRModule:
    """silu of one half of each row times the other half, which it returns as well."""
    builder = relax.BlockBuilder()
    rows = tirx.Var("rows", "int64")
    x = relax.Var("x", relax.TensorType((1, rows, 2 * WIDTH), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            halves = builder.emit(relax.op.split(x, 2, axis=axis))
            gate, up = builder.emit(relax.TupleGetItem(halves, 0)), builder.emit(relax.TupleGetItem(halves, 1))
            product = builder.emit(relax.op.multiply(builder.emit(relax.op.nn.silu(gate)), up))
            out = builder.emit_output(relax.Tuple([product, up]))
        builder.emit_func_output(out)
    return builder.finalize()


def _kernel(module: tvm.IRModule) -> tirx.PrimFunc:
    (kernel,) = [each for _, each in module.functions_items() if isinstance(each, tirx.PrimFunc)]
    return kernel


def test_the_kernel_takes_the_place_of_the_pattern_and_others_keep_what_they_read() -> None:
    made = dispatch_triton_kernels(_module(), [SILU])
    relax.analysis.well_formed(made)
    text = made["main"].script()
    assert "R.call_tir(silu_multiply, (x,)" in text
    assert "silu(" not in text
    assert "R.multiply" not in text
    assert "R.split" in text, "the second half is a result"
    (described,) = canonicalize(_kernel(made)).device_kernels
    told = ("function", "signature", "aligned", "constants", "warps", "stages")
    assert {name: described[name] for name in told} == {name: SILU[name] for name in told}


def test_the_host_starts_it_with_the_declared_numbers() -> None:
    """What is started is a function of Python that computes by NumPy, at the addresses and with the numbers it gets."""
    kernel = _kernel(dispatch_triton_kernels(_module(), [SILU]))
    (described,) = canonicalize(kernel).device_kernels
    name = described["name"]
    seen: list[tuple[int, ...]] = []

    def started(x: Any, output: Any, elements: int, width: int, _first: Any, _second: Any, *launch: int) -> None:
        def at(address: Any, count: int) -> np.ndarray[Any, np.dtype[np.float32]]:
            place = int(address.value or 0) if isinstance(address, ctypes.c_void_p) else int(address)
            return np.ctypeslib.as_array((ctypes.c_float * count).from_address(place))

        seen.append((elements, width, *launch))
        rows = at(x, 2 * elements).reshape(-1, 2, width)
        result = rows[:, 0] / (1 + np.exp(-rows[:, 0])) * rows[:, 1]
        at(output, elements)[:] = result.reshape(-1)

    tvm_ffi.register_global_func(name, started, override=True)
    named = tvm.IRModule({tvm.ir.GlobalVar("f"): kernel.with_attr("global_symbol", "f")})
    library = tvm.tirx.build(triton_launch.with_numbers(named, {name: (128, 4096)}), target="llvm")
    given = np.random.default_rng(0).standard_normal((1, 5, 2 * WIDTH)).astype("float32")
    result = tvm.runtime.tensor(np.zeros((1, 5, WIDTH), "float32"))
    library["f"](tvm.runtime.tensor(given), result)
    gate, up = np.split(given.astype("float64"), 2, axis=-1)
    np.testing.assert_allclose(result.numpy(), gate / (1 + np.exp(-gate)) * up, rtol=1e-5, atol=1e-6)
    assert seen == [(5 * WIDTH, WIDTH, -(-5 * WIDTH // BLOCK), 1, 128, 4096)]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"pattern": f"multiply(nn.gelu({HALVES}[0]), {HALVES}[1])"}, "`mlcbuild show TARGET Phase0 --ir` shows"),
        ({"pattern": f"multiply(nn.silu({HALVES}[1]), {HALVES}[0])"}, "`mlcbuild show TARGET Phase0 --ir` shows"),
        ({"pattern": "multiply(nn.silu(split(x)[0]), split(x)[1])"}, "`mlcbuild show TARGET Phase0 --ir` shows"),
        ({"pattern": f"multiply(nn.silu({HALVES}[0]), {HALVES.replace('x', 'y')}[1])"}, "`mlcbuild show TARGET"),
        ({"signature": [["x", "*fp16"], *SILU["signature"][1:]]}, "x is float32, and *fp16 is declared"),
        ({"aligned": ["elements"]}, "elements is rows"),
    ],
)
def test_what_is_not_as_declared_is_no_place(change: Mapping[str, Any], told: str) -> None:
    with pytest.raises(StageError, match="silu_multiply stands for nothing in this model") as raised:
        dispatch_triton_kernels(_module(), [{**SILU, **change}])
    assert told.replace("rows", "n0") in raised.value.advice[0]


def test_all_attributes_of_an_operator_count() -> None:
    with pytest.raises(StageError, match="stands for nothing"):
        dispatch_triton_kernels(_module(axis=2), [SILU])
    pattern = SILU["pattern"].replace("axis=-1", "axis=2")
    assert dispatch_triton_kernels(_module(axis=2), [{**SILU, "pattern": pattern}])


def test_a_kernel_of_the_graph_is_matched_by_its_name() -> None:
    declared = {
        **SILU,
        "pattern": "add(tir.silu_multiply(x), bias)",
        "function": "kernels.own:after",
        "signature": [["x", "*fp32"], ["bias", "*fp32"], ["output", "*fp32"], ["elements", "i32"], ["width", "i32"]],
        "grid": ["1"],
    }
    builder = relax.BlockBuilder(dispatch_triton_kernels(_module(), [SILU]))
    x = relax.Var("x", relax.TensorType((1, 3, 2 * WIDTH), "float32"))
    bias = relax.Var("bias", relax.TensorType((WIDTH,), "float32"))
    type_ = relax.TensorType((1, 3, WIDTH), "float32")
    with builder.function("other", [x, bias]):
        with builder.dataflow():
            first = builder.emit(relax.call_tir(builder.get().get_global_var("silu_multiply"), (x,), out_ty=type_))
            out = builder.emit_output(relax.op.add(first, bias))
        builder.emit_func_output(out)
    made = dispatch_triton_kernels(builder.get(), [declared])
    assert "R.call_tir(after, (x, bias)" in made["other"].script()


def test_expressions_are_made_of_sizes() -> None:
    pattern = parse_pattern(SILU["pattern"])
    assert tensors_of(pattern) == ("x",)
    for text in ("1", "BLOCK", "x.shape[-1] // 2", "cdiv(size(x), BLOCK) * 2 + 1 - x.shape[0]"):
        check_expression(text, ("x",), ("BLOCK",))
    for text in (
        "True",
        "1.5",
        "x",
        "y.shape[0]",
        "x.shape[9]",
        "x.shape[x]",
        "len(x)",
        "x.shape[0] ** 2",
        "(",
        "size(x, x)",
    ):
        with pytest.raises(ValueError, match=r"is no size|cannot be read|is no tensor|sizes, and none at|malformed"):
            check_expression(text, ("x",), ("BLOCK",))
