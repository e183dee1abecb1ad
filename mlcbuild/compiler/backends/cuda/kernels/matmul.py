"""A matrix times any number of vectors: the number decides, before anything is launched, which kernel is."""

from __future__ import annotations

import tvm
import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cuda import architectures, dependent_launch
from mlcbuild.compiler.backends.cuda.kernels import few_vectors, gemv, many_vectors, operands
from mlcbuild.compiler.kernels.building import replace_body, statement
from mlcbuild.compiler.kernels.matmul_pattern import MatrixProduct, match_matrix_product


def schedule_matmul(func: tirx.PrimFunc, target: tvm.target.Target) -> tirx.PrimFunc | None:
    """None unless `func` is a matrix, of halves or packed integers, times vectors of halves, with at most element-wise
    blocks after it, for an architecture whose tensor cores multiply 16 × 8 × 16 halves."""
    product = match_matrix_product(func)
    if product is None or not operands.fits(product):
        return None
    architecture = str(target.attrs["arch"])
    if not architectures.has_mma_m16n8k16(architecture):
        return None
    early = dependent_launch.begins_early(architecture)
    return replace_body(product.func, statement(lambda: _choose(product, early=early)))


def _choose(product: MatrixProduct, *, early: bool) -> None:
    rows = product.rows
    if isinstance(rows, int):
        (few_vectors.multiply_few if rows <= few_vectors.MOST else many_vectors.multiply_many)(product)
        return
    if not gemv.fits(product):
        _either(rows <= few_vectors.MOST, product, few_vectors.multiply_few, many_vectors.multiply_many)
        return
    with T.If(rows == 1):
        with T.Then():
            gemv.multiply_one(product, gemv.shape_for(product), early=early)
        with T.Else():
            _either(rows <= few_vectors.MOST, product, few_vectors.multiply_few, many_vectors.multiply_many)


def _either(condition: tirx.Expr, product: MatrixProduct, first: object, second: object) -> None:
    with T.If(condition):
        with T.Then():
            first(product)  # type: ignore[operator]
        with T.Else():
            second(product)  # type: ignore[operator]
