"""How much memory each function needs beside weights and cache, in bytes."""

from __future__ import annotations

import math

import tvm
from tvm import relax, tirx


def memory_usage(module: tvm.IRModule) -> dict[str, int]:
    """Planned storage and constant-size tensors of each Relax function of a module after StaticPlanBlockMemory.

    Sizes that are known at run time only do not count.
    """
    return {
        str(variable.name_hint): _of_function(function)
        for variable, function in module.functions_items()
        if isinstance(function, relax.Function)
    }


def _of_function(function: relax.Function) -> int:
    total = 0
    for block in function.body.blocks if isinstance(function.body, relax.SeqExpr) else []:
        for binding in block.bindings:
            call = binding.value
            if isinstance(call, relax.Call) and isinstance(call.op, tvm.ir.Op):
                total += _of_call(call)
    return total


def _of_call(call: relax.Call) -> int:
    if call.op.name == "relax.memory.alloc_storage":
        return _product([*call.args[0].values]) or 0
    if call.op.name == "relax.builtin.alloc_tensor":
        elements = _product([*call.args[0].values])
        return 0 if elements is None else elements * tvm.DataType(str(call.ty.dtype)).itemsize
    return 0


def _product(sizes: list[tirx.Expr]) -> int | None:
    if all(isinstance(size, tirx.IntImm) for size in sizes):
        return math.prod(int(size) for size in sizes)
    return None
