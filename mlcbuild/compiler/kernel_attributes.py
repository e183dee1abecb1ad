"""Attributes of kernels that our own passes and schedule rules read."""

from __future__ import annotations

RESTORES_WEIGHTS = (
    "mlcbuild.restores_weights"  # on a kernel that makes a matrix of what is stored for it; gone once it is fused
)
STATE_SCAN = "mlcbuild.state_scan"  # on a kernel of `kernels.state_scan`: what it computes; part of its content
WRITTEN_BY = "mlcbuild.written_by"  # on a kernel written with the default shape of a rule: `kernels.shapes`; JSON
DEVICE_KERNELS = "mlcbuild.device_kernels"  # on a kernel that starts others, which are compiled on their own: JSON
