"""Numbers that only Lower knows: earlier stages hand kernels another number that stands for one, and Lower writes the
known one in its place."""

from __future__ import annotations

from collections.abc import Iterable

import tvm
from tvm import relax, tirx

from mlcbuild.compiler.passes.rewriting import rewrite_dataflow


def write_number(module: tvm.IRModule, *, unknown: int, known: int) -> tvm.IRModule:
    """Put `known` in place of `unknown` wherever that is the value of a binding."""

    def rewritten(binding: relax.VarBinding) -> Iterable[relax.VarBinding]:
        value = binding.value
        if isinstance(value, tirx.IntImm) and int(value) == unknown:
            return [relax.VarBinding(binding.var, relax.prim_value(known))]
        return [binding]

    functions = {
        variable: rewrite_dataflow(function, rewritten) if isinstance(function, relax.Function) else function
        for variable, function in module.functions_items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)
