"""SetActiveVocabSize: how many entries of the vocabulary the tokenizer has becomes known.

Phase0 hands kernels a number that stands for it. Lower, which is told the tokenizer's, writes that in its place.
"""

from __future__ import annotations

from collections.abc import Iterable

import tvm
from tvm import relax, tirx

from mlcbuild.compiler.passes.rewriting import rewrite_dataflow

_UNKNOWN = -1


def unknown_active_vocab_size() -> relax.Expr:
    """An int64 for a binding, which stands for the size."""
    return relax.prim_value(_UNKNOWN)


def set_active_vocab_size(module: tvm.IRModule, active_vocab_size: int) -> tvm.IRModule:
    """Put the size in place of what stands for it."""

    def known(binding: relax.VarBinding) -> Iterable[relax.VarBinding]:
        value = binding.value
        if isinstance(value, tirx.IntImm) and int(value) == _UNKNOWN:
            return [relax.VarBinding(binding.var, relax.prim_value(active_vocab_size))]
        return [binding]

    functions = {
        variable: rewrite_dataflow(function, known) if isinstance(function, relax.Function) else function
        for variable, function in module.functions_items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)
