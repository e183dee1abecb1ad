"""LiftTIRGlobalBufferAlloc: buffers that a kernel keeps between its launches become its last parameters.

A kernel of several launches may hand numbers from one to the next through global memory. Nobody allocates that inside
of a kernel; the caller does, where memory is planned for all.
"""

from __future__ import annotations

from tvm import s_tir, tirx


def lift_global_buffers(func: tirx.PrimFunc) -> tuple[tirx.PrimFunc, list[tirx.Var]]:
    """The kernel with the buffers of global memory that its root block allocates as parameters behind all others, and
    these buffers."""
    if not isinstance(func.body, s_tir.SBlockRealize):
        return func, []
    root = func.body.block
    lifted = [buffer for buffer in root.alloc_buffers if buffer.scope() == "global"]
    if not lifted:
        return func, []
    block = s_tir.SBlock(
        iter_vars=root.iter_vars,
        reads=root.reads,
        writes=root.writes,
        name_hint=root.name_hint,
        body=root.body,
        alloc_buffers=[buffer for buffer in root.alloc_buffers if buffer.scope() != "global"],
        match_buffers=root.match_buffers,
        annotations=root.annotations,
    )
    body = s_tir.SBlockRealize(func.body.iter_values, func.body.predicate, block)
    return tirx.PrimFunc([*func.params, *lifted], body, func.ret_type, func.attrs), lifted
