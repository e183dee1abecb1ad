"""The passes of Phase1 that serve every backend."""

from __future__ import annotations

from mlcbuild.compiler.passes.fuse_transpose_matmul import fuse_transpose_matmul
from mlcbuild.compiler.phases.pipeline import Passes, module_pass

PASSES: Passes = {"FuseTransposeMatmul": module_pass(fuse_transpose_matmul)}
