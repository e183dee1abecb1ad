"""What a register of the target's processor holds, what multiplies its bytes, and what rules that depend on it find."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm.target.codegen import target_has_features

from mlcbuild.compiler.kernels.building import LANES
from mlcbuild.compiler.kernels.matmul_pattern import MatrixProduct

MOST_LANES = 16


def register_lanes(target: tvm.target.Target) -> int:
    """16 with AVX-512; else eight, which are one register with AVX, and two with SSE and NEON."""
    return MOST_LANES if target_has_features("avx512f", target) else LANES


@dataclass(frozen=True, kw_only=True)
class ByteProducts:
    """LLVM's names of what multiplies the bytes of so many words: to sums of two products in 16 bits and sums of two of
    these; or of four at once, added to sums in 32 bits."""

    pairs: str
    pairs_of_pairs: str
    fours: str = ""


@dataclass(frozen=True, kw_only=True)
class ByteLevel:
    """What a target multiplies bytes with, by the number of words in a register."""

    products: dict[int, ByteProducts]


_NARROW = {
    4: ByteProducts(pairs="llvm.x86.ssse3.pmadd.ub.sw.128", pairs_of_pairs="llvm.x86.sse2.pmadd.wd"),
    8: ByteProducts(pairs="llvm.x86.avx2.pmadd.ub.sw", pairs_of_pairs="llvm.x86.avx2.pmadd.wd"),
}
_WIDE = {"pairs": "llvm.x86.avx512.pmaddubs.w.512", "pairs_of_pairs": "llvm.x86.avx512.pmaddw.d.512"}


def byte_level(target: tvm.target.Target) -> ByteLevel | None:
    """None where the target multiplies no bytes by registers of eight words."""
    if not target_has_features("avx2", target):
        return None
    if target_has_features("avx512vnni", target):
        return ByteLevel(products={**_NARROW, 16: ByteProducts(**_WIDE, fours="llvm.x86.avx512.vpdpbusd.512")})
    if target_has_features("avx512bw", target):
        return ByteLevel(products={**_NARROW, 16: ByteProducts(**_WIDE)})
    return ByteLevel(products=_NARROW)


@dataclass(frozen=True, kw_only=True)
class ProductByRegisters:
    """A product that a rule has found, how many of a row's floats or words a register takes at once, and what the
    target multiplies bytes with, if it does."""

    product: MatrixProduct
    lanes: int
    bytes: ByteLevel | None = None
