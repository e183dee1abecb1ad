"""Phase3: kernels are fused further."""

from __future__ import annotations

from tvm.relax import transform

from mlcbuild.compiler.passes.clean_up_tir_attributes import clean_up_tir_attributes
from mlcbuild.compiler.passes.fuse_dequantize import fuse_dequantize
from mlcbuild.compiler.phases.pipeline import Entry, of_tvm, own

PHASE3: tuple[Entry, ...] = (
    # One pass over the module is enough for both.
    Entry(name="FuseDequantizeMatmulEwise", run=own(fuse_dequantize)),
    Entry(name="FuseDequantizeTake", where="FuseDequantizeMatmulEwise"),
    Entry(name="DeadCodeElimination", run=of_tvm(transform.DeadCodeElimination)),
    # It reads the bodies of kernels, which the graph no longer has once it is partitioned.
    Entry(name="RewriteDataflowReshape", run=of_tvm(transform.RewriteDataflowReshape)),
    Entry(name="CleanUpTIRAttrs", run=lambda module, _: clean_up_tir_attributes(module, ("op_pattern",))),
)
