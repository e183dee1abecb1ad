"""AttachLogitProcessFunc: the functions by which a serving engine changes logits where they are, by MLC-LLM's names and
arguments. Each returns the logits.

MLC-LLM's engine does not load a library that lacks one of them, for whatever device.
"""

from __future__ import annotations

import tvm
from tvm import relax, tirx

from mlcbuild.compiler.passes.inplace_functions import add_inplace_function


def attach_logit_processing(
    module: tvm.IRModule, *, add_bias: tirx.PrimFunc, penalize: tirx.PrimFunc, mask: tirx.PrimFunc
) -> tvm.IRModule:
    """Add `apply_logit_bias_inplace`, `apply_penalty_inplace` and `apply_bitmask_inplace`, which call a backend's
    kernels with their own parameters; the first of these are the logits (b, v) float32."""
    builder = relax.BlockBuilder(module)
    add_inplace_function(builder, "apply_logit_bias_inplace", add_bias, changed=0)
    add_inplace_function(builder, "apply_penalty_inplace", penalize, changed=0)
    add_inplace_function(builder, "apply_bitmask_inplace", mask, changed=0)
    return builder.finalize()
