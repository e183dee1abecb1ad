"""Phase1: operators of the graph become fewer."""

from __future__ import annotations

from mlcbuild.compiler.passes.fuse_transpose_matmul import fuse_transpose_matmul
from mlcbuild.compiler.phases.pipeline import Entry, own

PHASE1: tuple[Entry, ...] = (
    Entry(name="DispatchTritonKernel"),
    Entry(name="FuseFTDequantizeEpilogue"),
    Entry(name="FuseDequantizeTranspose"),
    Entry(name="BLASDispatch"),
    Entry(name="FuseAddRMSNorm"),
    Entry(name="FuseTransposeMatmul", run=own(fuse_transpose_matmul)),
)
