"""How many floats or words a register of the target's processor holds, and what rules that depend on it find."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm.target.codegen import target_has_features

from mlcbuild.compiler.backends.cpu.kernels.digits import ByteLevel
from mlcbuild.compiler.kernels.building import LANES
from mlcbuild.compiler.kernels.matmul_pattern import MatrixProduct

MOST_LANES = 16


def register_lanes(target: tvm.target.Target) -> int:
    """16 with AVX-512; else eight, which are one register with AVX, and two with SSE and NEON."""
    return MOST_LANES if target_has_features("avx512f", target) else LANES


@dataclass(frozen=True, kw_only=True)
class ProductByRegisters:
    """A product that a rule has found, how many of a row's floats or words a register takes at once, and what the
    target multiplies bytes with, if it does."""

    product: MatrixProduct
    lanes: int
    bytes: ByteLevel | None = None
