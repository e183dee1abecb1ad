"""A packed matrix stored by columns times vectors.

Words next to each other belong to neighbouring rows n of the matrix, so a vector has an integer of each of several
rows, and their sums. A word is read once for a few of the vectors x, whose elements are the same for all rows.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.kernels.building import Expression, float32, lanes, loop, splat, store
from mlcbuild.compiler.kernels.matmul_pattern import MatrixProduct, PackedMatrix

COLUMNS = 16  # rows n that are multiplied together: their words are a cache line
_VECTORS = 4  # vectors x that are multiplied together


def multiply_columns(
    product: MatrixProduct, x: Callable[[Expression, Expression], Expression], first: Expression, count: int
) -> None:
    """All vectors with `count` rows of the matrix, from `first` on. `x(row, k)` is an element in float32."""
    rows = product.rows
    if not isinstance(rows, int) or rows >= _VECTORS:
        with loop(tirx.floordiv(rows, _VECTORS)) as number:
            _multiply_some(product, x, number * _VECTORS, _VECTORS, first, count)
    if not isinstance(rows, int) or rows % _VECTORS:
        whole = tirx.floordiv(rows, _VECTORS) * _VECTORS
        with loop(rows - whole) as number:
            _multiply_some(product, x, whole + number, 1, first, count)


def _multiply_some(
    product: MatrixProduct,
    x: Callable[[Expression, Expression], Expression],
    row: Expression,
    vectors: int,
    first: Expression,
    count: int,
) -> None:
    matrix = product.matrix
    assert isinstance(matrix, PackedMatrix)
    whole = lanes(0, count)
    sums = [T.alloc_buffer((count,), "float32") for _ in range(vectors)]
    for total in sums:
        store(total, splat(T.float32(0), count), whole)

    def multiply(word: Expression, places: int) -> None:
        group = tirx.floordiv(word, matrix.group // matrix.per_word)
        scales = T.bind(float32(matrix.scales[group, lanes(first, count)], count))
        words = T.bind(matrix.words[word, lanes(first, count)])
        for place in range(places):
            values = T.bind(_values(matrix, words, place, count) * scales)
            for vector, total in enumerate(sums):
                element = splat(x(row + vector, word * matrix.per_word + place), count)
                store(total, total[whole] + element * values, whole)

    words, rest = divmod(product.k, matrix.per_word)
    with loop(words) as word:
        multiply(word, matrix.per_word)
    if rest:
        multiply(tirx.const(words, "int64"), rest)
    for vector, total in enumerate(sums):
        for column in range(count):
            indices = product.output_at(row + vector, first + column)
            store(product.output, T.Cast(str(product.output.dtype), total[column]), *indices)


def _values(matrix: PackedMatrix, words: Expression, place: int, count: int) -> Expression:
    """The integers at a place of their words, without their offset."""
    shifted = words >> splat(T.uint32(matrix.bits * place), count)
    integers = shifted & splat(T.uint32((1 << matrix.bits) - 1), count)
    return float32(integers, count) - splat(T.float32(matrix.offset), count)
