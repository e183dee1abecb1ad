"""Phase2: operators become kernels."""

from __future__ import annotations

from tvm.relax import backend, transform

from mlcbuild.compiler.phases.pipeline import Entry, of_tvm

PHASE2: tuple[Entry, ...] = (
    Entry(name="DispatchSampling", run=of_tvm(backend.DispatchSampling)),
    Entry(name="DispatchSortScan", run=of_tvm(backend.DispatchSortScan)),
    Entry(name="LegalizeOps", run=of_tvm(transform.LegalizeOps)),
    Entry(name="AnnotateTIROpPattern", run=of_tvm(transform.AnnotateTIROpPattern)),
    Entry(name="FoldConstant", run=of_tvm(transform.FoldConstant)),
    Entry(name="FuseOps", run=of_tvm(transform.FuseOps)),
    Entry(name="FuseTIR", run=of_tvm(transform.FuseTIR)),
)
