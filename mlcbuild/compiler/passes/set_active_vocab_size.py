"""SetActiveVocabSize: how many entries of the vocabulary the tokenizer has becomes known.

Phase0 hands kernels a number that stands for it. Lower, which is told the tokenizer's, writes that in its place.
"""

from __future__ import annotations

import tvm
from tvm import relax

from mlcbuild.compiler.passes.write_number import write_number

_UNKNOWN = -1


def unknown_active_vocab_size() -> relax.Expr:
    """An int64 for a binding, which stands for the size."""
    return relax.prim_value(_UNKNOWN)


def set_active_vocab_size(module: tvm.IRModule, active_vocab_size: int) -> tvm.IRModule:
    """Put the size in place of what stands for it."""

    return write_number(module, unknown=_UNKNOWN, known=active_vocab_size)
