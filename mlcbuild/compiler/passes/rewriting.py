"""Rewriting Relax functions binding by binding: one pass over a function, linear in its length."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import tvm
from tvm import relax

Rewrite = Callable[[relax.VarBinding], Iterable[relax.VarBinding]]


def rewrite_dataflow(function: relax.Function, rewrite: Rewrite) -> relax.Function:
    """The function with each binding of its dataflow blocks replaced by those that `rewrite` returns for it.

    The last of them has to bind the same variable. New calls have no types yet: run `finish` on the module.
    """
    blocks = [
        relax.DataflowBlock([new for old in block.bindings for new in rewrite(old)])
        if isinstance(block, relax.DataflowBlock)
        else block
        for block in function.body.blocks
    ]
    return with_blocks(function, blocks)


def with_blocks(function: relax.Function, blocks: Sequence[relax.BindingBlock]) -> relax.Function:
    """The function with other blocks, which bind what its body returns. The body has no type yet."""
    return relax.Function(
        function.params,
        relax.SeqExpr(blocks, function.body.body),
        function.ret_ty,
        function.is_pure,
        function.attrs,
    )


def finish(module: tvm.IRModule) -> tvm.IRModule:
    """Give new expressions their types, and drop bindings that nothing uses any more."""
    return relax.transform.DeadCodeElimination()(relax.transform.Normalize()(module))


def callee(expression: relax.Expr) -> tvm.ir.GlobalVar | None:
    """The kernel that a plain `call_tir` calls, None for any other expression."""
    if (
        isinstance(expression, relax.Call)
        and isinstance(expression.op, tvm.ir.Op)
        and expression.op.name == "relax.call_tir"
        and len(expression.args) == 2  # more are symbolic sizes handed to the kernel
        and isinstance(expression.args[0], tvm.ir.GlobalVar)
    ):
        return expression.args[0]
    return None


def is_operator(expression: relax.Expr, name: str) -> bool:
    """Whether the expression is a call of the operator of that name, for example `relax.matmul`."""
    return isinstance(expression, relax.Call) and isinstance(expression.op, tvm.ir.Op) and expression.op.name == name


def group_of_two(first: relax.Call, second: relax.Call, place: int) -> relax.Function:
    """A private function of two calls of kernels, that FuseTIR makes one kernel of: the second takes the result of the
    first as its argument at `place`. Its parameters are the first's arguments, and the others of the second."""
    builder = relax.BlockBuilder()
    given = [
        [relax.Var(f"argument{index}", value.ty) for index, value in enumerate(call.args[1].fields)]
        for call in (first, second)
    ]
    others = [variable for index, variable in enumerate(given[1]) if index != place]
    with builder.function("group", [*given[0], *others], attrs={"Primitive": True}, private=True):
        with builder.dataflow():
            made = builder.emit(relax.call_tir(first.args[0], given[0], out_ty=first.ty))
            values = [made if index == place else variable for index, variable in enumerate(given[1])]
            result = builder.emit_output(relax.call_tir(second.args[0], values, out_ty=second.ty))
        builder.emit_func_output(result)
    return relax.utils.copy_with_new_vars(builder.get()["group"])
