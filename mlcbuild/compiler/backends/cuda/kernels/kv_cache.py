"""The kernels of TVM's paged key-value cache that are exchanged for faster ones on GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm

from mlcbuild.compiler.backends.cuda.kernels import attention
from mlcbuild.errors import InternalError

_DECODING = {"batch_decode_paged_kv": False, "batch_decode_paged_kv_sliding_window": True}


def with_tensor_core_kernels(
    module: tvm.IRModule, *, rope_scaling: Mapping[str, Any], target: tvm.target.Target
) -> tvm.IRModule:
    """`module` with kernels that TVM's `TIRPagedKVCache` put into it for an NVIDIA GPU exchanged for our own.

    Kernels of a frequency rule, type or architecture that there is none for stay as they are. Raises InternalError
    where TVM's kernels have other names.
    """
    functions = {str(variable.name_hint): (variable, kernel) for variable, kernel in module.functions_items()}
    missing = sorted(name for name in _DECODING if name not in functions)
    if missing:
        raise InternalError(f"TVM's key-value cache has no kernels of the names {', '.join(missing)}")
    made = dict(functions.values())
    for name, sliding_window in _DECODING.items():
        variable, kernel = functions[name]
        if attention.fits(kernel, rope_scaling, target):
            made[variable] = attention.paged_decode(kernel, rope_scaling=rope_scaling, sliding_window=sliding_window)
    return tvm.IRModule(made, attrs=module.attrs)
