"""Kernels in Triton take the place of products whose rows a scheme rounds to 8 bits.

Such a product is `matmul(round_activations(x), permute_dims(dequantize(weights)))`, the same of rows with the matrices
of their experts (`expert_matmul`), or `int8_product` of rows that are bytes already. What a scheme's kernels look like,
its reader tells; a product whose kernels differ stays as it is. The rows' numbers and scales become tensors of their
own, once for all products that read these rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import tvm
import tvm_ffi
from tvm import relax, te, tirx

from mlcbuild.compiler.backends.cuda.kernels import triton_expert_products, triton_products
from mlcbuild.compiler.backends.cuda.kernels.triton_products import Numbers
from mlcbuild.compiler.kernel_attributes import RESTORES_WEIGHTS
from mlcbuild.compiler.models.layers.experts import expert_product
from mlcbuild.compiler.passes.rewriting import callee, finish, is_operator, rewrite_dataflow
from mlcbuild.compiler.quantization.float8.reader import restoring, rounded_activations
from mlcbuild.compiler.quantization.float8.scheme import Float8Scheme
from mlcbuild.compiler.quantization.int8.reader import integer_product
from mlcbuild.compiler.quantization.schemes import (
    e4m3_e4m3_f16,
    e5m2_e5m2_f16,
    fp8_e4m3fn_bf16_block_scale,
    fp8_e4m3fn_bf16_block_scale_static_activation,
    fp8_e4m3fn_bf16_channel_scale,
)

SCHEMES: tuple[Float8Scheme, ...] = tuple(
    module.SCHEME
    for module in (
        fp8_e4m3fn_bf16_block_scale,
        fp8_e4m3fn_bf16_block_scale_static_activation,
        fp8_e4m3fn_bf16_channel_scale,
        e4m3_e4m3_f16,
        e5m2_e5m2_f16,
    )
)
BYTES = Numbers(floats=None, scale_rows=1)


def dispatch_triton_products(module: tvm.IRModule, target: tvm.target.Target) -> tvm.IRModule:
    """The module with such kernels wherever they fit."""
    builder = relax.BlockBuilder(module)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            dispatch = _Dispatch(module, builder, function, target)
            rewritten = rewrite_dataflow(function, dispatch.rewrite)
            if dispatch.placed:
                builder.update_func(variable, rewritten)
    return finish(builder.get())


class _Dispatch:
    """The state of one function: what its variables are bound to, and rows that have numbers by now."""

    def __init__(
        self, module: tvm.IRModule, builder: relax.BlockBuilder, function: relax.Function, target: tvm.target.Target
    ) -> None:
        self.placed = 0
        self._module = module
        self._builder = builder
        self._target = target
        self._bound = {
            binding.var: binding.value
            for block in function.body.blocks
            for binding in block.bindings
            if isinstance(binding, relax.VarBinding)
        }
        self._numbers: dict[relax.Var, list[tuple[str, relax.Var]]] = {}

    def rewrite(self, binding: relax.VarBinding) -> Iterator[relax.VarBinding]:
        made = self._of_floats(binding) or self._of_bytes(binding) or self._of_experts(binding)
        if made is None:
            yield binding
            return
        self.placed += 1
        yield from made

    def _of_floats(self, binding: relax.VarBinding) -> list[relax.VarBinding] | None:
        if not is_operator(binding.value, "relax.matmul"):
            return None
        rows, transposed = binding.value.args
        rounding, turned = self._bound.get(rows), self._bound.get(transposed)
        if turned is None or not is_operator(turned, "relax.permute_dims") or turned.attrs.axes is not None:
            return None
        restored = self._bound.get(turned.args[0])
        scheme = self._scheme(rounding, restored)
        if scheme is None or restored is None or rounding is None:
            return None
        operands = self._operands(rows, rounding, restored, scheme)
        if operands is None:
            return None
        before, given = operands
        return [*before, self._product(binding.var, given, numbers_of(scheme))]

    def _of_experts(self, binding: relax.VarBinding) -> list[relax.VarBinding] | None:
        called = callee(binding.value)
        if called is None or not str(called.name_hint).startswith("expert_matmul"):
            return None
        rows, experts, matrices, *sources = binding.value.args[1].fields
        rounding, restored = self._bound.get(rows), self._bound.get(matrices)
        scheme = self._scheme(rounding, restored)
        if scheme is None or restored is None or rounding is None:
            return None
        found = self._module[called]
        given = _placeholders(found)
        operands = self._operands(rows, rounding, restored, scheme)
        if operands is None or not _is(found, _kernel([*given, expert_product(*given)])):
            return None
        before, of_product = operands
        of_product += [("experts", experts), *(("sources", each) for each in sources)]
        types = [(name, value.ty) for name, value in of_product]
        kernel = triton_expert_products.product(types, binding.var.ty, numbers_of(scheme), self._target)
        called = self._builder.add_func(kernel, "grouped_matmul")
        call = relax.call_tir(called, [value for _, value in of_product], out_ty=binding.var.ty)
        return [*before, relax.VarBinding(binding.var, call)]

    def _operands(
        self, rows: relax.Var, rounding: relax.Call, restored: relax.Call, scheme: Float8Scheme
    ) -> tuple[list[relax.VarBinding], list[tuple[str, relax.Expr]]] | None:
        """What a product multiplies, by name, and the bindings that it needs before it; None for rows that no kernel
        is for."""
        numbers = numbers_of(scheme)
        if not triton_products.fits(numbers, int(rows.ty.shape[-1]), self._target):
            return None
        before: list[relax.VarBinding] = []
        if rows not in self._numbers:
            before = self._quantized(rows, list(rounding.args[1].fields), numbers)
        weights = zip(("weights", "weight_scales"), restored.args[1].fields, strict=False)
        return before, [*self._numbers[rows], *weights]

    def _of_bytes(self, binding: relax.VarBinding) -> list[relax.VarBinding] | None:
        called = callee(binding.value)
        if called is None or not str(called.name_hint).startswith("int8_product"):
            return None
        arguments = list(binding.value.args[1].fields)
        found = self._module[called]
        given = _placeholders(found)
        expected = _kernel([*given, integer_product(*given, dtype=str(binding.var.ty.dtype))])
        if not _is(found, expected) or not triton_products.fits(BYTES, int(arguments[0].ty.shape[-1]), self._target):
            return None
        names = ("numbers", "scales", "weights", "weight_scales")
        return [self._product(binding.var, list(zip(names, arguments, strict=True)), BYTES)]

    def _scheme(self, rounding: relax.Expr | None, restored: relax.Expr | None) -> Float8Scheme | None:
        """The scheme whose reader made both."""
        rounds, restores = (None if value is None else callee(value) for value in (rounding, restored))
        if rounds is None or restores is None:
            return None
        rounding_kernel, restoring_kernel = self._module[rounds], self._module[restores]
        if RESTORES_WEIGHTS not in (restoring_kernel.attrs or {}):
            return None
        shape = [int(size) for size in restoring_kernel.params[-1].shape]
        weights = str(restoring_kernel.params[0].dtype)
        for scheme in SCHEMES:
            if scheme.format.dtype == weights and _is(restoring_kernel, restoring(scheme, *shape)):
                x, *static = _placeholders(rounding_kernel)
                expected = _kernel([x, *static, rounded_activations(x, *static, scheme=scheme)])
                if (scheme.stores_static_scales or not static) and _is(rounding_kernel, expected):
                    return scheme
        return None

    def _quantized(self, rows: relax.Var, given: Sequence[relax.Expr], numbers: Numbers) -> list[relax.VarBinding]:
        """The bindings of what rows are rounded to."""
        kernel, types = triton_products.quantize(given[0].ty, numbers, self._target, static=len(given) > 1)
        call = relax.call_tir(
            self._builder.add_func(kernel, "quantize_rows"), list(given), out_ty=types if len(types) > 1 else types[0]
        )
        whole = relax.DataflowVar(f"{rows.name}_numbers", relax.TupleType(types) if len(types) > 1 else types[0])
        made = [relax.VarBinding(whole, call)]
        if len(types) == 1:
            self._numbers[rows] = [("numbers", whole)]
            return made
        names = ("numbers", "scales")
        parts = [relax.DataflowVar(f"{rows.name}_{name}", type_) for name, type_ in zip(names, types, strict=True)]
        made += [relax.VarBinding(part, relax.TupleGetItem(whole, place)) for place, part in enumerate(parts)]
        self._numbers[rows] = list(zip(names, parts, strict=True))
        return made

    def _product(
        self, result: relax.Var, operands: Sequence[tuple[str, relax.Expr]], numbers: Numbers
    ) -> relax.VarBinding:
        types = [(name, value.ty) for name, value in operands]
        kernel = triton_products.product(types, result.ty, numbers, self._target)
        called = self._builder.add_func(kernel, "NT_scaled_matmul")
        return relax.VarBinding(result, relax.call_tir(called, [value for _, value in operands], out_ty=result.ty))


def numbers_of(scheme: Float8Scheme) -> Numbers:
    """What the kernels of a scheme multiply."""
    if scheme.scales is None or scheme.activations is None:
        return Numbers(floats=scheme.format, scaled=False)
    return Numbers(floats=scheme.format, group=scheme.activations.group, scale_rows=scheme.scales.rows)


def _placeholders(kernel: tirx.PrimFunc) -> list[te.Tensor]:
    """Tensors of a kernel's parameters but the last, with variables of their own for sizes that are not known."""
    own: dict[tirx.Var, tirx.Var] = {}

    def size(given: tirx.Expr) -> tirx.Expr:
        return given if isinstance(given, tirx.IntImm) else own.setdefault(given, tirx.Var("size", "int64"))

    *given, _ = kernel.params
    return [te.placeholder([size(each) for each in buffer.shape], str(buffer.dtype)) for buffer in given]


def _kernel(tensors: Sequence[te.Tensor]) -> tirx.PrimFunc:
    """The kernel of a computation as Relax makes it."""
    return te.create_prim_func(list(tensors), index_dtype_override="int64")


def _is(kernel: tirx.PrimFunc, expected: tirx.PrimFunc) -> bool:
    """Whether two kernels compute the same, in the same words."""
    plain = [tirx.PrimFunc(each.params, each.body, each.ret_type) for each in (kernel, expected)]
    return bool(tvm_ffi.structural_equal(*plain, map_free_vars=True))
