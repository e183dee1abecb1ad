"""Rows times the matrices of their experts, which are stored one behind the other.

A program goes over runs of rows that have one expert, and multiplies each with that expert's matrix alone. Of few rows
(RUNS 1) a program has the run that begins with its row, and ends at once if none does: most experts have few rows
then, and all matrices are read side by side. Of many, a program has BLOCK_M rows next to each other, whichever experts
they have. Rows may be in any order; those of one expert next to each other are multiplied together.
"""

from __future__ import annotations

import triton
import triton.language as tl

from mlcbuild.compiler.backends.cuda.triton_kernels.products import accumulated, tile_of


@triton.jit
def expert_product(
    numbers,  # (x_rows, inner)
    scales,  # (groups, x_rows) float32
    sources,  # (rows,) int32: of which choice a row is; choice / CHOICES is the row of x
    experts,  # (rows,) int32
    weights,  # (experts, columns, inner)
    weight_scales,  # (experts, columns / SCALE_ROWS, groups) float32
    output,  # (rows, columns)
    rows,
    x_rows,
    columns,
    inner,
    CHOICES: tl.constexpr,  # 0: x has the rows of the result
    ORDERED: tl.constexpr,  # 1: `sources` tells choices, 0: they are as they are numbered
    FORMAT: tl.constexpr,  # as in `products`
    SCALED: tl.constexpr,
    BY_GROUPS: tl.constexpr,
    SCALE_ROWS: tl.constexpr,
    MASK_K: tl.constexpr,
    RUNS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr,
):
    m, n = tile_of(tl.program_id(0), rows, columns, 1 if RUNS else BLOCK_M, BLOCK_N)
    first = m if RUNS else m * BLOCK_M
    own = tl.load(experts + first)
    if RUNS:
        before = tl.load(experts + tl.maximum(first - 1, 0))
        if (first > 0) & (before == own):
            return
    column = n * BLOCK_N + tl.arange(0, BLOCK_N)
    along = tl.arange(0, BLOCK_K)
    read = tl.minimum(column, columns - 1).to(tl.int64)
    groups = tl.cdiv(inner, BLOCK_K) if BY_GROUPS else 1
    scale_rows = tl.cdiv(columns, SCALE_ROWS) if SCALE_ROWS > 0 else 1
    place_of_row = tl.arange(0, BLOCK_M)
    row = first + place_of_row
    chosen = tl.load(experts + row, row < rows, -1)
    left = row < rows
    more = 1
    while more > 0:
        if not RUNS:
            own = tl.max(tl.where(left, chosen, -1), 0)
        mine = left & (chosen == own)
        if CHOICES == 0:
            source = row
        elif ORDERED:
            source = tl.load(sources + row, mine, 0) // CHOICES
        else:
            source = row // CHOICES
        matrix = own.to(tl.int64)
        x_tile = numbers + source.to(tl.int64)[:, None] * inner + along[None, :]
        w_tile = weights + (matrix * columns + read)[None, :] * inner + along[:, None]
        if SCALE_ROWS >= BLOCK_N and STAGES == 0:
            w_scales = weight_scales + (matrix * scale_rows + n * BLOCK_N // SCALE_ROWS) * groups
        elif SCALE_ROWS > 0:
            w_scales = weight_scales + ((matrix * scale_rows + read // SCALE_ROWS) * groups)[None, :]
        else:
            w_scales = weight_scales + (matrix + read * 0)[None, :]
        total = accumulated(
            x_tile, mine, scales + source, x_rows, w_tile, w_scales, inner, FORMAT, BY_GROUPS, MASK_K, 0, BLOCK_M,
            BLOCK_N, BLOCK_K, STAGES,
        )  # fmt: skip
        if SCALED and not BY_GROUPS:
            total *= tl.load(scales + source, mine, 0.0)[:, None] * tl.load(w_scales)
        place = output + row.to(tl.int64)[:, None] * columns + column[None, :]
        tl.store(place, total.to(output.dtype.element_ty), mine[:, None] & (column < columns)[None, :])
        if RUNS:
            # A run that is longer than a tile goes on below it, unless this row was its last.
            row += BLOCK_M
            left = row < rows
            chosen = tl.load(experts + row, left, -1)
            next_one = tl.max(tl.where(place_of_row == 0, chosen, -1), 0)
            more = tl.where(next_one == own, tl.sum(mine.to(tl.int32), 0) // BLOCK_M, 0)
        else:
            left = left & (chosen != own)
            more = tl.sum(left.to(tl.int32), 0)
