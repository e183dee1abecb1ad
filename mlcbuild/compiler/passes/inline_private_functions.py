"""Put private functions in line where they are called.

TVM's own InlinePrivateFunctions keeps the callee's symbolic sizes, which later passes then know nothing of; here they
become the caller's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import tvm
from tvm import relax, tirx

from mlcbuild.compiler.passes.rewriting import with_blocks
from mlcbuild.errors import InternalError


def inline_private_functions(module: tvm.IRModule) -> tvm.IRModule:
    """Inline every call of a private Relax function, and drop these functions. They may not call each other, and of
    several results each is read for itself. Inlined calls are left without types, and parameters bound to arguments."""
    private = {
        variable: function
        for variable, function in module.functions_items()
        if isinstance(function, relax.Function) and "global_symbol" not in function.attrs
    }
    if not private:
        return module
    functions = {}
    for variable, function in module.functions_items():
        if variable in private:
            continue
        functions[variable] = _inlined(function, private) if isinstance(function, relax.Function) else function
    return tvm.IRModule(functions, attrs=module.attrs)


def _inlined(function: relax.Function, private: dict[tvm.ir.GlobalVar, relax.Function]) -> relax.Function:
    inliner = _Inliner(private)
    blocks = [
        type(block)([new for old in block.bindings for new in inliner.bindings(old)]) for block in function.body.blocks
    ]
    if function.body.body in inliner.results:
        raise InternalError("a function returns all results of a private function as they are")
    return with_blocks(function, blocks)


class _Inliner:
    """The state of one function: what the tuples of results consist of that calls have returned so far."""

    def __init__(self, private: dict[tvm.ir.GlobalVar, relax.Function]) -> None:
        self.private = private
        self.places = {variable: _places_of_sizes(function.params) for variable, function in private.items()}
        self.results: dict[relax.Var, relax.Tuple] = {}

    def bindings(self, binding: relax.VarBinding) -> Iterator[relax.VarBinding]:
        value = binding.value
        if isinstance(value, relax.TupleGetItem) and value.tuple_value in self.results:
            # Nobody else reads the tuple, which is not made then.
            yield relax.VarBinding(binding.var, self.results[value.tuple_value].fields[value.index])
            return
        if not isinstance(value, relax.Call) or value.op not in self.private:
            yield binding
            return
        fresh = relax.utils.copy_with_new_vars(self.private[value.op])
        sizes = {
            fresh.params[parameter].ty.shape[axis]: value.args[parameter].ty.shape[axis]
            for parameter, axis in self.places[value.op]
        }
        sized = _knowing(fresh, sizes.values()).bind_symbolic_vars(sizes) if sizes else fresh
        body = sized.bind_params(dict(zip(sized.params, value.args, strict=False))).body
        for block in body.blocks:
            for inner in block.bindings:
                if inner.var.same_as(body.body) and isinstance(inner.value, relax.Tuple):
                    self.results[binding.var] = inner.value
                else:
                    yield inner
        if binding.var not in self.results:
            yield relax.VarBinding(binding.var, body.body)


def _knowing(function: relax.Function, sizes: Iterable[tirx.Expr]) -> relax.Function:
    """The function with a last parameter more, of which the variables in these sizes are known: TVM wants each of them
    to be the size of an argument, and an argument may be as large as the product of two."""
    unknown = {
        variable
        for size in sizes
        if not isinstance(size, tirx.Var | tirx.IntImm)
        for variable in tirx.analysis.undefined_vars(size)
    }
    if not unknown:
        return function
    ordered = sorted(unknown, key=lambda variable: str(variable.name))
    last = relax.Var("sizes", relax.ShapeType(values=ordered))
    return relax.Function([*function.params, last], function.body, function.ret_ty, function.is_pure, function.attrs)


def _places_of_sizes(parameters: Iterable[relax.Var]) -> list[tuple[int, int]]:
    """Where the types of parameters have symbolic sizes: (parameter, axis), each size once."""
    places: dict[tirx.Var, tuple[int, int]] = {}
    for number, parameter in enumerate(parameters):
        if isinstance(parameter.ty, relax.TensorType):
            for axis, size in enumerate(parameter.ty.shape):
                if isinstance(size, tirx.Var):
                    places.setdefault(size, (number, axis))
    return list(places.values())
