"""A kernel as a sequence of blocks, each under its own loops."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import s_tir, tirx


def inline_all(func: tirx.PrimFunc) -> tirx.PrimFunc | None:
    """The kernel with every block inlined that can be; None where it is not made of blocks."""
    try:
        schedule = s_tir.Schedule(func)
        blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    except (tvm.error.TVMError, s_tir.ScheduleError, RuntimeError, ValueError):
        return None
    for block in blocks:
        try:
            schedule.compute_inline(block)
        except s_tir.ScheduleError:
            continue
    return schedule.mod["main"]


def plain_blocks(func: tirx.PrimFunc) -> list[s_tir.SBlock] | None:
    """The blocks in order, where each one's axes are just its loops; None for any other kernel."""
    if not isinstance(func.body, s_tir.SBlockRealize):
        return None
    root = func.body.block
    statements = list(root.body.seq) if isinstance(root.body, tirx.SeqStmt) else [root.body]
    blocks = [_plain_block(statement) for statement in statements]
    return None if None in blocks else blocks


def _plain_block(statement: Any) -> s_tir.SBlock | None:
    variables = []
    while isinstance(statement, tirx.For):
        if statement.kind != tirx.ForKind.SERIAL or not is_constant(statement.min, 0):
            return None
        variables.append(statement.loop_var)
        statement = statement.body
    if not isinstance(statement, s_tir.SBlockRealize) or not is_constant(statement.predicate, 1):
        return None
    values = list(statement.iter_values)
    same = len(values) == len(variables) and all(
        value.same_as(variable) or is_constant(value, 0) for value, variable in zip(values, variables, strict=True)
    )
    block = statement.block
    whole = (
        not block.alloc_buffers
        and not block.match_buffers
        and all(is_constant(axis.dom.min, 0) for axis in block.iter_vars)
    )
    return block if same and whole else None


def is_constant(expression: Any, value: int) -> bool:
    return isinstance(expression, tirx.IntImm) and int(expression) == value


def is_reduction(axis: tirx.IterVar) -> bool:
    return bool(axis.iter_type == tirx.IterVar.CommReduce)


def is_spatial(axis: tirx.IterVar) -> bool:
    return bool(axis.iter_type == tirx.IterVar.DataPar)
