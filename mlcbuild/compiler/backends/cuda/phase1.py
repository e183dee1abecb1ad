"""What NVIDIA GPUs have of their own in Phase1."""

from __future__ import annotations

from mlcbuild.compiler.backends.cuda.passes.fuse_add_rms_norm import fuse_add_rms_norm
from mlcbuild.compiler.phases.pipeline import Passes, module_pass

PASSES: Passes = {"FuseAddRMSNorm": module_pass(fuse_add_rms_norm)}
