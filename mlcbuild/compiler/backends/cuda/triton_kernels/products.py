"""Rows times the transpose of a matrix that is stored in floats or integers of 8 bits, and the rounding of rows to such
numbers.

A row x becomes numbers q and scales s, one for each group of its places, so that x is about q · s; and

    y[m, n] = Σ over groups g of (Σ over k in g of q[m, k] · w[n, k]) · s[g, m] · t[n / SCALE_ROWS, g]

Sums over a group are those of tensor cores, all else is float32. Scales of rows lie by groups, so that those of
neighbouring rows are neighbours. Where tensor cores know no floats of 8 bits, both factors are float16, which has all
of these.
"""

from __future__ import annotations

import triton
import triton.language as tl

_LEAST = tl.constexpr(1e-10)  # taken for the largest of a group whose numbers are smaller
_ROUND = tl.constexpr(12582912.0)  # 1.5 · 2^23: what is added to a float32 to round it to a whole number


@triton.jit
def rounded(value, LARGEST: tl.constexpr, MANTISSA: tl.constexpr, LEAST_EXPONENT: tl.constexpr):
    """A float32 rounded to the nearest float of so many bits, ties to even; beyond the largest it is that."""
    value = tl.minimum(tl.maximum(value, -LARGEST), LARGEST)
    least: tl.constexpr = (LEAST_EXPONENT + 127) << 23
    power = tl.maximum(value.to(tl.uint32, bitcast=True) & 0x7F800000, least)
    inverse = ((254 << 23) - power).to(tl.float32, bitcast=True)
    whole = (value * (inverse * (1 << MANTISSA)) + _ROUND) - _ROUND
    return whole * (power.to(tl.float32, bitcast=True) * (1 / (1 << MANTISSA)))


@triton.jit
def quantize_rows(
    x,  # (rows, columns)
    static,  # (groups,) float32: scales that are used where they are above 0
    numbers,  # (rows, columns)
    scales,  # (groups, rows) float32
    rows,
    columns,
    GROUP: tl.constexpr,  # places of a row that have one scale; 0: all of them
    STATIC: tl.constexpr,  # 1: there are static scales
    SCALED: tl.constexpr,  # 0: numbers are rounded as they are, and there are no scales
    LARGEST: tl.constexpr,
    MANTISSA: tl.constexpr,
    LEAST_EXPONENT: tl.constexpr,
    BLOCK_GROUPS: tl.constexpr,
    BLOCK: tl.constexpr,  # the power of two from a group's places on
):
    row = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1) * BLOCK_GROUPS + tl.arange(0, BLOCK_GROUPS)
    place = tl.arange(0, BLOCK)
    width = columns if GROUP == 0 else GROUP
    at = group[:, None] * width + place[None, :]
    inside = (place < width)[None, :] & (at < columns)
    value = tl.load(x + row * columns + at, inside, 0.0).to(tl.float32)
    if SCALED:
        scale = tl.div_rn(tl.maximum(tl.max(tl.abs(value), 1), _LEAST), tl.full((BLOCK_GROUPS,), LARGEST, tl.float32))
        present = group * width < columns
        if STATIC:
            given = tl.load(static + group, present, 0.0)
            scale = tl.where(given > 0, given, scale)
        value = tl.div_rn(value, tl.broadcast_to(scale[:, None], value.shape))
        tl.store(scales + group.to(tl.int64) * rows + row, scale, present)
    made = rounded(value, LARGEST, MANTISSA, LEAST_EXPONENT)
    tl.store(numbers + row * columns + at, made.to(numbers.dtype.element_ty), inside)


@triton.jit
def half_of_bits(bits, FORMAT: tl.constexpr):
    """The float16 of a float of 8 bits: E4M3 (FORMAT 1), or E5M2 (2), whose bits are those of a float16's upper
    half."""
    wide = bits.to(tl.uint16)
    if FORMAT == 2:
        return (wide << 8).to(tl.float16, bitcast=True)
    return (((wide & 0x80) << 8) | ((wide & 0x7F) << 7)).to(tl.float16, bitcast=True) * 256.0


@triton.jit
def tile_of(program, rows, columns, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The tile (m, n) of a program: neighbours share up to eight tiles of rows, so that the second cache has both
    factors."""
    down, across = tl.cdiv(rows, BLOCK_M), tl.cdiv(columns, BLOCK_N)
    of_band = 8 * across
    first = program // of_band * 8
    height = tl.minimum(down - first, 8)
    return first + program % of_band % height, program % of_band // height


@triton.jit
def accumulated(
    x_tile,  # pointers to the first numbers of rows, (BLOCK_M, BLOCK_K)
    x_mask,  # (BLOCK_M,): rows that there are
    x_scales,  # pointers to scales of the first group, (BLOCK_M,)
    rows,  # by how much pointers to scales grow with a group
    w_tile,  # (BLOCK_K, BLOCK_N)
    w_scales,  # pointers to scales of the first group: (1, BLOCK_N), or one for the tile where STAGES is 0
    inner,  # numbers of a row
    FORMAT: tl.constexpr,
    BY_GROUPS: tl.constexpr,  # 1: scales are for groups of BLOCK_K places
    MASK_K: tl.constexpr,  # 1: `inner` is no multiple of BLOCK_K
    INTEGERS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr,  # of the loop's own; 0: the kernel's, and scales of the next group alone are asked for early
):
    """The sums of a tile (BLOCK_M, BLOCK_N), float32, or int32 of integers."""
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.int32 if INTEGERS else tl.float32)
    along = tl.arange(0, BLOCK_K)
    if BY_GROUPS and STAGES == 0:
        x_scale, w_scale = tl.load(x_scales, x_mask, 0.0), tl.load(w_scales)
    # A loop that tells its stages asks for scales as early as for numbers.
    for first in tl.range(0, inner, BLOCK_K, num_stages=STAGES if STAGES > 0 else None):
        if MASK_K:
            left = along < inner - first
            x = tl.load(x_tile, x_mask[:, None] & left[None, :], 0.0)
            w = tl.load(w_tile, left[:, None], 0.0)
        else:
            x = tl.load(x_tile, x_mask[:, None], 0.0)
            w = tl.load(w_tile)
        if FORMAT > 0:
            w = half_of_bits(w, FORMAT)
        if BY_GROUPS:
            if STAGES > 0:
                scale = tl.load(x_scales, x_mask, 0.0)[:, None] * tl.load(w_scales)
                x_scales += rows
                w_scales += 1
            else:
                # The next group's scales are asked for before anything waits for this one's sums.
                scale = x_scale[:, None] * w_scale
                step = tl.where(first + BLOCK_K < inner, 1, 0)
                x_scales += step * rows
                w_scales += step
                x_scale, w_scale = tl.load(x_scales, x_mask, 0.0), tl.load(w_scales)
            total += tl.dot(x, w) * scale
        elif INTEGERS:
            total = tl.dot(x, w, total, out_dtype=tl.int32)
        else:
            total += tl.dot(x, w)
        x_tile += BLOCK_K
        w_tile += BLOCK_K
    return total


@triton.jit
def product(
    numbers,  # (rows, inner)
    scales,  # (groups, rows) float32
    weights,  # (columns, inner)
    weight_scales,  # (columns / SCALE_ROWS, groups) float32
    output,  # (rows, columns)
    rows,
    columns,
    inner,
    FORMAT: tl.constexpr,  # 0: tensor cores take weights as they are; else see `half_of_bits`
    SCALED: tl.constexpr,  # 0: there are no scales
    BY_GROUPS: tl.constexpr,
    SCALE_ROWS: tl.constexpr,  # rows of the matrix that have one scale; 0: all of them
    INTEGERS: tl.constexpr,
    MASK_K: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr,
):
    m, n = tile_of(tl.program_id(0), rows, columns, BLOCK_M, BLOCK_N)
    row = m * BLOCK_M + tl.arange(0, BLOCK_M)
    column = n * BLOCK_N + tl.arange(0, BLOCK_N)
    along = tl.arange(0, BLOCK_K)
    present = row < rows
    # Columns that there are none of are computed as the last one is.
    read = tl.minimum(column, columns - 1).to(tl.int64)
    x_tile = numbers + row.to(tl.int64)[:, None] * inner + along[None, :]
    w_tile = weights + read[None, :] * inner + along[:, None]
    groups = tl.cdiv(inner, BLOCK_K) if BY_GROUPS else 1
    if SCALE_ROWS >= BLOCK_N and STAGES == 0:
        w_scales = weight_scales + n * BLOCK_N // SCALE_ROWS * groups
    elif SCALE_ROWS > 0:
        w_scales = weight_scales + (read // SCALE_ROWS * groups)[None, :]
    else:
        w_scales = weight_scales + (read * 0)[None, :]
    total = accumulated(
        x_tile, present, scales + row, rows, w_tile, w_scales, inner, FORMAT, BY_GROUPS, MASK_K, INTEGERS, BLOCK_M,
        BLOCK_N, BLOCK_K, STAGES,
    )  # fmt: skip
    result = total.to(tl.float32)
    if SCALED and not BY_GROUPS:
        scale = tl.load(scales + row, present, 0.0)[:, None]
        result *= scale * tl.load(w_scales)
    place = output + row.to(tl.int64)[:, None] * columns + column[None, :]
    tl.store(place, result.to(output.dtype.element_ty), present[:, None] & (column < columns)[None, :])
