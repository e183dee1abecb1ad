"""DispatchTritonKernel: a workspace's kernels in Triton stand for the operators that they are declared for.

Each call becomes that of a kernel of the host, which starts Triton's (`backends.cuda.triton_launch`). A pattern takes
the place of what it matches in the order of the graph; what its operators were computed of stays, if others read it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx

from mlcbuild.compiler.backends.cuda.triton_launch import TritonKernel, address, launch, naming
from mlcbuild.compiler.kernels.building import replace_body
from mlcbuild.compiler.operator_pattern import (
    OperatorPattern,
    PartPattern,
    Pattern,
    Sizes,
    TensorPattern,
    Value,
    parse_pattern,
)
from mlcbuild.compiler.passes.rewriting import callee, finish, rewrite_dataflow
from mlcbuild.errors import StageError

_DTYPES = {
    "fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64", "fp8e4nv": "float8_e4m3fn",
    "fp8e5": "float8_e5m2", "i1": "bool", **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}  # fmt: skip
_INTEGERS = {"i32": "int32", "i64": "int64"}
_OPAQUE = 8  # TVM's pattern of kernels that nothing is fused with


def dispatch_triton_kernels(module: tvm.IRModule, kernels: Sequence[Mapping[str, Any]]) -> tvm.IRModule:
    """The module with these kernels, which the rule `triton_kernel` declares, in the order in which a library names
    them. Raises StageError for a kernel that stands for nothing in the module."""
    builder = relax.BlockBuilder(module)
    for declared in kernels:
        dispatch = _Dispatch(builder, declared)
        for variable, function in builder.get().functions_items():
            if isinstance(function, relax.Function):
                changed = dispatch.rewritten(function)
                if changed is not None:
                    builder.update_func(variable, changed)
        if not dispatch.placed:
            raise StageError(
                f"the kernel {declared['function']} stands for nothing in this model: {declared['pattern']}",
                advice=dispatch.nearly or ("`mlcbuild show TARGET Phase0 --ir` shows the operators",),
            )
        builder = relax.BlockBuilder(finish(builder.get()))
    return builder.get()


class _Dispatch:
    """One kernel, and in how many places it was put."""

    def __init__(self, builder: relax.BlockBuilder, declared: Mapping[str, Any]) -> None:
        self.placed = 0
        self.nearly: tuple[str, ...] = ()  # why operators of the pattern are no place for the kernel
        self._builder = builder
        self._declared = declared
        self._pattern = parse_pattern(declared["pattern"])
        self._bound: dict[relax.Var, relax.Expr] = {}

    def rewritten(self, function: relax.Function) -> relax.Function | None:
        """The function with the kernel; None where it has no place there."""
        before = self.placed
        self._bound = {
            binding.var: binding.value
            for block in function.body.blocks
            for binding in block.bindings
            if isinstance(binding, relax.VarBinding)
        }
        made = rewrite_dataflow(function, self._rewrite)
        return made if self.placed > before else None

    def _rewrite(self, binding: relax.VarBinding) -> Iterator[relax.VarBinding]:
        tensors: dict[str, relax.Expr] = {}
        call = None
        if self._matches(self._pattern, binding.value, tensors):
            call = self._call(tensors, binding.var)
        yield binding if call is None else relax.VarBinding(binding.var, call)

    def _matches(self, pattern: Pattern, value: relax.Expr, tensors: dict[str, relax.Expr]) -> bool:
        if isinstance(pattern, TensorPattern):
            return bool(tensors.setdefault(pattern.name, value).same_as(value))
        while isinstance(value, relax.Var) and value in self._bound:
            value = self._bound[value]
        if isinstance(pattern, PartPattern):
            return (
                isinstance(value, relax.TupleGetItem)
                and int(value.index) == pattern.place
                and self._matches(pattern.of, value.tuple_value, tensors)
            )
        arguments = _arguments(pattern, value)
        return (
            arguments is not None
            and len(arguments) == len(pattern.arguments)
            and all(
                self._matches(part, argument, tensors)
                for part, argument in zip(pattern.arguments, arguments, strict=True)
            )
        )

    def _call(self, tensors: Mapping[str, relax.Expr], result: relax.Var) -> relax.Expr | None:
        """The call of the kernel in the place of `result`; None where types or sizes are others than the declared."""
        types = {name: each.ty for name, each in tensors.items()} | {self._declared["output"]: result.ty}
        signature = dict(self._declared["signature"])
        for name, type_ in types.items():
            wanted = _DTYPES.get(signature[name].removeprefix("*"), "")
            if not isinstance(type_, relax.TensorType) or type_.shape is None or str(type_.dtype) != wanted:
                self.nearly = (f"{name} is {_shown(type_)}, and {signature[name]} is declared",)
                return None
        kernel = self._kernel(types)
        if kernel is None:
            return None
        self.placed += 1
        return relax.call_tir(self._builder.add_func(kernel, self._name), list(tensors.values()), out_ty=result.ty)

    @property
    def _name(self) -> str:
        return str(self._declared["function"].partition(":")[2])

    def _kernel(self, types: Mapping[str, Any]) -> tirx.PrimFunc | None:
        """The kernel of the host; None where a number is not divisible as declared."""
        declared = self._declared
        sizes = _Buffers()
        buffers = {name: sizes.buffer(name, type_) for name, type_ in types.items()}
        shapes = {name: list(buffer.shape) for name, buffer in buffers.items()}
        constants = dict(declared["constants"])
        given = Sizes(shapes=shapes, constants=constants, ceildiv=tirx.ceildiv)
        arguments: list[Any] = []
        for name, kind in declared["signature"]:
            if name in buffers:
                arguments.append(address(buffers[name]))
                continue
            try:
                value = _number(given.value(declared["arguments"][name]))
            except ValueError as error:
                raise StageError(f"the argument {name} of {declared['function']}: {error}") from error
            if name in declared["aligned"] and not (isinstance(value, tirx.IntImm) and int(value) % 16 == 0):
                self.nearly = (f"{name} is {value}, and declared as divisible by 16",)
                return None
            arguments.append(tirx.Cast(_INTEGERS[kind], value))
        try:
            grid = [_number(given.value(text)) for text in declared["grid"]]
        except ValueError as error:
            raise StageError(f"the grid of {declared['function']}: {error}") from error
        started = TritonKernel(
            function=declared["function"],
            signature=tuple((name, kind) for name, kind in declared["signature"]),
            aligned=tuple(declared["aligned"]),
            constants=tuple((name, value) for name, value in declared["constants"]),
            warps=declared["warps"],
            stages=declared["stages"],
        )
        across, down = (tirx.Cast("int32", each) for each in (*grid, _number(1))[:2])
        body = launch(started, arguments, (across, down))
        # TVM looks into the root block of every kernel.
        function = replace_body(tirx.PrimFunc(list(buffers.values()), tirx.Evaluate(0)), body)
        attributes = {"op_pattern": _OPAQUE, "tirx.is_scheduled": True, "s_tir": True}
        return naming(function.with_attrs(attributes), [started])


class _Buffers:
    """Buffers for tensors of types; a size that only run time knows is one variable, wherever it is."""

    def __init__(self) -> None:
        self._sizes: list[tuple[Any, tirx.Var]] = []

    def buffer(self, name: str, type_: relax.TensorType) -> Any:
        shape = [self._size(size) for size in type_.shape]
        return tirx.decl_buffer(shape, str(type_.dtype), name=name)

    def _size(self, size: Any) -> Any:
        if isinstance(size, tirx.IntImm):
            return size
        for known, variable in self._sizes:
            if tvm_ffi.structural_equal(known, size, map_free_vars=False):
                return variable
        self._sizes.append((size, tirx.Var(f"n{len(self._sizes)}", "int64")))
        return self._sizes[-1][1]


def _arguments(pattern: OperatorPattern, value: relax.Expr) -> list[relax.Expr] | None:
    """The arguments of a call that the pattern's operator is; None for all else."""
    if pattern.of_kernel:
        kernel = callee(value)
        named = kernel is not None and re.fullmatch(rf"{re.escape(pattern.name)}\d*", str(kernel.name_hint))
        return list(value.args[1].fields) if named and not pattern.attributes else None
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
        return None
    if value.op.name != f"relax.{pattern.name}" or _attributes(value.attrs) != dict(pattern.attributes):
        return None
    return list(value.args)


def _attributes(attributes: Any) -> dict[str, Value]:
    """All attributes of a call."""
    if attributes is None:
        return {}
    info = tvm_ffi.core._lookup_or_register_type_info_from_type_key(attributes.__tvm_ffi_type_info__.type_key)
    return {field.name: _value(getattr(attributes, field.name)) for field in info.fields}


def _number(value: Any) -> Any:
    """A number of an expression in TIR; TVM computes with numbers that are known as it goes."""
    return tirx.const(value, "int64") if isinstance(value, int) else value


def _value(value: Any) -> Value:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tirx.IntImm):
        return int(value)
    if isinstance(value, tirx.FloatImm):
        return float(value)
    try:
        return tuple(map(_value, value))
    except TypeError:
        return str(value)


def _shown(type_: Any) -> str:
    return str(type_.dtype) if isinstance(type_, relax.TensorType) else "no tensor"
