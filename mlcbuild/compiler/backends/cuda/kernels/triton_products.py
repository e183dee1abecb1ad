"""Products of rows and matrices of 8 bits by Triton: kernels of the host, which start those of
`triton_kernels.products`.

How many rows there are only run time knows, and a kernel for many of them is no good for few: the host chooses among
tiles by the number. Sizes of matrices are arguments, so that all products of a scheme share machine code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import relax, tirx

from mlcbuild.compiler.backends.cuda import architectures
from mlcbuild.compiler.backends.cuda.triton_launch import TritonKernel, address, launch, naming
from mlcbuild.compiler.kernels.building import Expression, replace_body
from mlcbuild.compiler.quantization.minifloat import Minifloat

_MODULE = "mlcbuild.compiler.backends.cuda.triton_kernels.products"
TYPES = {"float16": "*fp16", "bfloat16": "*bf16", "float32": "*fp32", "int8": "*i8"}
_FLOATS = {"float8_e4m3fn": ("*fp8e4nv", 1), "float8_e5m2": ("*fp8e5", 2)}  # and FORMAT of their bits
DEPTH = 128  # numbers of a row that are multiplied at a time; those of a group, where there are groups
OPAQUE = 8  # TVM's pattern of kernels that nothing is fused with
_FIRST_WITH_FLOATS = 89  # the architecture whose tensor cores are the first to know floats of 8 bits
_WIDEST = 1 << 15  # numbers of a row that has one scale, which one block holds


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """The rows and columns of a product that a block computes, its warps, and the steps that are on their way: of
    numbers, and of scales too where these are `pipelined`. Else the next step's scales are held in registers, which is
    faster where a block has many rows, and slower where few rows wait for memory."""

    rows: int
    columns: int
    warps: int
    stages: int
    pipelined: bool = False

    @property
    def loop_stages(self) -> int:
        """`STAGES` of the kernels."""
        return self.stages if self.pipelined else 0


_FEW = Tile(rows=16, columns=32, warps=4, stages=6, pipelined=True)
_FEW_OF_MANY = Tile(rows=16, columns=128, warps=4, stages=4, pipelined=True)
_NARROW = Tile(rows=64, columns=32, warps=4, stages=4, pipelined=True)
_ALONE = Tile(rows=64, columns=64, warps=4, stages=4, pipelined=True)
_SQUARE = Tile(rows=64, columns=64, warps=4, stages=4)
_WIDE = Tile(rows=64, columns=128, warps=4, stages=3)
_BUSY = 224  # tiles with which multiprocessors are busy enough for the widest
_MANY_COLUMNS = 1 << 14  # from which on few rows have blocks enough with wide tiles


def tiles(columns: int) -> list[tuple[int, Tile]]:
    """The tiles of a product of so many columns, and up to how many rows each is for; 0: any number. What was fastest
    on an H200 among 30 tiles (docs/cuda.md)."""
    wide_from = _WIDE.rows * (-(-_BUSY // -(-columns // _WIDE.columns)) - 1)  # rows beyond which the widest is used
    alone = _ALONE.rows * (architectures.MULTIPROCESSORS // -(-columns // _ALONE.columns))  # rows of a block each
    few = _FEW_OF_MANY if columns >= _MANY_COLUMNS else _FEW
    found = [(few.rows, few)]
    for most, tile in ((_NARROW.rows, _NARROW), (alone, _ALONE), (wide_from, _SQUARE)):
        if found[-1][0] < most <= wide_from:
            found.append((most, tile))
    return [*found, (0, _WIDE)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """What rows and a matrix are of: floats of 8 bits, or signed bytes where `floats` is None.

    `group` places of a row have one scale, 0 for all of them; `scale_rows` rows of the matrix have one, 0 for all.
    Without scales, `scaled` is False.
    """

    floats: Minifloat | None
    group: int = 0
    scale_rows: int = 0
    scaled: bool = True

    def format(self, arch: str) -> int:
        """`FORMAT` of the kernels."""
        if self.floats is None or architectures.number(arch) >= _FIRST_WITH_FLOATS:
            return 0
        return _FLOATS[self.floats.dtype][1]

    def of_rows(self, arch: str) -> str:
        """The type of rows' numbers."""
        if self.floats is None:
            return "int8"
        return "float16" if self.format(arch) else self.floats.dtype

    def groups(self, inner: int) -> int:
        return -(-inner // self.group) if self.group else 1


def fits(numbers: Numbers, inner: int, target: tvm.target.Target) -> bool:
    """Whether there are kernels for rows of `inner` such numbers."""
    return (
        architectures.has_mma_m16n8k16(str(target.attrs["arch"]))
        and numbers.group in (0, DEPTH)
        and (numbers.group > 0 or inner <= _WIDEST)
    )


def quantize(
    x: relax.TensorType, numbers: Numbers, target: tvm.target.Target, *, static: bool
) -> tuple[tirx.PrimFunc, list[relax.TensorType]]:
    """The kernel from rows x (…, inner), and static scales (groups,), to numbers and scales (groups, rows); and the
    types of these."""
    arch, floats = str(target.attrs["arch"]), numbers.floats
    assert floats is not None
    inner = int(x.shape[-1])
    groups, count = numbers.groups(inner), product_of(list(x.shape)[:-1])
    made = [relax.TensorType(x.shape, numbers.of_rows(arch))]
    if numbers.scaled:
        made.append(relax.TensorType((groups, count), "float32"))
    given = [("x", x), *([("static", relax.TensorType((groups,), "float32"))] if static else [])]
    buffers = buffers_of([*given, *zip(("numbers", "scales"), made, strict=False)])
    rows = product_of(list(buffers["x"].shape)[:-1])
    width = 1 << ((numbers.group or inner) - 1).bit_length()
    together = max(1, min(1024 // width, 1 << (groups - 1).bit_length()))
    kernel = TritonKernel(
        function=f"{_MODULE}:quantize_rows",
        signature=(
            ("x", TYPES[str(x.dtype)]),
            ("static", "*fp32"),
            ("numbers", triton_type(numbers.of_rows(arch))),
            ("scales", "*fp32"),
            ("rows", "i32"),
            ("columns", "i32"),
        ),
        aligned=("x", "numbers", *(("columns",) if inner % 16 == 0 else ())),
        constants=(
            ("GROUP", numbers.group),
            ("STATIC", int(static)),
            ("SCALED", int(numbers.scaled)),
            ("LARGEST", floats.largest),
            ("MANTISSA", floats.mantissa_bits),
            ("LEAST_EXPONENT", floats.least_exponent),
            ("BLOCK_GROUPS", together),
            ("BLOCK", width),
        ),
        warps=max(1, min(8, together * width // 1024)),
        stages=1,
    )
    scales = address(buffers["scales"] if numbers.scaled else buffers["numbers"])
    arguments = [
        address(buffers["x"]),
        address(buffers["static"]) if static else scales,
        address(buffers["numbers"]),
        scales,
        int32(rows),
        int32(inner),
    ]
    return host_kernel(buffers, [(0, kernel, arguments, (int32(rows), int32(-(-groups // together))))], rows), made


def product(
    operands: Sequence[tuple[str, relax.TensorType]],
    output: relax.TensorType,
    numbers: Numbers,
    target: tvm.target.Target,
) -> tirx.PrimFunc:
    """The kernel of a product. `operands` are `numbers` (…, inner), `scales` as `quantize` has them, `weights`
    (columns, inner) and `weight_scales`, by these names and in this order; those without scales are left out."""
    arch = str(target.attrs["arch"])
    types = dict(operands)
    columns, inner = (int(size) for size in types["weights"].shape)
    buffers = buffers_of([*operands, ("output", output)])
    rows = product_of(list(buffers["numbers"].shape)[:-1])
    weights = str(types["weights"].dtype)
    format_ = numbers.format(arch)
    signature = (
        ("numbers", triton_type(numbers.of_rows(arch))),
        ("scales", "*fp32"),
        ("weights", "*u8" if format_ else triton_type(weights)),
        ("weight_scales", "*fp32"),
        ("output", TYPES[str(output.dtype)]),
        ("rows", "i32"),
        ("columns", "i32"),
        ("inner", "i32"),
    )
    even = [name for name, size in (("columns", columns), ("inner", inner)) if size % 16 == 0]
    arguments = [
        *(address(buffers.get(name, buffers["numbers"])) for name, _ in signature[:5]),
        int32(rows),
        int32(columns),
        int32(inner),
    ]
    choices: list[Choice] = []
    for most, tile in tiles(columns):
        kernel = TritonKernel(
            function=f"{_MODULE}:product",
            signature=signature,
            aligned=("numbers", "weights", "output", *even),
            constants=(
                ("FORMAT", format_),
                ("SCALED", int(numbers.scaled)),
                ("BY_GROUPS", int(numbers.group > 0)),
                ("SCALE_ROWS", numbers.scale_rows),
                ("INTEGERS", int(numbers.floats is None)),
                ("MASK_K", int(inner % DEPTH > 0)),
                ("BLOCK_M", tile.rows),
                ("BLOCK_N", tile.columns),
                ("BLOCK_K", DEPTH),
                ("STAGES", tile.loop_stages),
            ),
            warps=tile.warps,
            stages=tile.stages,
        )
        blocks = tirx.ceildiv(rows, tile.rows) * -(-columns // tile.columns)
        choices.append((most, kernel, arguments, (int32(blocks), int32(1))))
    return host_kernel(buffers, choices, rows)


# Up to how many rows (0: any number), what is started then, with which arguments, and on which grid.
Choice = tuple[int, TritonKernel, list[Expression], tuple[Expression, Expression]]


def host_kernel(buffers: dict[str, tirx.Buffer], choices: Sequence[Choice], rows: Expression) -> tirx.PrimFunc:
    """The kernel that starts the first choice that is for so many rows."""
    taken: list[Choice] = []
    for choice in choices:
        if not (isinstance(rows, int | tirx.IntImm) and 0 < choice[0] < int(rows)):
            taken.append(choice)
            if choice[0] == 0 or isinstance(rows, int | tirx.IntImm):
                break
    *_, (_, kernel, arguments, grid) = taken
    body = launch(kernel, arguments, grid)
    for most, kernel, arguments, grid in reversed(taken[:-1]):
        body = tirx.IfThenElse(rows <= most, launch(kernel, arguments, grid), body)
    function = replace_body(tirx.PrimFunc(list(buffers.values()), tirx.Evaluate(0)), body)
    attributes = {"op_pattern": OPAQUE, "tirx.is_scheduled": True, "s_tir": True}
    return naming(function.with_attrs(attributes), [kernel for _, kernel, *_ in taken])


def buffers_of(named: Sequence[tuple[str, relax.TensorType]]) -> dict[str, tirx.Buffer]:
    """Buffers of types. A size that only run time knows is one variable wherever it is."""
    sizes: list[tuple[Expression, tirx.Var]] = []

    def size(given: Expression) -> Expression:
        if isinstance(given, int | tirx.IntImm):
            return tirx.IntImm("int64", int(given))
        for known, variable in sizes:
            if tvm_ffi.structural_equal(known, given, map_free_vars=False):
                return variable
        sizes.append((given, tirx.Var(f"n{len(sizes)}", "int64")))
        return sizes[-1][1]

    return {
        name: tirx.decl_buffer([size(each) for each in type_.shape], str(type_.dtype), name=name)
        for name, type_ in named
    }


def product_of(sizes: Sequence[Expression]) -> Expression:
    """Sizes multiplied, those that are known as a number."""
    known = math.prod(int(size) for size in sizes if isinstance(size, tirx.IntImm))
    others = [size for size in sizes if not isinstance(size, tirx.IntImm)]
    if not others:
        return tirx.IntImm("int64", known)
    whole = math.prod(others[1:], start=others[0])
    return whole if known == 1 else whole * known


def triton_type(dtype: str) -> str:
    return _FLOATS[dtype][0] if dtype in _FLOATS else TYPES[dtype]


def int32(value: Expression) -> Expression:
    return tirx.const(int(value), "int32") if isinstance(value, int | tirx.IntImm) else tirx.Cast("int32", value)
