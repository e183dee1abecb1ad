"""What the kernels of a module compute, by whom they are called, with which weights, and on which shapes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import tvm
from tvm import relax, tirx

from mlcbuild.compiler.kernel_description import KernelDescription, Size
from mlcbuild.compiler.passes.rewriting import is_operator

GATED = "gated"  # in the names of products whose result has half as many columns as the matrix has rows
_CALLS = ("relax.call_tir", "relax.call_tir_inplace")
_LETTERS = "nmklpqrstuvw"
# Parts of names that say nothing to a reader: how a kernel came to be, and conversions at its end.
_SILENT = frozenset({"fused", "NT", "tir", "kernel", "cast"})
# TVM numbers equal names. Digits of a type are no such number.
_NUMBER = re.compile(r"(?<!\d)(?<!float)(?<!int)(?<!bf)(?<!fp)(?<!^f)(?<!_f)\d+$")
_NUMBERED = re.compile(r"^(.*?)\.(\d+)(?=\.)")

Origins = frozenset[int]
"""Places of the parameters that a value is one of, in the module's order."""


@dataclass(slots=True)
class _Use:
    """What is known of one kernel, from all its calls."""

    names: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)
    parameters: set[int] = field(default_factory=set)
    shape: tuple[Size, ...] = ()
    matrix: tuple[Size, ...] = ()


def describe_kernels(
    module: tvm.IRModule, kernels: Mapping[str, str], parameters: Sequence[str], *, layers: Sequence[int] = ()
) -> dict[str, KernelDescription]:
    """The descriptions of kernels by their content's name.

    `kernels` maps the names that PrimFuncs have in `module` to these. `parameters` are the names of all parameters of
    the model, of whose layers the module may show those of the numbers `layers` alone (`architecture.repetition`).
    Equal modules have equal descriptions.
    """
    uses: dict[str, _Use] = {kernel: _Use() for kernel in kernels.values()}
    walk = _Walk(module, kernels, uses)
    for name, function in sorted(_relax_functions(module)):
        if function.attrs is not None and "global_symbol" in function.attrs:
            walk.enter(name, function)
    shown = _shown_parameters(parameters, walk.parameter_count, frozenset(layers))
    for name, kernel in sorted(kernels.items()):
        use = uses[kernel]
        use.names.add(_operation(name))
        use.shape = use.shape or _first_shape(module[name])
    return {
        kernel: KernelDescription(
            operation=min(use.names, key=lambda name: (len(name), name)),
            functions=tuple(sorted(use.functions)),
            parameters=tuple(dict.fromkeys(_module_of(shown[place]) for place in sorted(use.parameters) if shown)),
            shape=use.shape,
            matrix=use.matrix,
        )
        for kernel, use in sorted(uses.items())
    }


class _Walk:
    """Follows the calls from each public function, with the parameters that values are."""

    def __init__(self, module: tvm.IRModule, kernels: Mapping[str, str], uses: Mapping[str, _Use]) -> None:
        self.parameter_count = 0
        self._functions = dict(_relax_functions(module))
        self._kernels = kernels
        self._uses = uses
        self._seen: set[tuple[str, str, tuple[Origins, ...]]] = set()
        self._called: dict[str, list[str]] = {}

    def enter(self, name: str, function: relax.Function) -> None:
        """Walk from a public function. Its parameters are the fields of the tuple behind its `num_input` inputs."""
        place = int(function.attrs["num_input"]) if "num_input" in function.attrs else len(function.params)
        packed = function.params[place] if place < len(function.params) else None
        if packed is not None and isinstance(packed.ty, tvm.ir.TupleType):
            self.parameter_count = max(self.parameter_count, len(packed.ty.fields))
        else:
            packed = None
        self._visit(name, name, (), packed)

    def _visit(self, name: str, entry: str, arguments: tuple[Origins, ...], packed: relax.Var | None = None) -> None:
        if (name, entry, arguments) in self._seen:
            return
        self._seen.add((name, entry, arguments))
        function = self._functions[name]
        values: dict[relax.Var, Origins] = dict(zip(function.params, arguments, strict=False))
        called = set()
        for variable, value in _bindings(function):
            if isinstance(value, relax.Var):
                values[variable] = values.get(value, frozenset())
            elif isinstance(value, relax.TupleGetItem) and packed is not None and value.tuple_value.same_as(packed):
                values[variable] = frozenset({int(value.index)})
            elif any(is_operator(value, operator) for operator in _CALLS):
                self._call(variable, value, values)
            elif isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.GlobalVar):
                callee = str(value.op.name_hint)
                called.add(callee)
                self._visit(callee, entry, tuple(_origins(argument, values) for argument in value.args))
        # A function may be handed on and not called, as kernels are to the cache.
        for other in self._named_in(name, function):
            if other in self._kernels:
                self._uses[self._kernels[other]].functions.add(entry)
            elif other in self._functions and other not in called:
                self._visit(other, entry, ())

    def _named_in(self, name: str, function: relax.Function) -> list[str]:
        if name not in self._called:
            found = {str(variable.name_hint) for variable in relax.analysis.all_global_vars(function)}
            self._called[name] = sorted(found - {name})
        return self._called[name]

    def _call(self, result: relax.Var, call: relax.Call, values: Mapping[relax.Var, Origins]) -> None:
        name = str(call.args[0].name_hint)
        use = self._uses.get(self._kernels.get(name, ""))
        if use is None:
            return
        arguments = list(call.args[1].fields) if isinstance(call.args[1], relax.Tuple) else [call.args[1]]
        read = [_origins(argument, values) for argument in arguments]
        use.parameters.update(*read)
        letters = _Letters()
        shape = letters.shape_of(result.ty)
        if not use.shape:
            use.shape = shape
        if shape and any(read) and "matmul" in name and not use.matrix:
            vectors = [
                letters.shape_of(argument.ty) for argument, origins in zip(arguments, read, strict=True) if not origins
            ]
            columns = [sizes[-1] for sizes in vectors if len(sizes) == len(shape) and sizes[:-1] == shape[:-1]]
            rows = shape[-1]
            if GATED in name.split("_") and isinstance(rows, int):
                rows *= 2
            use.matrix = (rows, columns[0]) if columns else ()


class _Letters:
    """Sizes of one call: numbers, or letters for what is known only at run time, in order of appearance."""

    def __init__(self) -> None:
        self._letter_of: dict[str, str] = {}

    def shape_of(self, type_: tvm.ir.Type) -> tuple[Size, ...]:
        """The sizes of a tensor, or of the first one in a tuple; () for all else."""
        while isinstance(type_, tvm.ir.TupleType) and type_.fields:
            type_ = type_.fields[0]
        shape = getattr(type_, "shape", None)
        if isinstance(type_, relax.TensorType):
            shape = shape.values if isinstance(shape, relax.ShapeExpr) else None  # it may be a variable
        return tuple(
            int(size) if isinstance(size, int | tirx.IntImm) else self._letter(str(size)) for size in shape or ()
        )

    def _letter(self, size: str) -> str:
        number = len(self._letter_of)
        return self._letter_of.setdefault(size, _LETTERS[number] if number < len(_LETTERS) else f"n{number}")


def _relax_functions(module: tvm.IRModule) -> list[tuple[str, relax.Function]]:
    return [
        (str(variable.name_hint), function)
        for variable, function in module.functions_items()
        if isinstance(function, relax.Function)
    ]


def _bindings(function: relax.Function) -> Iterator[tuple[relax.Var, relax.Expr]]:
    if isinstance(function.body, relax.SeqExpr):
        for block in function.body.blocks:
            for binding in block.bindings:
                if isinstance(binding, relax.VarBinding):
                    yield binding.var, binding.value


def _origins(argument: relax.Expr, values: Mapping[relax.Var, Origins]) -> Origins:
    return values.get(argument, frozenset()) if isinstance(argument, relax.Var) else frozenset()


def _first_shape(function: tirx.PrimFunc) -> tuple[Size, ...]:
    """The sizes of the first tensor that a kernel takes."""
    letters = _Letters()
    shapes = (letters.shape_of(parameter.ty) for parameter in function.params)
    return next((shape for shape in shapes if shape), ())


def _operation(name: str) -> str:
    """`dequantize_matmul` for `fused_dequantize1_fused_NT_matmul3_cast`."""
    words = [_NUMBER.sub("", word) for word in name.split("_")]
    telling = [word for word in words if word and word not in _SILENT]
    return "_".join(telling or words)


def _shown_parameters(names: Sequence[str], shown: int, layers: frozenset[int]) -> list[str]:
    """The names of the parameters that a module shows, which may have fewer layers; [] where they cannot be told."""
    if len(names) == shown:
        return list(names)
    numbers = [_NUMBERED.match(name) for name in names]
    few = [name for name, number in zip(names, numbers, strict=True) if number is None or int(number[2]) in layers]
    return few if len(few) == shown else []


def _module_of(parameter: str) -> str:
    """`model.layers.*.self_attn.qkv_proj` for `model.layers.0.self_attn.qkv_proj.q_weight`."""
    parts = parameter.split(".")
    return ".".join("*" if part.isdigit() else part for part in parts[: max(len(parts) - 1, 1)])
