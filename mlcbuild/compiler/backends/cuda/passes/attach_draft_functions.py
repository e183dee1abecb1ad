"""AttachSpecDecodeAuxFuncs: the functions by which a serving engine keeps the probabilities of draft tokens, by
MLC-LLM's names and arguments. Each returns its last argument, which it changes in place."""

from __future__ import annotations

import tvm
from tvm import relax

from mlcbuild.compiler.backends.cuda.kernels import logits
from mlcbuild.compiler.backends.cuda.passes.inplace_functions import add_inplace_function


def attach_draft_functions(module: tvm.IRModule) -> tvm.IRModule:
    """Add `scatter_probs` and `gather_probs`. Those for hidden states come with entry functions that no model has."""
    builder = relax.BlockBuilder(module)
    add_inplace_function(builder, "scatter_probs", logits.scatter_rows("float32"), changed=2)
    add_inplace_function(builder, "gather_probs", logits.gather_rows("float32"), changed=2)
    return builder.finalize()
