"""What a product's blocks ask for as they end: the matrices that the next products read, into the second cache.

Between two products of a decoding step are norms, attention and launches, in which memory would lie idle. The requests
are sent and not waited for, so the kernel ends no later. Which matrices those are, the pass
`backends.cuda.passes.prefetch_weights` says: as parameters in front of the kernel's result, and how much of each in the
attribute `ATTRIBUTE`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import tvm.tirx.script.builder as T  # noqa: N812
from tvm import tirx

from mlcbuild.compiler.backends.cuda.kernels import instructions as gpu
from mlcbuild.compiler.kernels.building import Buffer, Expression

ATTRIBUTE = "mlcbuild.l2_prefetch"  # on a kernel: JSON, bytes of each of the parameters in front of its last
LINE = 128  # bytes of the second cache that come together
_BITS_PER_BYTE = 8


@dataclass(frozen=True, slots=True)
class Following:
    """A matrix that is read after a kernel, and how many of its first bytes to ask for."""

    shape: tuple[int, ...]
    dtype: str
    size: int


def with_following(func: tirx.PrimFunc, following: Sequence[Following]) -> tirx.PrimFunc:
    """The kernel `func`, which has one result, with the matrices as parameters in front of it."""
    *given, result = func.params
    further = [
        tirx.decl_buffer(each.shape, each.dtype, name=f"following{number}") for number, each in enumerate(following)
    ]
    sizes = json.dumps([each.size for each in following])
    longer = tirx.PrimFunc([*given, *further, result], func.body, func.ret_type, func.attrs)
    return longer.with_attr(ATTRIBUTE, sizes)


def request_following(func: tirx.PrimFunc, *, block: Expression, blocks: int, thread: Expression) -> None:
    """What a block asks for, by its first thread: a share of each matrix. Nothing where no product follows."""
    for matrix, size in _following(func):
        row = math.prod(int(extent) for extent in matrix.shape[1:])
        share = -(-size // (blocks * LINE)) * LINE
        place = block * (share * _BITS_PER_BYTE // _bits(matrix))
        with gpu.when(tirx.all(thread == 0, block * share < size)):
            left = T.min(T.int32(share), T.int32(size) - block * share)
            gpu.prefetch_bulk(gpu.at(matrix, tirx.floordiv(place, row), tirx.floormod(place, row)), left)


def _bits(matrix: Buffer) -> int:
    """Bits of an element."""
    return int(str(matrix.dtype).lstrip("abcdefghijklmnopqrstuvwxyz"))


def _following(func: tirx.PrimFunc) -> Iterator[tuple[Buffer, int]]:
    sizes = json.loads(str((func.attrs or {}).get(ATTRIBUTE, "[]")))
    return zip(func.params[-1 - len(sizes) : -1], sizes, strict=True)
