"""Put in the layers that a module of `architecture.repetition` does not show.

Where a function calls the layers it shows, it calls all of them afterwards: for each layer the call of the one that
stands for it, with the layer's own number and parameters, reading what the layer before it made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import tvm
from tvm import relax, tirx

from mlcbuild.compiler.models.architecture.repetition import Repetition
from mlcbuild.compiler.models.description import Layers
from mlcbuild.errors import InternalError, StageError


def repeat_layers(module: tvm.IRModule, names: Sequence[str], layers: Layers) -> tvm.IRModule:
    """The module with all `layers`; `names` are those of all parameters, in the order of the tuple that functions take.

    Calls are left without types. Raises StageError for a module whose parameters are not those that show `names`.
    """
    repetition = Repetition.of(names, layers)
    shown = len(repetition.parameters)
    functions = {}
    for variable, function in module.functions_items():
        parameters = _parameters(function)
        if parameters is not None and len(parameters.ty.fields) != shown:
            raise StageError(
                f"{variable.name_hint} takes {len(parameters.ty.fields)} parameters, not the {shown} that"
                f" show {len(names)} parameters of {layers.count} layers"
            )
        repeats = parameters is not None and layers.count > len(repetition.shown)
        functions[variable] = _repeated(function, parameters, repetition) if repeats else function
    return tvm.IRModule(functions, attrs=module.attrs)


def _parameters(function: tvm.ir.BaseFunc) -> relax.Var | None:
    """The tuple of parameters that an entry function takes last."""
    if not isinstance(function, relax.Function) or "global_symbol" not in function.attrs or not function.params:
        return None
    last = function.params[-1]
    return last if isinstance(last.ty, relax.TupleType) else None


def _repeated(function: relax.Function, parameters: relax.Var, repetition: Repetition) -> relax.Function:
    types = dict(zip(repetition.parameters, parameters.ty.fields, strict=True))
    every = [types[repetition.shown_like(name)] for name in repetition.names]
    packed = relax.Var(parameters.name, relax.TupleType(every))
    repeater = _Repeater(parameters, packed, repetition)
    blocks = [
        type(block)([new for old in block.bindings for new in repeater.bindings(old)]) for block in function.body.blocks
    ]
    if repeater.calls and len(repeater.calls) != len(repetition.shown):
        raise InternalError(f"a module shows {len(repetition.shown)} layers, and calls {len(repeater.calls)}")
    return relax.Function(
        [*list(function.params)[:-1], packed],
        relax.SeqExpr(blocks, function.body.body),
        function.ret_ty,
        function.is_pure,
        function.attrs,
    )


class _Repeater:
    """The state of one function: what its variables are to its layers, and the calls that wait for the last one."""

    def __init__(self, parameters: relax.Var, packed: relax.Var, repetition: Repetition) -> None:
        self.parameters = parameters
        self.packed = packed
        self.repetition = repetition
        self.names = repetition.parameters
        self.places = {name: place for place, name in enumerate(repetition.names)}
        self.shown: dict[relax.Var, str] = {}  # the name of the parameter that a variable is
        self.read: dict[str, relax.Var] = {}  # the variable of a parameter
        self.calls: list[relax.VarBinding] = []
        self.results: dict[relax.Var, tuple[int, int]] = {}  # which call's result a variable is, and which of them

    def bindings(self, binding: relax.VarBinding) -> Iterator[relax.VarBinding]:
        value = binding.value
        if isinstance(value, relax.TupleGetItem) and value.tuple_value.same_as(self.parameters):
            yield from self._read(binding.var, self.names[int(value.index)])
        elif isinstance(value, relax.TupleGetItem) and (call := self._waiting(value.tuple_value)) is not None:
            self.results[binding.var] = (call, int(value.index))
        elif isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar) and self._is_layer(value):
            self.calls.append(binding)
            if len(self.calls) == len(self.repetition.shown):
                yield from self._all_layers()
        else:
            self._check(value)
            yield binding

    def _is_layer(self, call: relax.Call) -> bool:
        """Whether a call of a function of the module's is that of a layer: it is given parameters of one."""
        given = [self.shown[argument] for argument in call.args if argument in self.shown]
        return any(self.repetition.layer(name) is not None for name in given)

    def _waiting(self, made: relax.Expr) -> int | None:
        """Which of the calls made a tuple that no function has yet, because other layers come in between."""
        waiting = self.calls if len(self.calls) < len(self.repetition.shown) else self.calls[:-1]
        return next((place for place, call in enumerate(waiting) if made.same_as(call.var)), None)

    def _read(self, variable: relax.Var, name: str) -> Iterator[relax.VarBinding]:
        """Read the parameter, and those of further layers that it stands for.

        All are read before the first layer: what lies between two kernels would go into each graph that is captured.
        """
        self.shown[variable] = name
        layer = self.repetition.layer(name)
        for each in [name] if layer is None else self._like(name, self.repetition.shown[layer]):
            self.read[each] = variable if each == name else type(variable)(each.replace(".", "_"), variable.ty)
            yield relax.VarBinding(self.read[each], relax.TupleGetItem(self.packed, self.places[each]))

    def _like(self, name: str, number: int) -> list[str]:
        """A parameter of a layer that is shown, and those of others of its kind; where the model's last layer is of
        this kind, they are read with that one's and not with the first one's."""
        layers = self.repetition.layers
        alike = [other for other in range(layers.count) if layers.kind(other) == layers.kind(number)]
        if alike[-1] == layers.count - 1 and len(alike) > 1:
            alike = alike[:1] if number == alike[0] else alike[1:]
        return [self.repetition.in_layer(name, other) for other in alike]

    def _all_layers(self) -> Iterator[relax.VarBinding]:
        count = self.repetition.layers.count
        flow = self._flow()
        before: dict[int, relax.Var] = {}
        for number in range(count):
            shown = self.repetition.stand_in(number)
            call = self.calls[shown]
            arguments = [
                before[flow[place]] if number and place in flow else self._argument(given, shown, number)
                for place, given in enumerate(call.value.args)
            ]
            if number == count - 1:
                yield relax.VarBinding(call.var, relax.Call(call.value.op, arguments))
                return
            made = type(call.var)(f"layer{number}", call.var.ty)
            yield relax.VarBinding(made, relax.Call(call.value.op, arguments))
            for index in sorted(set(flow.values())):
                before[index] = type(call.var)(f"layer{number}_{index}", call.var.ty.fields[index])
                yield relax.VarBinding(before[index], relax.TupleGetItem(made, index))

    def _flow(self) -> dict[int, int]:
        """Which results of the layer before it a layer takes: by the argument's place, the result's.

        Raises InternalError for calls that differ in this, and for two layers of a kind that are two functions.
        """
        flows = list[dict[int, int]]()
        for number, call in enumerate(self.calls):
            taken = {place: self.results[one] for place, one in enumerate(call.value.args) if one in self.results}
            if any(made_by != number - 1 for made_by, _ in taken.values()):
                raise InternalError("a layer reads what another one made than the layer before it")
            flows.append({place: index for place, (_, index) in taken.items()})
        kinds = [self.repetition.layers.kind(number) for number in self.repetition.shown]
        first = self.calls[kinds.index(kinds[-1])]
        if any(flow != flows[1] for flow in flows[1:]) or not first.value.op.same_as(self.calls[-1].value.op):
            raise InternalError("the layers that a module shows are not alike")
        return flows[1]

    def _argument(self, given: relax.Expr, shown: int, number: int) -> relax.Expr:
        """What stands in the call of layer `number` where the call of the layer that is shown for it has `given`."""
        if isinstance(given, tirx.IntImm):
            return relax.prim_value(self.repetition.layers.place(number))
        if given not in self.shown:
            return given
        name = self.shown[given]
        layer = self.repetition.layer(name)
        if layer is None:
            return given
        # A layer reads parameters of its own, and of the one behind it.
        wanted = self.repetition.in_layer(name, number + layer - shown)
        if not 0 <= layer - shown <= 1 or wanted not in self.read:
            raise InternalError(f"layer {number} would read {wanted}, which the model does not have")
        return self.read[wanted]

    def _check(self, value: relax.Expr) -> None:
        """What belongs to a layer must be read by layers alone; only the first layer is where it is shown to be."""
        for variable in relax.analysis.free_vars(value):
            layer = self.repetition.layer(self.shown[variable]) if variable in self.shown else None
            if variable in self.results or layer:
                raise InternalError(f"{variable.name} of a layer is used outside of it")
