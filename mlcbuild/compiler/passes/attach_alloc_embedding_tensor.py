"""AttachAllocEmbeddingTensorFunc: a function that makes the buffer which an engine gathers embeddings in."""

from __future__ import annotations

import tvm
from tvm import relax

NAME = "alloc_embedding_tensor"


def attach_alloc_embedding_tensor(module: tvm.IRModule, *, prefill_chunk_size: int) -> tvm.IRModule:
    """Add `alloc_embedding_tensor() -> (prefill_chunk_size, hidden)`, of the dtype that `embed` returns. A
    module without `embed` stays as it is."""
    if "embed" not in module:
        return module
    embedded = module["embed"].ret_ty
    builder = relax.BlockBuilder(module)
    with builder.function(NAME, []):
        shape = relax.ShapeExpr([prefill_chunk_size, embedded.shape[1]])
        buffer = builder.emit(relax.op.builtin.alloc_tensor(shape, str(embedded.dtype), 0))
        builder.emit_func_output(buffer)
    return builder.finalize()
