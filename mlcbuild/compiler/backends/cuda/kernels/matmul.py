"""A matrix times any number of vectors: the number decides, before anything is launched, which kernel is.

Measurements may choose the tile by which warpgroups multiply up to `_MOST_CHOSEN` vectors, which is what is measured;
the sizes choose the others.
"""

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
from mlcbuild.compiler.kernels.matmul_pattern import MatrixProduct
from mlcbuild.compiler.kernels.shapes import ShapedRule

_MOST_CHOSEN = 128
_BY_SIZES = 0


@dataclass(frozen=True, kw_only=True)
class ProductShape:
    """The tile of a product by warpgroups (`tile_product.TileShape`): its `vectors`, the `stages` on their way, and the
    blocks of a `cluster`. Without `vectors` the sizes of the product choose tile and cluster (`tile_product.shapes`).
    """

    vectors: int = _BY_SIZES
    stages: int = 4
    cluster: int = 1

    def __post_init__(self) -> None:
        if self.vectors != _BY_SIZES:
            tile_product.TileShape(vectors=self.vectors, stages=self.stages, cluster=self.cluster)
        elif (self.stages, self.cluster) != (4, 1):
            raise ValueError(f"no tile, but stages and a cluster of one: {self}")

    @property
    def tile(self) -> tile_product.TileShape:
        return tile_product.TileShape(vectors=self.vectors, stages=self.stages, cluster=self.cluster)


@dataclass(frozen=True, kw_only=True)
class Matched:
    """A product that our own kernels have, for an architecture."""

    product: MatrixProduct
    architecture: str

    @property
    def has_tiles(self) -> bool:
        return self.architecture == tile_product.ARCHITECTURE and tile_product.fits(self.product)


def match(func: tirx.PrimFunc, target: tvm.target.Target) -> Matched | None:
    """None unless `func` is a matrix, of halves or bfloat16 or restored to them, times vectors of the same, with at
    most element-wise blocks after it, for an architecture whose tensor cores multiply 16 × 8 × 16 halves."""
    product = operands.match(func, gated=True)
    if product is None or not operands.fits(product):
        return None
    architecture = str(target.attrs["arch"])
    if not architectures.has_mma_m16n8k16(architecture):
        return None
    return Matched(product=product, architecture=architecture)


def _has_tile(matched: Matched, shape: ProductShape) -> bool:
    """Whether a product can have a tile, and it changes anything: fewer vectors are not multiplied by tiles, more have
    the largest one, and a known number has one by default."""
    product = matched.product
    if not matched.has_tiles or shape.vectors == _BY_SIZES or not tile_product.can_have(product, shape.tile):
        return False
    rows = product.rows
    if not isinstance(rows, int):
        return True
    default = next(tile for most, tile in tile_product.shapes(product.n, product.k) if most is None or rows <= most)
    return few_vectors.SIZES[-1] < rows <= _MOST_CHOSEN and shape.tile != default


def build(matched: Matched, shape: ProductShape) -> tirx.PrimFunc:
    return replace_body(matched.product.func, statement(lambda: launches(matched, shape)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """A kernel, and the most vectors that it is for; None: any number."""

    most: int | None
    body: Callable[[], None]


def _ways(matched: Matched, shape: ProductShape) -> list[_Way]:
    """The kernels of a product, that for the fewest vectors first."""
    product = matched.product
    early = dependent_launch.begins_early(matched.architecture)
    ways = [
        _Way(
            most=vectors,
            body=partial(
                few_vectors.multiply_few, product, few_vectors.shape_for(product, vectors), vectors=vectors, early=early
            ),
        )
        for vectors in few_vectors.SIZES
    ]
    if operands.fits_one_vector(product):
        ways.insert(0, _Way(most=1, body=lambda: gemv.multiply_one(product, gemv.shape_for(product), early=early)))
    if not matched.has_tiles:
        return [*ways, _Way(most=None, body=lambda: many_vectors.multiply_many(product))]
    tiles = tile_product.shapes(product.n, product.k)
    if shape.vectors != _BY_SIZES:
        beyond = [(most, each) for most, each in tiles if most is None or most > _MOST_CHOSEN]
        tiles = [(_MOST_CHOSEN, shape.tile), *beyond]
    return ways + [_Way(most=most, body=partial(tile_product.multiply_tiles, product, shape)) for most, shape in tiles]


def launches(matched: Matched, shape: ProductShape) -> None:
    ways = _ways(matched, shape)
    rows = matched.product.rows
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


schedule_matmul = ShapedRule(
    name="cuda.matmul",
    shape=ProductShape,
    values={"vectors": (64, 128, 256), "stages": (3, 4, 5, 6), "cluster": (1, 2, 4, 8)},
    match=match,
    default=lambda _matched: ProductShape(),
    fits=_has_tile,
    build=build,
    sizes=(32, 64, _MOST_CHOSEN),
    version=3,
)
