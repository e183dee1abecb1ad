"""Phase1: operators of the graph become fewer."""

from __future__ import annotations

from mlcbuild.compiler.passes.fuse_add_rms_norm import fuse_add_rms_norm
from mlcbuild.compiler.passes.fuse_transpose_matmul import fuse_transpose_matmul
from mlcbuild.compiler.phases.pipeline import Entry, on_gpu, own

PHASE1: tuple[Entry, ...] = (
    Entry(name="DispatchTritonKernel"),
    Entry(name="FuseFTDequantizeEpilogue"),
    Entry(name="FuseDequantizeTranspose"),
    Entry(name="BLASDispatch"),
    Entry(name="FuseAddRMSNorm", run=on_gpu(own(fuse_add_rms_norm))),
    Entry(name="FuseTransposeMatmul", run=own(fuse_transpose_matmul)),
)
