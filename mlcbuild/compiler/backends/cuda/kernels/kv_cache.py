"""The kernels of TVM's paged key-value cache that are exchanged or changed on GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import tvm
from tvm import tirx

from mlcbuild.compiler.backends.cuda.kernels import attention, triton_attention
from mlcbuild.compiler.backends.cuda.kernels import attention_rules as ruled
from mlcbuild.compiler.backends.cuda.kernels import window as windowed
from mlcbuild.compiler.models.architecture.attention_rules import NO_RULES, AttentionRules
from mlcbuild.compiler.models.architecture.window import SlidingWindow
from mlcbuild.errors import InternalError, StageError

_DECODE, _DECODE_SLIDING = "batch_decode_paged_kv", "batch_decode_paged_kv_sliding_window"
_PREFILL, _PREFILL_SLIDING = "batch_prefill_paged_kv", "batch_prefill_paged_kv_sliding_window"
_RAGGED = "batch_prefill_ragged_kv"
_Make = Callable[[tirx.PrimFunc], tirx.PrimFunc]


def with_own_kernels(
    module: tvm.IRModule,
    *,
    rope_scaling: Mapping[str, Any],
    target: tvm.target.Target,
    window: SlidingWindow | None = None,
    rules: AttentionRules = NO_RULES,
    with_triton: bool = False,
) -> tvm.IRModule:
    """`module` with kernels that TVM's `TIRPagedKVCache` put into it for an NVIDIA GPU exchanged for our own.

    Kernels of a frequency rule, type or architecture that there is none for stay as they are, except for what a
    `window` hides or `rules` say. Raises StageError for a window with a frequency rule that the kernels for it do not
    know, and InternalError if TVM's kernels have other names. `with_triton`, passes of several tokens of a sequence
    have kernels that are written in Triton, where there is no window.
    """
    functions = {str(variable.name_hint): (variable, kernel) for variable, kernel in module.functions_items()}
    ours: dict[str, _Make] = {
        _DECODE: partial(attention.paged_decode, rope_scaling=rope_scaling, rules=rules),
        _DECODE_SLIDING: partial(attention.paged_decode, rope_scaling=rope_scaling, sliding_window=True, window=window),
    }
    changed: dict[str, _Make] = {}
    if window is not None:
        changed = {
            _DECODE_SLIDING: partial(windowed.paged_decode, window=window),
            _PREFILL_SLIDING: partial(windowed.paged_prefill, window=window, rope_scaling=rope_scaling),
            _RAGGED: partial(windowed.ragged_prefill, window=window, rope_scaling=rope_scaling),
        }
    elif with_triton and triton_attention.fits(functions[_RAGGED][1], target):
        changed = {
            _PREFILL: partial(triton_attention.paged_prefill, target=target, rules=rules),
            _RAGGED: partial(triton_attention.ragged_prefill, target=target, rules=rules),
        }
        if rules != NO_RULES:
            changed[_DECODE] = partial(ruled.paged_decode, rules=rules)
    elif rules != NO_RULES:
        changed = {
            _DECODE: partial(ruled.paged_decode, rules=rules),
            _PREFILL: partial(ruled.paged_prefill, rules=rules),
            _RAGGED: partial(ruled.ragged_prefill, rules=rules),
        }
    missing = sorted(name for name in ours | changed if name not in functions)
    if missing:
        raise InternalError(f"TVM's key-value cache has no kernels of the names {', '.join(missing)}")
    made = dict(functions.values())
    for name in ours | changed:
        variable, kernel = functions[name]
        if name in ours and attention.fits(kernel, rope_scaling, target):
            made[variable] = ours[name](kernel)
        elif name in changed:
            if window is not None and not windowed.fits(kernel, rope_scaling, window):
                raise StageError(
                    f"there are no GPU kernels for an attention sink of {window.sink} tokens with this RoPE scaling",
                    advice=("to build without the sink, override attention_sink_size = 0",),
                )
            made[variable] = changed[name](kernel)
    return tvm.IRModule(made, attrs=module.attrs)
