"""The passes of Phase3 that serve every backend."""

from __future__ import annotations

from tvm.relax import transform

from mlcbuild.compiler.kernel_attributes import RESTORES_WEIGHTS
from mlcbuild.compiler.passes.clean_up_tir_attributes import clean_up_tir_attributes
from mlcbuild.compiler.passes.fuse_dequantize import fuse_dequantize
from mlcbuild.compiler.phases.pipeline import Passes, module_pass, tvm_pass

_OF_FUSION = ("op_pattern", RESTORES_WEIGHTS)

PASSES: Passes = {
    "FuseDequantizeMatmulEwise": module_pass(fuse_dequantize),
    "DeadCodeElimination": tvm_pass(transform.DeadCodeElimination),
    "RewriteDataflowReshape": tvm_pass(transform.RewriteDataflowReshape),
    "CleanUpTIRAttrs": lambda module, _: clean_up_tir_attributes(module, _OF_FUSION),
}
