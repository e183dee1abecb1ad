"""AttachVariableBounds: the largest values of symbolic sizes, by which memory is planned once and for all."""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import relax


def attach_variable_bounds(module: tvm.IRModule, bounds: Mapping[str, int]) -> tvm.IRModule:
    """Give every Relax function the bounds, by a symbolic variable's name."""
    functions = {
        variable: function.with_attr("tir_var_upper_bound", dict(bounds))
        if isinstance(function, relax.Function)
        else function
        for variable, function in module.functions_items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)
