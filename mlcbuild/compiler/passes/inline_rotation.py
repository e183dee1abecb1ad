"""Attention kernels that expect rotated queries and keys, beside those that rotate them themselves.

A cache with a sliding window keeps keys as they are, since their positions change as the window moves, and asks its
attention kernels to rotate: their argument `rotary_mode` is then 1 (`RopeMode.INLINE`), else 0.
"""

from __future__ import annotations

import tvm
from tvm import s_tir, tirx

_ARGUMENT = "rotary_mode"


def with_inline_rotation(replaced: tvm.IRModule, original: tvm.IRModule) -> tvm.IRModule:
    """`replaced` with the kernels of `original` where a kernel was exchanged and `rotary_mode` is not 0.

    An exchanged kernel has the parameters of the one that it replaces.
    """
    before = dict(original.functions_items())
    functions = {
        variable: _by_mode(function, before[variable]) if isinstance(function, tirx.PrimFunc) else function
        for variable, function in replaced.functions_items()
    }
    return tvm.IRModule(functions, attrs=replaced.attrs)


def _by_mode(kernel: tirx.PrimFunc, original: tirx.PrimFunc) -> tirx.PrimFunc:
    modes = [parameter for parameter in kernel.params if str(parameter.name) == _ARGUMENT]
    if kernel.same_as(original) or not modes:
        return kernel
    chosen = tirx.IfThenElse(modes[0] == tirx.const(0, str(modes[0].ty.dtype)), kernel.body, original.body)
    root = s_tir.SBlock(iter_vars=[], reads=[], writes=[], name_hint="root", body=chosen)
    return kernel.with_body(s_tir.SBlockRealize([], True, root))
