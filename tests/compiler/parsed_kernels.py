"""TVM's kernels of KV caches, parsed once in a process: half of what compiling a small model takes is the parser's time
for them, and they depend on few numbers, which most models of tests have in common."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

from tvm import tirx
from tvm.relax.frontend.nn.llm import kv_cache
from tvm.target import Target

_MAKERS = (
    *("_kv_cache_transpose_append", "_kv_cache_transpose_append_mla", "_kv_cache_debug_get_kv"),
    *("llama_rope_with_position_map", "tree_attn", "tree_attn_with_paged_kv_cache"),
    *("_attention_prefill", "_attention_prefill_ragged", "_attention_decode", "_merge_state_inplace"),
    *("_compact_kv_copy", "_copy_single_page"),
    *("tree_attn_cpu", "tree_attn_with_paged_kv_cache_cpu", "_attention_prefill_cpu", "_attention_prefill_ragged_cpu"),
    *("_attention_decode_cpu", "_merge_state_inplace_cpu", "_compact_kv_copy_cpu", "_copy_single_page_cpu"),
)
_Maker = Callable[..., tirx.PrimFunc]
_PARSED: dict[str, tirx.PrimFunc] = {}


@contextlib.contextmanager
def parsed_once() -> Iterator[None]:
    """Until the end of the block, functions of TVM that make a kernel return what they made of equal arguments."""
    makers: dict[str, _Maker] = {name: getattr(kv_cache, name) for name in _MAKERS}
    try:
        for name, maker in makers.items():
            setattr(kv_cache, name, _remembering(name, maker))
        yield
    finally:
        for name, maker in makers.items():
            setattr(kv_cache, name, maker)


def _remembering(name: str, maker: _Maker) -> _Maker:
    def make(*arguments: Any, **named: Any) -> tirx.PrimFunc:
        try:
            key = json.dumps([name, arguments, named], default=_target, sort_keys=True)
        except TypeError:  # The argument is a variable of the module.
            return maker(*arguments, **named)
        if key not in _PARSED:
            _PARSED[key] = maker(*arguments, **named)
        return _PARSED[key]

    return make


def _target(argument: Any) -> str:
    """Raises TypeError for anything but a target."""
    if not isinstance(argument, Target):
        raise TypeError
    return str(argument)
