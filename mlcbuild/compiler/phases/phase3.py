"""Phase3: kernels are fused further."""

from __future__ import annotations

from tvm.relax import transform

from mlcbuild.compiler.passes.clean_up_tir_attributes import clean_up_tir_attributes
from mlcbuild.compiler.passes.fuse_dequantize import fuse_dequantize_matmul_ewise, fuse_dequantize_take
from mlcbuild.compiler.phases.pipeline import Entry, of_tvm, own

PHASE3: tuple[Entry, ...] = (
    Entry(name="FuseDequantizeMatmulEwise", run=own(fuse_dequantize_matmul_ewise)),
    Entry(name="FuseDequantizeTake", run=own(fuse_dequantize_take)),
    Entry(name="DeadCodeElimination", run=of_tvm(transform.DeadCodeElimination)),
    # It reads the bodies of kernels, which the graph no longer has once it is partitioned.
    Entry(name="RewriteDataflowReshape", run=of_tvm(transform.RewriteDataflowReshape)),
    Entry(name="CleanUpTIRAttrs", run=lambda module, _: clean_up_tir_attributes(module, ("op_pattern",))),
)
