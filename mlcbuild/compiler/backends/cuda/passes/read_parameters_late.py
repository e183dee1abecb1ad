"""ReadParametersLate: a weight is taken out of the tuple of all just before the first kernel that reads it.

TVM's importer takes all of them out at a function's begin, some hundred calls of its virtual machine in which the GPU
has nothing to do yet. Later the host is ahead of the GPU, and they cost nothing.
"""

from __future__ import annotations

import tvm
from tvm import relax

from mlcbuild.compiler.passes.rewriting import with_blocks


def read_parameters_late(module: tvm.IRModule) -> tvm.IRModule:
    """The module with the elements of tuples that functions take moved to their first use."""
    functions = {
        variable: _late(function) if isinstance(function, relax.Function) else function
        for variable, function in module.functions_items()
    }
    return relax.transform.Normalize()(tvm.IRModule(functions, attrs=module.attrs))


def _late(function: relax.Function) -> relax.Function:
    if not isinstance(function.body, relax.SeqExpr):
        return function
    tuples = {parameter for parameter in function.params if isinstance(parameter.ty, relax.TupleType)}
    waiting: dict[relax.Var, relax.VarBinding] = {}
    blocks = []
    for block in function.body.blocks:
        bindings = []
        for binding in block.bindings:
            if _reads_one_of(binding, tuples):
                waiting[binding.var] = binding
                continue
            for variable in relax.analysis.free_vars(binding.value):
                if variable in waiting:
                    bindings.append(waiting.pop(variable))
            bindings.append(binding)
        blocks.append(type(block)(bindings))
    if waiting:  # a result, or nothing: not after the last block
        blocks[-1] = type(blocks[-1])([*waiting.values(), *blocks[-1].bindings])
    return with_blocks(function, blocks)


def _reads_one_of(binding: relax.Binding, tuples: set[relax.Var]) -> bool:
    value = binding.value
    return isinstance(value, relax.TupleGetItem) and value.tuple_value in tuples
