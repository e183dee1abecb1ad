"""A matrix times any number of vectors: the number decides, before anything is launched, which kernel is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import tvm
import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cuda import architectures, dependent_launch
from mlcbuild.compiler.backends.cuda.kernels import few_vectors, gemv, many_vectors, operands, tile_product
from mlcbuild.compiler.kernels.building import Expression, replace_body, statement
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
    return replace_body(product.func, statement(lambda: _launches(product, architecture)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """A kernel, and the most vectors that it is for; None: any number."""

    most: int | None
    body: Callable[[], None]


def _ways(product: MatrixProduct, architecture: str) -> list[_Way]:
    """The kernels of a product, that for the fewest vectors first."""
    early = dependent_launch.begins_early(architecture)
    ways = [
        _Way(most=vectors, body=partial(few_vectors.multiply_few, product, vectors=vectors))
        for vectors in few_vectors.SIZES
    ]
    if gemv.fits(product):
        ways.insert(0, _Way(most=1, body=lambda: gemv.multiply_one(product, gemv.shape_for(product), early=early)))
    if architecture != tile_product.ARCHITECTURE or not tile_product.fits(product):
        return [*ways, _Way(most=None, body=lambda: many_vectors.multiply_many(product))]
    tiles = tile_product.shapes(product.n, product.k)
    return ways + [_Way(most=most, body=partial(tile_product.multiply_tiles, product, shape)) for most, shape in tiles]


def _launches(product: MatrixProduct, architecture: str) -> None:
    ways = _ways(product, architecture)
    rows = product.rows
    if isinstance(rows, int):
        next(way for way in ways if way.most is None or rows <= way.most).body()
    else:
        _first_that_takes(rows, ways)


def _first_that_takes(rows: Expression, ways: Sequence[_Way]) -> None:
    first, *others = ways
    if first.most is None:
        first.body()
        return
    with T.If(rows == 1 if first.most == 1 else rows <= first.most):
        with T.Then():
            first.body()
        with T.Else():
            _first_that_takes(rows, others)
