"""AttachVariableBounds: the largest values of symbolic sizes, by which memory is planned once and for all."""

from __future__ import annotations

import tvm
from tvm import relax

from mlcbuild.compiler.models.sizes import LibrarySizes

_POSITIONS_A_SEQUENCE = 6  # of the order of tokens, whose probabilities an engine asks for together


def attach_variable_bounds(module: tvm.IRModule, sizes: LibrarySizes) -> tvm.IRModule:
    """Give every Relax function the bounds that follow from `sizes`, by a symbolic variable's name."""
    bounds = _bounds(sizes)
    functions = {
        variable: function.with_attr("tir_var_upper_bound", bounds)
        if isinstance(function, relax.Function)
        else function
        for variable, function in module.functions_items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)


def _bounds(sizes: LibrarySizes) -> dict[str, int]:
    """The largest value of each symbolic size, by its name in the entry functions."""
    bounds = {
        "seq_len": sizes.prefill_chunk_size,
        "batch_size": sizes.max_batch_size,
        "num_samples": sizes.max_batch_size,
        "num_positions": _POSITIONS_A_SEQUENCE * sizes.max_batch_size,
    }
    if sizes.sliding_window_size > 0:
        bounds["rolling_cache_len"] = sizes.sliding_window_size
        bounds["kv_seq_len"] = sizes.sliding_window_size + sizes.prefill_chunk_size
    elif sizes.context_window_size > 0:
        bounds["total_seq_len"] = sizes.context_window_size
    return bounds
