"""AttachLogitProcessFunc: the functions by which a serving engine changes logits on a GPU, by MLC-LLM's names and
arguments. Each returns the logits, which it changes in place."""

from __future__ import annotations

import tvm
from tvm import relax

from mlcbuild.compiler.backends.cuda.kernels import logits
from mlcbuild.compiler.backends.cuda.passes.inplace_functions import add_inplace_function


def attach_logit_processing(module: tvm.IRModule) -> tvm.IRModule:
    """Add `apply_logit_bias_inplace`, `apply_penalty_inplace` and `apply_bitmask_inplace`."""
    builder = relax.BlockBuilder(module)
    add_inplace_function(builder, "apply_logit_bias_inplace", logits.add_bias(), changed=0)
    add_inplace_function(builder, "apply_penalty_inplace", logits.penalize(), changed=0)
    add_inplace_function(builder, "apply_bitmask_inplace", logits.mask(), changed=0)
    return builder.finalize()
