"""How many floats a register of the target's processor holds."""

from __future__ import annotations

import tvm
from tvm.target.codegen import target_has_features

from mlcbuild.compiler.kernels.building import LANES

MOST_LANES = 16


def register_lanes(target: tvm.target.Target) -> int:
    """16 with AVX-512; else eight, which are one register with AVX, and two with SSE and NEON."""
    return MOST_LANES if target_has_features("avx512f", target) else LANES
