"""FuseDequantizeMatmulEwise and FuseDequantizeTake: a matrix is restored inside the kernel that reads it.

A kernel that says that it restores weights becomes one with the kernel that reads what it restores, so that no restored
matrix is ever stored.
"""

from __future__ import annotations

from collections.abc import Iterator

import tvm
from tvm import relax

from mlcbuild.compiler.kernel_attributes import RESTORES_WEIGHTS
from mlcbuild.compiler.passes.rewriting import callee, finish, group_of_two, rewrite_dataflow


def fuse_dequantize(module: tvm.IRModule) -> tvm.IRModule:
    """Fuse into whatever reads the matrix: products, with the elementwise work that these already hold, and the
    selection of rows, so that of a table the rows asked for are restored and no others."""
    builder = relax.BlockBuilder(module)
    fused = False
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            fuser = _Fuser(module, builder)
            rewritten = rewrite_dataflow(function, fuser.rewrite)
            if fuser.groups:
                builder.update_func(variable, rewritten)
                fused = True
    return relax.transform.FuseTIR()(finish(builder.get())) if fused else module


class _Fuser:
    """The state of one function: its restored matrices, and the groups made so far."""

    def __init__(self, module: tvm.IRModule, builder: relax.BlockBuilder) -> None:
        self.module = module
        self.builder = builder
        self.restored: dict[relax.Var, relax.Call] = {}
        self.groups: dict[tuple[str, str, int], tvm.ir.GlobalVar] = {}

    def rewrite(self, binding: relax.VarBinding) -> Iterator[relax.VarBinding]:
        call = binding.value
        kernel = callee(call)
        if kernel is not None and RESTORES_WEIGHTS in self.module[kernel].attrs:
            self.restored[binding.var] = call
        elif kernel is not None:
            arguments = list(call.args[1].fields)
            places = [place for place, argument in enumerate(arguments) if argument in self.restored]
            if len(places) == 1:
                yield relax.VarBinding(binding.var, self._call(call, arguments, places[0]))
                return
        yield binding

    def _call(self, reading: relax.Call, arguments: list[relax.Expr], place: int) -> relax.Call:
        """A call of the group of a restoring call and the call that reads its result at `place`."""
        restoring = self.restored[arguments[place]]
        stored = list(restoring.args[1].fields)
        passed = [*stored, *arguments[:place], *arguments[place + 1 :]]
        # Within one function, calls of equal kernels have equal types: their symbolic sizes are the same variables.
        key = (str(restoring.args[0].name_hint), str(reading.args[0].name_hint), place)
        if key not in self.groups:
            self.groups[key] = self.builder.add_func(
                group_of_two(restoring, reading, place), f"fused_{key[0]}_{key[1]}"
            )
        return relax.Call(self.groups[key], passed)
