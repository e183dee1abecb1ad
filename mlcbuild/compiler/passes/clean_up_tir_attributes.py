"""CleanUpTIRAttrs: drop attributes of kernels that only fusion reads."""

from __future__ import annotations

from collections.abc import Iterable

import tvm


def clean_up_tir_attributes(module: tvm.IRModule, names: Iterable[str]) -> tvm.IRModule:
    """Remove the named attributes from every kernel."""
    functions = {}
    for variable, function in module.functions_items():
        if isinstance(function, tvm.tirx.PrimFunc):
            for name in names:
                if name in function.attrs:
                    function = function.without_attr(name)
        functions[variable] = function
    return tvm.IRModule(functions, attrs=module.attrs)
