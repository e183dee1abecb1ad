"""AttachSpecDecodeAuxFuncs: the functions by which a serving engine keeps what a draft model made, by MLC-LLM's names
and arguments. Each returns its last argument, which it changes in place."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax, tirx

from mlcbuild.compiler.passes.inplace_functions import add_inplace_function

_OF_HIDDEN_STATES = "batch_select_last_hidden_states"  # an entry function that takes hidden states
MoveRows = Callable[[str], tirx.PrimFunc]


def attach_draft_functions(module: tvm.IRModule, *, scatter_rows: MoveRows, gather_rows: MoveRows) -> tvm.IRModule:
    """Add `scatter_probs` and `gather_probs`, and the same of hidden states for a model that has functions of these.

    `scatter_rows` and `gather_rows` make a backend's kernels for rows of a dtype: (rows (b, n), places (b,) int32,
    table (m, n)) and (table, places, rows).
    """
    builder = relax.BlockBuilder(module)
    dtypes = {"probs": "float32"}
    for variable, function in module.functions_items():
        if variable.name_hint == _OF_HIDDEN_STATES:
            dtypes["hidden_states"] = str(function.params[0].ty.dtype)
    for rows, dtype in dtypes.items():
        add_inplace_function(builder, f"scatter_{rows}", scatter_rows(dtype), changed=2)
        add_inplace_function(builder, f"gather_{rows}", gather_rows(dtype), changed=2)
    return builder.finalize()
