"""A matrix of halves times vectors by cuBLAS, from a number of vectors on: for platforms with `libraries = ["cublas"]`.

Fewer vectors are multiplied by our own kernels (`kernels.matmul`), as without cuBLAS. What follows the product in the
kernel, such as the sum with a residual, reads what cuBLAS has stored, in a launch of its own. The memory for that, and
cuBLAS's own, are the caller's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm.tirx.script.builder as T  # noqa: N812
import tvm_ffi
from tvm import s_tir, tirx

from mlcbuild.compiler.backends.cuda.kernels import instructions as gpu
from mlcbuild.compiler.backends.cuda.kernels import matmul, results
from mlcbuild.compiler.backends.cuda.libraries import cublas_interface
from mlcbuild.compiler.kernels.building import Buffer, Expression, lanes, statement, store
from mlcbuild.compiler.kernels.matmul_pattern import MatrixProduct
from mlcbuild.compiler.kernels.shapes import ShapedRule

_HALF = "float16"
_NEVER = 1 << 30
_DEFAULT_FEWEST = 65  # docs/cuda.md: 128 vectors take 4.4 ms instead of 5.8, 64 as long as with our own kernels
_THREADS = 256
_TOGETHER = 8  # elements that a thread reads and stores at a time


@dataclass(frozen=True, kw_only=True)
class CublasShape:
    """`fewest` is the number of vectors from which on cuBLAS multiplies; `_NEVER` leaves all to our own kernels."""

    fewest: int = _DEFAULT_FEWEST

    def __post_init__(self) -> None:
        if self.fewest < 2:
            raise ValueError(f"one vector is not cuBLAS's: {self}")


def _match(func: tirx.PrimFunc, target: tvm.target.Target) -> matmul.Matched | None:
    """None unless our own kernels have the product, for a number of vectors that is known at run time only, its matrix
    is of halves, and vectors and results lie one behind the other from the beginning of their buffers."""
    matched = matmul.match(func, target)
    if matched is None or isinstance(matched.product.rows, int):
        return None
    product = matched.product
    stored = isinstance(product.matrix, tirx.Var) and str(product.x.dtype) == _HALF
    half = stored and str(product.output.dtype) in (_HALF, "float32")
    whole = product.n % (2 * _TOGETHER) == 0 and product.k % _TOGETHER == 0
    in_order = _in_order(product.x, product.x_indices) and _in_order(product.output, product.output_indices)
    return matched if half and whole and in_order else None


def _in_order(buffer: Buffer, indices: Sequence[Expression | None]) -> bool:
    if any(index is not None and not (isinstance(index, tirx.IntImm) and int(index) == 0) for index in indices):
        return False
    row = next((place for place, index in enumerate(indices) if index is None), len(indices))
    return all(isinstance(size, tirx.IntImm) and int(size) == 1 for size in list(buffer.shape)[row + 1 : -1])


@dataclass(frozen=True, kw_only=True)
class _Stored:
    """Where cuBLAS stores the product: in a buffer of the kernel's, which is its result where nothing follows but the
    rounding to halves, or one that the caller allocates, as halves where what follows begins with rounding."""

    buffer: Buffer
    is_result: bool

    @staticmethod
    def of(product: MatrixProduct) -> _Stored:
        epilogue = product.epilogue
        if epilogue is None:
            return _Stored(buffer=product.output, is_result=True)
        written = epilogue.block.body
        rounded = _loads_are_rounded(product)
        if rounded and isinstance(written, tirx.BufferStore) and _is_rounding(written, product.output):
            return _Stored(buffer=written.buffer, is_result=True)
        if not rounded:
            return _Stored(buffer=product.output, is_result=False)
        return _Stored(buffer=tirx.decl_buffer(product.output.shape, _HALF, "rounded"), is_result=False)


def _is_rounding(written: tirx.BufferStore, output: Buffer) -> bool:
    """Whether nothing is stored but the product's elements, each at its place."""
    value = written.value
    if not isinstance(value, tirx.Cast) or not isinstance(value.value, tvm.ir.TensorLoad):
        return False
    same_place = tvm_ffi.structural_equal(list(value.value.indices), list(written.indices))
    same_shape = tvm_ffi.structural_equal(list(written.buffer.shape), list(output.shape))
    return bool(same_place and same_shape and str(written.buffer.dtype) == _HALF)


def _loads_are_rounded(product: MatrixProduct) -> bool:
    """Whether what follows reads the product's elements only to round them to halves."""
    assert product.epilogue is not None
    loads = {"all": 0, "rounded": 0}

    def load(element: tvm.ir.TensorLoad) -> tvm.ir.TensorLoad:
        loads["all"] += element.source.same_as(product.output)
        return element

    def cast(conversion: tirx.Cast) -> tirx.Cast:
        element = conversion.value
        of_product = isinstance(element, tvm.ir.TensorLoad) and element.source.same_as(product.output)
        loads["rounded"] += of_product and str(conversion.ty.dtype) == _HALF
        return conversion

    tvm_ffi.structural_map(product.epilogue.block.body, [(tvm.ir.TensorLoad, load), (tirx.Cast, cast)])
    return loads["all"] == loads["rounded"]


def _build(matched: matmul.Matched, shape: CublasShape) -> tirx.PrimFunc:
    product = matched.product
    stored = _Stored.of(product)
    workspace: Buffer = tirx.decl_buffer((cublas_interface.WORKSPACE_BYTES,), "uint8", "cublas_workspace")

    def by_size() -> None:
        with T.If(product.rows < shape.fewest):
            with T.Then():
                matmul.launches(matched, matmul.ProductShape())
            with T.Else():
                _multiply(product, stored, workspace)

    block = s_tir.SBlock(
        iter_vars=[],
        reads=[],
        writes=[],
        name_hint="root",
        body=statement(by_size),
        alloc_buffers=[workspace] if stored.is_result else [workspace, stored.buffer],
    )
    func = product.func
    made = tirx.PrimFunc(func.params, s_tir.SBlockRealize([], True, block), func.ret_type, func.attrs)
    return made.with_attrs({"tirx.is_scheduled": True, "tirx.noalias": True})


def _multiply(product: MatrixProduct, stored: _Stored, workspace: Buffer) -> None:
    rows = tirx.Cast("int64", product.rows)
    sizes = (rows, tirx.const(product.n, "int64"), tirx.const(product.k, "int64"))
    T.evaluate(tirx.call_cpacked(cublas_interface.MATMUL, product.x, product.matrix, stored.buffer, workspace, *sizes))
    if not stored.is_result:
        _follow(product, stored.buffer)


def _follow(product: MatrixProduct, stored: Buffer) -> None:
    """What the kernel makes of the product, eight elements a thread."""
    count = results.count(product, product.n) // _TOGETHER
    with (
        T.thread_binding(0, -(-count // _THREADS), thread="blockIdx.y") as block,
        T.thread_binding(0, product.rows, thread="blockIdx.x") as row,
        T.thread_binding(0, _THREADS, thread="threadIdx.x") as thread,
    ):
        number = T.bind(block * _THREADS + thread)
        with gpu.when(number < count):
            first = number * _TOGETHER
            places = [first, first + product.n // 2] if results.is_gated(product) else [first]
            sums = [_read(stored, product.output_at(row, place)) for place in places]
            results.store_neighbours(product, sums, _TOGETHER, row=row, first=tirx.const(0, "int32"), number=first)


def _read(stored: Buffer, place: Sequence[Expression]) -> Any:
    read = T.alloc_buffer((_TOGETHER,), str(stored.dtype), scope="local")
    *outer, last = place
    store(read, stored[(*outer, lanes(last, _TOGETHER))], lanes(tirx.const(0, "int32"), _TOGETHER))
    return read


def calls_cublas(func: tirx.PrimFunc) -> bool:
    """Whether a scheduled kernel calls cuBLAS."""
    found = False

    def look(call: tvm.ir.Call) -> tvm.ir.Call:
        nonlocal found
        if call.op.same_as(_PACKED_CALL) and isinstance(call.args[0], tvm.ir.StringImm):
            found = found or str(call.args[0].value) == cublas_interface.MATMUL
        return call

    tvm_ffi.structural_map(func.body, (tvm.ir.Call, look))
    return found


_PACKED_CALL = tvm.ir.Op.get("tirx.tvm_call_cpacked")

schedule_cublas_product = ShapedRule(
    name="cuda.cublas",
    shape=CublasShape,
    values={"fewest": (17, 33, 65, 129, 257, 513, _NEVER)},
    match=_match,
    default=lambda _matched: CublasShape(),
    build=_build,
    sizes=(32, 128, 512),
)
