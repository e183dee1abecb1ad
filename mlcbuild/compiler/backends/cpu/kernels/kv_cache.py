"""The kernels of TVM's paged key-value cache that are exchanged for faster ones on CPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import tvm
from tvm import tirx

from mlcbuild.compiler.backends.cpu.kernels import attention, attention_shapes, rope
from mlcbuild.compiler.backends.cpu.kernels.registers import register_lanes
from mlcbuild.compiler.models.architecture.attention_rules import NO_RULES, AttentionRules
from mlcbuild.compiler.models.architecture.window import SlidingWindow
from mlcbuild.errors import InternalError, StageError


def with_vector_kernels(
    module: tvm.IRModule,
    *,
    target: tvm.target.Target,
    theta: float,
    scale: float,
    rope_scaling: Mapping[str, Any],
    layer_window: int,
    window: SlidingWindow | None = None,
    rules: AttentionRules = NO_RULES,
) -> tvm.IRModule:
    """`module` with kernels that TVM's `TIRPagedKVCache` put into it for a CPU exchanged for our own.

    The arguments are those of the cache: the base and the scale of rotary embeddings, their frequency rule, and
    `layer_sliding_window_size`; `window` is what attention sees, and `rules` what else it computes. Kernels of a
    frequency rule or type that there is none for stay as they are; raises StageError where these would have to know a
    window or rules, and InternalError where TVM's kernels have other names.
    """
    rule: Any = {"rope_scaling": rope_scaling, "rules": rules}
    tiled: Any = {**rule, "row_lanes": register_lanes(target)}
    attentions: dict[str, Callable[[tirx.PrimFunc], tirx.PrimFunc]] = {
        "batch_decode_paged_kv_cpu": partial(attention.paged_decode, **rule),
        "batch_decode_paged_kv_cpu_sliding_window": partial(
            attention.paged_decode, sliding_window=True, window=window, **rule
        ),
        "batch_prefill_paged_kv_cpu": partial(attention_shapes.paged_prefill, **tiled),
        "batch_prefill_paged_kv_cpu_sliding_window": partial(
            attention.paged_prefill, layer_window=layer_window, window=window, **tiled
        ),
        "batch_prefill_ragged_kv": partial(attention_shapes.ragged_prefill, **tiled)
        if window is None
        else partial(attention.ragged_prefill, window=window, **tiled),
    }
    functions = {str(variable.name_hint): (variable, kernel) for variable, kernel in module.functions_items()}
    missing = sorted(name for name in [*attentions, "fused_rope"] if name not in functions)
    if missing:
        raise InternalError(f"TVM's key-value cache has no kernels of the names {', '.join(missing)}")
    made = dict(functions.values())
    for name, make in attentions.items():
        variable, kernel = functions[name]
        if attention.fits(kernel, rope_scaling):
            made[variable] = make(kernel)
        elif window is not None:
            raise StageError(
                f"there are no CPU kernels for a sliding window of {window.size} tokens with this dtype, head size and "
                "RoPE scaling",
                advice=("to build without the window, override sliding_window_size = -1",),
            )
        elif rules != NO_RULES:
            raise StageError("there are no CPU kernels for this model's attention with this dtype and head size")
    variable, kernel = functions["fused_rope"]
    if rope.fits(kernel, rope_scaling):
        made[variable] = rope.rotate(kernel, theta=theta, scale=scale, rope_scaling=rope_scaling)
    return tvm.IRModule(made, attrs=module.attrs)
