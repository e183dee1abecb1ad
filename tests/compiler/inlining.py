"""Private functions in line, with types and without the bindings that inlining leaves: as Phase5 has them."""

from __future__ import annotations

import tvm
from tvm import relax

from mlcbuild.compiler.passes.inline_private_functions import inline_private_functions


def inlined(module: tvm.IRModule) -> tvm.IRModule:
    normalized = relax.transform.Normalize()(inline_private_functions(module))
    return relax.transform.CanonicalizeBindings()(normalized)
