"""DispatchKVCacheCreation: put the target's own paged KV cache in place of the call that stands for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.relax.frontend.nn.llm.kv_cache import RopeMode, TIRPagedKVCache

from mlcbuild.compiler import ir
from mlcbuild.compiler.models.architecture.attention_rules import NO_RULES, AttentionRules
from mlcbuild.compiler.models.architecture.window import SlidingWindow
from mlcbuild.compiler.models.caches.kv_cache import PLACEHOLDER, KVCacheGeometry
from mlcbuild.compiler.passes.latent_kv_cache import LatentKernels, MakeLatentKernels, latent_cache
from mlcbuild.compiler.script_parsing import quick_script_parsing
from mlcbuild.errors import InternalError, StageError

LAYER_WINDOW = 1024  # tokens that a layer with a sliding window sees: TVM's default, for models that have such layers
NAME = "create_tir_paged_kv_cache"  # what engines look for: a cache whose kernels are part of the library
KernelExchange = Callable[[tvm.IRModule, KVCacheGeometry], tvm.IRModule]


@dataclass(frozen=True, kw_only=True)
class _Placeholder:
    """Where the call is, and its arguments."""

    variable: tvm.ir.GlobalVar
    function: relax.Function
    sizes: list[tvm.tirx.Var]
    geometry: KVCacheGeometry


def find_geometry(module: tvm.IRModule) -> KVCacheGeometry | None:
    """The geometry in the module's placeholder call, or None where there is no such call."""
    found = _find_placeholder(module)
    return None if found is None else found.geometry


def dispatch_kv_cache_creation(
    module: tvm.IRModule,
    target: tvm.target.Target,
    *,
    window: SlidingWindow | None = None,
    exchange: KernelExchange | None = None,
    latent: MakeLatentKernels | None = None,
) -> tvm.IRModule:
    """Replace the function that holds the placeholder by `create_tir_paged_kv_cache`, whose cache has kernels of TVM's
    `TIRPagedKVCache`, and add these kernels to the module.

    `exchange` is given a module of that function and its kernels, and returns it with kernels of a backend's own. Only
    these know a `window`, and what else a model's attention computes. Raises InternalError for a window without them,
    and StageError for the rest. A cache of latent vectors has the kernels that `latent` makes.
    """
    found = _find_placeholder(module)
    if found is None:
        return module
    if found.geometry.latent is not None:
        if latent is None:
            raise StageError(f"there are no kernels for multi-head latent attention on {target.kind.name}")
        return _put(module, found, _latent_creation(found, latent(found.geometry)))
    if window is not None and exchange is None:
        raise InternalError(
            f"the kernels for {target.kind.name} know no window, and one of {window.size} tokens is wanted"
        )
    if found.geometry.rules != NO_RULES and window is not None:
        raise StageError("a sliding window of all layers goes with plain attention alone")
    if found.geometry.rules != NO_RULES and exchange is None:
        raise StageError(
            f"the kernels for {target.kind.name} compute plain attention alone: not layers that see less than others,"
            " capped scores or sinks"
        )
    created = _creation(found, target=target, slides=window is not None)
    if exchange is not None:
        created = exchange(created, found.geometry)
    return _put(module, found, created)


def _put(module: tvm.IRModule, found: _Placeholder, created: tvm.IRModule) -> tvm.IRModule:
    functions = {
        variable: function for variable, function in module.functions_items() if not variable.same_as(found.variable)
    }
    for variable, function in created.functions_items():
        attributes = {**found.function.attrs, "global_symbol": NAME} if variable.name_hint == NAME else {}
        functions[variable] = function.with_attrs(attributes)
    return tvm.IRModule(functions, attrs=module.attrs)


def _find_placeholder(module: tvm.IRModule) -> _Placeholder | None:
    for variable, function in module.functions_items():
        if not isinstance(function, relax.Function):
            continue
        for block in function.body.blocks:
            for binding in block.bindings:
                call = binding.value
                if not isinstance(call, relax.Call) or not call.args:
                    continue
                callee = call.args[0]  # of relax.call_pure_packed
                if isinstance(callee, relax.ExternFunc) and callee.global_symbol == PLACEHOLDER:
                    _, sizes, geometry = call.args
                    return _Placeholder(
                        variable=variable,
                        function=function,
                        sizes=list(sizes.values),
                        geometry=KVCacheGeometry.from_json(str(geometry.value)),
                    )
    return None


def _slides(asked: tvm.tirx.Var, *, slides: bool, rules: AttentionRules) -> tvm.tirx.Expr:
    """Whether the cache may drop tokens. An engine that asks for no window of the whole model gets a cache that keeps
    all; attention leaves out the same. Where only some layers have a window, the others need what it would drop."""
    if rules != NO_RULES:
        return tirx.IntImm("int64", 0)
    return tirx.IntImm("int64", 1) if slides else asked


@mutator
class _WithoutNeedless(PyExprMutator):  # type: ignore[misc]
    """Takes kernels from the creation of a cache: those for token trees, which it then refuses, because TVM's know no
    rules; and those for caches that drop tokens, which this one does not."""

    def visit_tuple_(self, fields: relax.Tuple) -> relax.Tuple:
        names = [field.name_hint for field in fields.fields if isinstance(field, tvm.ir.GlobalVar)]
        needless = any(word in name for name in names for word in ("tree_attn", "sliding_window"))
        return relax.Tuple([]) if needless else fields


def _latent_creation(placeholder: _Placeholder, kernels: LatentKernels) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    with builder.function(NAME, list(placeholder.function.params)), quick_script_parsing():
        with builder.dataflow():
            value = builder.emit_output(latent_cache(builder, placeholder.geometry, placeholder.sizes, kernels))
        builder.emit_func_output(value)
    return ir.without_spans(builder.finalize())


def _creation(placeholder: _Placeholder, *, target: tvm.target.Target, slides: bool) -> tvm.IRModule:
    geometry = placeholder.geometry
    sizes = placeholder.sizes
    builder = relax.BlockBuilder()
    with builder.function(NAME, list(placeholder.function.params)), quick_script_parsing():
        cache = TIRPagedKVCache(
            attn_kind=geometry.attention_kind,
            max_batch_size=sizes[0],
            max_total_seq_len=sizes[1],
            prefill_chunk_size=sizes[2],
            page_size=sizes[3],
            support_sliding_window=_slides(sizes[4], slides=slides, rules=geometry.rules),
            layer_partition=relax.ShapeExpr([0, geometry.num_hidden_layers]),
            num_hidden_layers=geometry.num_hidden_layers,
            num_attention_heads=geometry.num_attention_heads,
            num_key_value_heads=geometry.num_key_value_heads,
            qk_head_dim=geometry.head_dim,
            v_head_dim=geometry.head_dim,
            mla_original_qk_head_dim=0,
            mla_original_v_head_dim=0,
            rope_mode=RopeMode.NORMAL if geometry.rotates else RopeMode.NONE,
            rope_scale=geometry.rope_scale,
            rope_theta=geometry.rope_theta,
            rope_scaling=dict(geometry.rope_scaling),
            # A tensor here would select the calling convention of long RoPE.
            rope_ext_factors=relax.prim_value(0),
            rotary_dim=geometry.head_dim,
            enable_disaggregation=False,
            dtype=geometry.dtype,
            target=target,
            layer_sliding_window_size=LAYER_WINDOW,
        )
        with builder.dataflow():
            value = builder.emit_output(cache._expr)
        builder.emit_func_output(value)
    created = ir.without_spans(builder.finalize())
    if geometry.rules == NO_RULES:
        return created
    functions = {
        variable: _WithoutNeedless().visit_expr(function) if variable.name_hint == NAME else function
        for variable, function in created.functions_items()
    }
    return tvm.IRModule(functions, attrs=created.attrs)
