"""Products of rows with the matrices of their experts by Triton: the kernel of the host, which starts those of
`triton_kernels.expert_products`."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax, tirx

from mlcbuild.compiler.backends.cuda.kernels.triton_products import (
    DEPTH,
    TYPES,
    Choice,
    Numbers,
    Tile,
    buffers_of,
    host_kernel,
    int32,
    product_of,
    triton_type,
)
from mlcbuild.compiler.backends.cuda.triton_launch import TritonKernel, address

_FUNCTION = "mlcbuild.compiler.backends.cuda.triton_kernels.expert_products:expert_product"
_FEW = Tile(rows=16, columns=64, warps=4, stages=4, pipelined=True)
_MANY = Tile(rows=64, columns=128, warps=4, stages=3)
_FEW_OF_AN_EXPERT, _MANY_OF_AN_EXPERT = 8, 64  # rows of an expert on average up to which a program has those of one
_MOST = 1 << 11  # rows beyond which most of such programs would have nothing to do


def tiles(experts: int) -> list[tuple[int, bool, Tile]]:
    """The tiles of a product with so many experts, whether a program has the rows of one expert alone, and up to how
    many rows each is for; 0: any number. The sizes are what
    was fastest on an H200 among 12, all of them pipelined; that `_MANY` is not is what was faster for one matrix."""
    found = [(_FEW_OF_AN_EXPERT * experts, True, _FEW)]
    if (most := min(_MANY_OF_AN_EXPERT * experts, _MOST)) > found[0][0]:
        found.append((most, True, _MANY))
    return [*found, (0, False, _MANY)]


def product(
    operands: Sequence[tuple[str, relax.TensorType]],
    output: relax.TensorType,
    numbers: Numbers,
    target: tvm.target.Target,
) -> tirx.PrimFunc:
    """The kernel of a product of `output` (tokens, choices, columns). `operands` are `numbers` and `scales` as
    `triton_products.quantize` has them, of tokens or of rows (tokens, choices, inner), `experts` (tokens, choices),
    `weights` (experts, columns, inner), `weight_scales`, and `sources` (tokens, choices) where rows are ordered."""
    arch = str(target.attrs["arch"])
    types = dict(operands)
    experts, columns, inner = (int(size) for size in types["weights"].shape)
    buffers = buffers_of([*operands, ("output", output)])
    rows = product_of(list(buffers["experts"].shape))
    given = list(buffers["numbers"].shape)[:-1]
    format_ = numbers.format(arch)
    signature = (
        ("numbers", triton_type(numbers.of_rows(arch))),
        ("scales", "*fp32"),
        ("sources", "*i32"),
        ("experts", "*i32"),
        ("weights", "*u8" if format_ else triton_type(str(types["weights"].dtype))),
        ("weight_scales", "*fp32"),
        ("output", TYPES[str(output.dtype)]),
        ("rows", "i32"),
        ("x_rows", "i32"),
        ("columns", "i32"),
        ("inner", "i32"),
    )
    even = [name for name, size in (("columns", columns), ("inner", inner)) if size % 16 == 0]
    arguments = [
        *(address(buffers.get(name, buffers["numbers"])) for name, _ in signature[:7]),
        *(int32(each) for each in (rows, product_of(given), columns, inner)),
    ]
    choices: list[Choice] = []
    for most, runs, tile in tiles(experts):
        kernel = TritonKernel(
            function=_FUNCTION,
            signature=signature,
            aligned=("numbers", "weights", "output", *even),
            constants=(
                ("CHOICES", 0 if len(given) == 2 else int(output.shape[1])),
                ("ORDERED", int("sources" in types)),
                ("FORMAT", format_),
                ("SCALED", int(numbers.scaled)),
                ("BY_GROUPS", int(numbers.group > 0)),
                ("SCALE_ROWS", numbers.scale_rows),
                ("MASK_K", int(inner % DEPTH > 0)),
                ("RUNS", int(runs)),
                ("BLOCK_M", tile.rows),
                ("BLOCK_N", tile.columns),
                ("BLOCK_K", DEPTH),
                ("STAGES", tile.loop_stages),
            ),
            warps=tile.warps,
            stages=tile.stages,
        )
        down = rows if runs else tirx.ceildiv(rows, tile.rows)
        blocks = down * -(-columns // tile.columns)
        choices.append((most, kernel, arguments, (int32(blocks), int32(1))))
    return host_kernel(buffers, choices, rows)
