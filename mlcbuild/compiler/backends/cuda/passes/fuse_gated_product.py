"""FuseGatedProduct: a product whose halves are multiplied, one of them through an activation, is one kernel.

That is the way into a gated feed-forward layer: one matrix has the rows of the gate and behind them those that it
opens. FuseOps leaves the block that reads both halves alone, because it is not element-wise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import tvm
from tvm import relax, tirx

from mlcbuild.compiler.backends.cuda import architectures
from mlcbuild.compiler.backends.cuda.kernels import operands, results
from mlcbuild.compiler.kernels.blocks import inline_all, plain_blocks
from mlcbuild.compiler.passes.describe_kernels import GATED
from mlcbuild.compiler.passes.rewriting import callee, finish, group_of_two, rewrite_dataflow


def fuse_gated_product(module: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    """Fuse where a kernel of ours computes the product; others know no rows that belong together."""
    if not architectures.has_mma_m16n8k16(str(target.attrs["arch"])):
        return module
    builder = relax.BlockBuilder(module)
    fused = False
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            fuser = _Fuser(module, builder, function)
            rewritten = rewrite_dataflow(function, fuser.rewrite)
            if any(fuser.groups.values()):
                builder.update_func(variable, rewritten)
                fused = True
    return relax.transform.FuseTIR()(finish(builder.get())) if fused else module


class _Fuser:
    """The state of one function: its calls of kernels, how often their results are read, and the groups made so far,
    None for two kernels that do not fit."""

    def __init__(self, module: tvm.IRModule, builder: relax.BlockBuilder, function: relax.Function) -> None:
        self.module = module
        self.builder = builder
        self.calls: dict[relax.Var, relax.Call] = {}
        self.reads: Counter[relax.Var] = Counter()
        self.groups: dict[tuple[str, str], tvm.ir.GlobalVar | None] = {}

        for block in function.body.blocks:
            for binding in block.bindings:
                self.reads.update(relax.analysis.free_vars(binding.value))

    def rewrite(self, binding: relax.VarBinding) -> Iterator[relax.VarBinding]:
        call = binding.value
        if callee(call) is not None:
            self.calls[binding.var] = call
            arguments = list(call.args[1].fields)
            product = self.calls.get(arguments[0]) if len(arguments) == 1 else None
            if (
                product is not None
                and isinstance(call.ty, relax.TensorType)  # not several results, such as queries, keys and values
                and self.reads[arguments[0]] == 1
                and (group := self._group(product, call)) is not None
            ):
                yield relax.VarBinding(binding.var, relax.Call(group, list(product.args[1].fields)))
                return
        yield binding

    def _group(self, product: relax.Call, reading: relax.Call) -> tvm.ir.GlobalVar | None:
        # Within one function, calls of equal kernels have equal types: their symbolic sizes are the same variables.
        key = (str(product.args[0].name_hint), str(reading.args[0].name_hint))
        if key not in self.groups:
            function = group_of_two(product, reading, 0)
            fits = self._is_gated(product.args[0], reading.args[0], function)
            self.groups[key] = self.builder.add_func(function, f"{key[0]}_{GATED}") if fits else None
        return self.groups[key]

    def _is_gated(self, first: tvm.ir.GlobalVar, second: tvm.ir.GlobalVar, group: relax.Function) -> bool:
        product = operands.match(self.module[first])
        reading = inline_all(self.module[second])
        # A kernel that came scheduled, such as one that starts a workspace's own, has a form of its own.
        if reading is None or len(plain_blocks(reading) or ()) != 1:
            return False
        if product is None or not operands.fits(product) or product.n % (2 * results.EIGHT):
            return False
        together = operands.match(_fused(self.module, (first, second), group), gated=True)
        return together is not None and results.is_gated(together) and operands.fits(together)


def _fused(module: tvm.IRModule, kernels: tuple[tvm.ir.GlobalVar, ...], group: relax.Function) -> tirx.PrimFunc:
    """The kernel that FuseTIR makes of a group."""
    builder = relax.BlockBuilder(tvm.IRModule({variable: module[variable] for variable in kernels}))
    grouped = builder.add_func(group, "group")
    arguments = [relax.Var(parameter.name, parameter.ty) for parameter in group.params]
    with builder.function("main", arguments):
        builder.emit_func_output(builder.emit(relax.Call(grouped, arguments)))
    made = relax.transform.FuseTIR()(finish(builder.get()))
    (fused,) = (function for _, function in made.functions_items() if isinstance(function, tirx.PrimFunc))
    return fused
