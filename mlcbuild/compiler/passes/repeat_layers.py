"""Put in the layers that a module of `models.repetition` does not show.

Where a function calls the two layers it shows, it calls all of them afterwards: the first call once for each layer but
the last, with that layer's number and parameters, each reading what the one before it made; the second for the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import tvm
from tvm import relax, tirx

from mlcbuild.compiler.models.description import Layers
from mlcbuild.compiler.models.repetition import SHOWN, Repetition
from mlcbuild.errors import InternalError, StageError


def repeat_layers(module: tvm.IRModule, names: Sequence[str], layers: Layers) -> tvm.IRModule:
    """The module with all `layers`; `names` are those of all parameters, in the order of the tuple that functions take.

    Calls are left without types. Raises StageError for a module whose parameters are not those that show `names`.
    """
    repetition = Repetition.of(names, layers)
    functions = {}
    for variable, function in module.functions_items():
        parameters = _parameters(function)
        if parameters is not None and len(parameters.ty.fields) != repetition.length:
            raise StageError(
                f"{variable.name_hint} takes {len(parameters.ty.fields)} parameters, not the {repetition.length} that"
                f" show {len(names)} parameters of {repetition.count} layers"
            )
        repeats = parameters is not None and repetition.count > repetition.shown
        functions[variable] = _repeated(function, parameters, repetition, names) if repeats else function
    return tvm.IRModule(functions, attrs=module.attrs)


def _parameters(function: tvm.ir.BaseFunc) -> relax.Var | None:
    """The tuple of parameters that an entry function takes last."""
    if not isinstance(function, relax.Function) or "global_symbol" not in function.attrs or not function.params:
        return None
    last = function.params[-1]
    return last if isinstance(last.ty, relax.TupleType) else None


def _repeated(
    function: relax.Function, parameters: relax.Var, repetition: Repetition, names: Sequence[str]
) -> relax.Function:
    fields = list(parameters.ty.fields)
    every = [fields[repetition.stand_in(place)] for place in range(len(names))]
    packed = relax.Var(parameters.name, relax.TupleType(every))
    repeater = _Repeater(parameters, packed, repetition, names)
    blocks = [
        type(block)([new for old in block.bindings for new in repeater.bindings(old)]) for block in function.body.blocks
    ]
    return relax.Function(
        [*list(function.params)[:-1], packed],
        relax.SeqExpr(blocks, function.body.body),
        function.ret_ty,
        function.is_pure,
        function.attrs,
    )


class _Repeater:
    """The state of one function: what its variables are to its layers, and the call that waits for the other."""

    def __init__(self, parameters: relax.Var, packed: relax.Var, repetition: Repetition, names: Sequence[str]) -> None:
        self.parameters = parameters
        self.packed = packed
        self.repetition = repetition
        self.names = names
        self.shown: dict[relax.Var, int] = {}  # which parameter of those shown a variable is
        self.read: dict[int, relax.Var] = {}  # the variable of a parameter, by its place among all
        self.first: relax.VarBinding | None = None
        self.results: dict[relax.Var, int] = {}  # which result of the first call a variable is

    def bindings(self, binding: relax.VarBinding) -> Iterator[relax.VarBinding]:
        value = binding.value
        if isinstance(value, relax.TupleGetItem) and value.tuple_value.same_as(self.parameters):
            yield from self._read(binding.var, int(value.index))
        elif isinstance(value, relax.TupleGetItem) and self.first and value.tuple_value.same_as(self.first.var):
            self.results[binding.var] = int(value.index)
        elif isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar):
            if self.first is None:
                self.first = binding
            else:
                yield from self._all_layers(self.first, binding)
        else:
            self._check(value)
            yield binding

    def _read(self, variable: relax.Var, shown: int) -> Iterator[relax.VarBinding]:
        """Read the parameter, and those of further layers that it stands for.

        All are read before the first layer: what lies between two kernels would go into each graph that is captured.
        """
        self.shown[variable] = shown
        layers = self.repetition.further if self.repetition.layer(shown) == SHOWN - 1 else 1
        for further in range(layers):
            place = self.repetition.place(shown, further=further)
            name = self.names[place].replace(".", "_")
            self.read[place] = type(variable)(name, variable.ty) if further else variable
            yield relax.VarBinding(self.read[place], relax.TupleGetItem(self.packed, place))

    def _all_layers(self, first: relax.VarBinding, last: relax.VarBinding) -> Iterator[relax.VarBinding]:
        if not first.value.op.same_as(last.value.op):
            raise InternalError("the two layers that a module shows are not alike")
        before: dict[int, relax.Var] = {}
        for layer in range(self.repetition.count - 1):
            arguments = self._arguments(first.value, last.value, layer, before)
            made = type(first.var)(f"layer{layer}", first.var.ty)
            yield relax.VarBinding(made, relax.Call(first.value.op, arguments))
            for index in sorted(set(self.results.values())):
                before[index] = type(first.var)(f"layer{layer}_{index}", first.var.ty.fields[index])
                yield relax.VarBinding(before[index], relax.TupleGetItem(made, index))
        arguments = self._arguments(first.value, last.value, self.repetition.count - 1, before)
        yield relax.VarBinding(last.var, relax.Call(last.value.op, arguments))

    def _arguments(
        self, first: relax.Call, last: relax.Call, layer: int, before: dict[int, relax.Var]
    ) -> list[relax.Expr]:
        """Those of a layer's call; `before` are the results of the layer in front of it."""
        is_last = layer == self.repetition.count - 1
        return [
            before[self.results[other]]
            if layer > 0 and other in self.results
            else self._argument(other if is_last else one, one if is_last else other, layer)
            for one, other in zip(first.args, last.args, strict=True)
        ]

    def _argument(self, given: relax.Expr, twin: relax.Expr, layer: int) -> relax.Expr:
        """What stands in a layer's call for the argument `given`, which the other call that is shown has as `twin`."""
        if given in self.shown:
            further = layer if layer < self.repetition.count - 1 else self.repetition.further - 1
            return self.read[self.repetition.place(self.shown[given], further=further)]
        if isinstance(given, tirx.IntImm):
            return relax.prim_value(layer)
        if not given.same_as(twin) and twin not in self.results:
            raise InternalError(f"{given} is neither a layer's own nor the same in all layers")
        return given

    def _check(self, value: relax.Expr) -> None:
        """What belongs to a layer that stands for another must be read by that layer alone."""
        for variable in relax.analysis.free_vars(value):
            shown = self.shown.get(variable)
            if variable in self.results or (shown is not None and self.repetition.layer(shown) == SHOWN - 1):
                raise InternalError(f"{variable.name} of a layer is used outside of it")
