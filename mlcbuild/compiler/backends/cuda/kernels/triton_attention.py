"""Attention of several new tokens of each sequence by Triton, in place of TVM's kernels for GPUs and with their
parameters. Queries and keys come rotated."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import tirx

from mlcbuild.compiler.backends.cuda import architectures
from mlcbuild.compiler.backends.cuda.triton_launch import TritonKernel, address, launch, naming
from mlcbuild.compiler.kernels.building import Expression, replace_body
from mlcbuild.compiler.models.architecture.attention_rules import NO_RULES, AttentionRules

_FUNCTION = "mlcbuild.compiler.backends.cuda.triton_kernels.attention:prefill"
_TYPES = {"float16": "*fp16", "bfloat16": "*bf16"}
_WIDEST = 256  # places of a head
_LARGE_SHARED_MEMORY = (90, 100, 103)  # architectures with 227 KiB for a block


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tile:
    """The rows and keys that a block multiplies at a time, its warps, and the tiles of keys that are on their way."""

    rows: int
    keys: int
    warps: int
    stages: int


def _tile(head_dim: int, arch: str) -> _Tile:
    """What was fastest on an H200 among eleven for heads of 128 (docs/cuda.md), as far as shared memory reaches."""
    if head_dim > 128:
        return _Tile(rows=64, keys=32, warps=4, stages=2)
    return _Tile(rows=128, keys=128 if architectures.number(arch) in _LARGE_SHARED_MEMORY else 64, warps=8, stages=3)


def fits(original: tirx.PrimFunc, target: tvm.target.Target) -> bool:
    """Whether Triton's kernel can stand for one of TVM's."""
    queries = original.params[0]
    arch = str(target.attrs["arch"])
    return (
        str(queries.dtype) in _TYPES and 16 <= int(queries.shape[2]) <= _WIDEST and architectures.has_mma_m16n8k16(arch)
    )


def paged_prefill(
    original: tirx.PrimFunc, target: tvm.target.Target, rules: AttentionRules = NO_RULES
) -> tirx.PrimFunc:
    """Query tokens of sequences over what the cache holds."""
    queries, starts, pages, page_starts, page_numbers, lengths, first, positions = original.params[:8]
    output, logarithms, causal = original.params[8:11]
    size = [int(each) for each in pages.shape[1:]]
    kernel = _kernel(queries, target, key_heads=size[1], page=size[2], rules=rules)
    values = tirx.address_of(pages[0, 1, 0, 0, 0])
    given = [
        address(queries), address(starts), address(pages), values, address(page_starts), address(page_numbers),
        address(lengths), address(positions), address(first), address(output), address(logarithms),
    ]  # fmt: skip
    return _started(original, kernel, given, causal)


def ragged_prefill(
    original: tirx.PrimFunc, target: tvm.target.Target, rules: AttentionRules = NO_RULES
) -> tirx.PrimFunc:
    """Query tokens of sequences over keys and values given side by side."""
    queries, starts, keys, values, key_starts, positions, first, output, logarithms, causal = original.params[:10]
    kernel = _kernel(queries, target, key_heads=int(keys.shape[1]), page=0, rules=rules)
    unused = address(key_starts)
    given = [
        address(queries), address(starts), address(keys), address(values), address(key_starts), unused,
        unused, address(positions), address(first), address(output), address(logarithms),
    ]  # fmt: skip
    return _started(original, kernel, given, causal)


def _kernel(
    queries: tirx.Buffer, target: tvm.target.Target, *, key_heads: int, page: int, rules: AttentionRules
) -> TritonKernel:
    heads, head_dim = int(queries.shape[1]), int(queries.shape[2])
    kind = _TYPES[str(queries.dtype)]
    tile = _tile(head_dim, str(target.attrs["arch"]))
    return TritonKernel(
        function=_FUNCTION,
        signature=(
            ("queries", kind),
            ("query_starts", "*i32"),
            ("keys", kind),
            ("values", kind),
            ("key_starts", "*i32"),
            ("page_numbers", "*i32"),
            ("last_lengths", "*i32"),
            ("positions", "*i32"),
            ("first_positions", "*i32"),
            ("output", kind),
            ("logarithms", "*fp32"),
            ("batch", "i32"),
            ("causal", "i32"),
            ("scale", "fp32"),
        ),
        aligned=("queries", "keys", "values", "output"),
        constants=(
            ("GROUP", heads // key_heads - int(rules.sinks)),
            ("KEY_HEADS", key_heads),
            ("HEAD_DIM", head_dim),
            ("BLOCK_D", 1 << (head_dim - 1).bit_length()),
            ("PAGE", page),
            ("WINDOW", rules.window),
            ("CHUNKED", int(rules.chunked)),
            ("SOFT_CAP", float(rules.soft_cap)),
            ("SINKS", int(rules.sinks)),
            ("ALIBI", 1 << (heads.bit_length() - 1) if rules.alibi else 0),
            ("BLOCK_M", tile.rows),
            ("BLOCK_N", tile.keys),
        ),
        warps=tile.warps,
        stages=tile.stages,
    )


def _started(
    original: tirx.PrimFunc, kernel: TritonKernel, given: list[Expression], causal: Expression
) -> tirx.PrimFunc:
    rotary_mode, scale = original.params[-4], original.params[-1]
    queries, starts = original.params[:2]
    batch = starts.shape[0] - 1
    constants = dict(kernel.constants)
    rows = queries.shape[0] * constants["GROUP"]
    # A sequence may end within a tile, and so has one more at most.
    tiles = tirx.ceildiv(rows, constants["BLOCK_M"]) + batch
    grid = (tirx.Cast("int32", tiles), tirx.const(constants["KEY_HEADS"], "int32"))
    own = launch(kernel, [*given, tirx.Cast("int32", batch), causal, scale], grid)
    # TVM's caches rotate keys as they are read (mode 1) for a sliding window alone, and no library with one is made so.
    checked = tirx.AssertStmt(
        rotary_mode == 0,
        "RuntimeError",
        [tvm.ir.StringImm("these kernels know no keys that are rotated as they are read")],
    )
    return naming(replace_body(original, tirx.SeqStmt([checked, own])), [kernel])
