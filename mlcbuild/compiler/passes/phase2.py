"""The passes of Phase2 that serve every backend: all are TVM's."""

from __future__ import annotations

from tvm.relax import backend, transform

from mlcbuild.compiler.phases.pipeline import Passes, tvm_pass

PASSES: Passes = {
    "DispatchSampling": tvm_pass(backend.DispatchSampling),
    "DispatchSortScan": tvm_pass(backend.DispatchSortScan),
    "LegalizeOps": tvm_pass(transform.LegalizeOps),
    "AnnotateTIROpPattern": tvm_pass(transform.AnnotateTIROpPattern),
    "FoldConstant": tvm_pass(transform.FoldConstant),
    "FuseOps": tvm_pass(transform.FuseOps),
    "FuseTIR": tvm_pass(transform.FuseTIR),
}
