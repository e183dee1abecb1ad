"""Equal layers once: a call of a layer becomes a call of a private function that all equal layers share.

What a pass does to a model then costs what its distinct layers cost, however many there are. Lower puts the
layers back in line, so that memory is planned for the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import tvm
from tvm import relax
from tvm.relax.frontend import nn


@contextmanager
def bound(parameters: Sequence[nn.Parameter], expressions: Sequence[relax.Expr]) -> Iterator[None]:
    """Within the block, parameters are the given expressions."""
    own = [parameter._expr for parameter in parameters]
    for parameter, expression in zip(parameters, expressions, strict=True):
        parameter._expr = expression
    try:
        yield
    finally:
        for parameter, expression in zip(parameters, own, strict=True):
            parameter._expr = expression


Trace = Callable[..., tuple[nn.Tensor | nn.Object, ...]]


class Outliner:
    """The private functions made so far, of one model and one export."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._functions: dict[tuple[str, ...], tvm.ir.GlobalVar] = {}  # by kind and types

    def call(
        self,
        parts: Sequence[nn.Module],
        trace: Trace,
        arguments: Sequence[relax.Expr],
        *,
        kind: str = "",
        types: Sequence[tvm.ir.Type] = (),
    ) -> tuple[relax.Var, ...]:
        """Call `trace(*variables)`, which computes a layer of these parts on one variable for each of `arguments`, in a
        function of its own: the one that a layer of the same kind, with arguments and parameters of the same types, has
        made, if any. `types` are those of the first variables, where they are not the arguments' own: a size of its own
        in place of the product of two, for kernels that need no more.

        Layers of a kind have to compute the same from the same: only their parameters and arguments differ.
        """
        builder = relax.BlockBuilder.current()
        parameters = [parameter for part in parts for parameter in part.parameters()]
        passed = [*(builder.normalize(argument) for argument in arguments), *(item._expr for item in parameters)]
        key = (kind, *(str(value.ty) for value in passed))
        if key not in self._functions:
            known = [*types, *(value.ty for value in passed[len(types) :])]
            self._functions[key] = self._function(builder, parameters, trace, known)
        results = builder.emit(relax.Call(self._functions[key], passed))
        return tuple(builder.emit(relax.TupleGetItem(results, place)) for place in range(len(results.ty.fields)))

    def _function(
        self,
        builder: relax.BlockBuilder,
        parameters: Sequence[nn.Parameter],
        trace: Trace,
        types: Sequence[tvm.ir.Type],
    ) -> tvm.ir.GlobalVar:
        variables = [relax.Var(f"argument{place}", each) for place, each in enumerate(types)]
        inner, count = variables[-len(parameters) :], len(types) - len(parameters)
        with bound(parameters, inner), builder.function(self.name, variables, private=True):
            with builder.dataflow():
                computed = relax.Tuple([tensor._expr for tensor in trace(*variables[:count])])
                result = builder.emit_output(computed)
            made = builder.emit_func_output(result)
        # Types still hold the caller's symbolic sizes.
        builder.update_func(made, relax.utils.copy_with_new_vars(builder.get()[made]))
        return made
