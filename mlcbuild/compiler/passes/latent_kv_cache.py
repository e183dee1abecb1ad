"""The creation of a cache of latent vectors (`caches.latent_cache`), with a backend's kernels.

TVM's `TIRPagedKVCache` has none for CPUs, so the call of the runtime's constructor is made here, for every backend.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax, tirx
from tvm.relax.frontend.nn.llm.kv_cache import (
    AttnKind,
    RopeMode,
    _kv_cache_debug_get_kv_mla,
    _kv_cache_transpose_append_mla,
)

from mlcbuild.compiler.models.caches.kv_cache import KVCacheGeometry

_NOT_NEEDED = 6  # kernels of other attention: paged ones with and without a window, and those for token trees


@dataclass(frozen=True, kw_only=True)
class LatentKernels:
    """A backend's kernels, with the parameters that TVM's runtime calls them with.

    `ragged` is attention of a pass's tokens to each other, by keys and values of their own; its logarithms have the
    marks of `architecture.latent`. `paged` is attention to what the cache keeps, over one level of shared prefixes, and
    `merge` adds such results. `copy_page` copies the first tokens of a page to another one.
    """

    ragged: tirx.PrimFunc
    paged: tirx.PrimFunc
    merge: tirx.PrimFunc
    copy_page: tirx.PrimFunc


MakeLatentKernels = Callable[[KVCacheGeometry], LatentKernels]


def latent_cache(
    builder: relax.BlockBuilder, geometry: KVCacheGeometry, sizes: Sequence[tirx.Var], kernels: LatentKernels
) -> relax.Expr:
    """The call that creates a cache; the kernels become functions of the builder's module.

    The cache drops no tokens and takes no token trees: TVM's runtime refuses both. So it never calls for the rotation
    of queries and keys, nor for moving tokens inside the cache, and gets the kernel for pages where it wants these.
    """
    latent = geometry.latent
    assert latent is not None

    def added(kernel: tirx.PrimFunc, name: str) -> tvm.ir.GlobalVar:
        return builder.add_func(kernel.without_attr("global_symbol").with_attr("global_symbol", name), name)

    def tir(kernel: tirx.PrimFunc, name: str) -> relax.Expr:
        return relax.Tuple([tvm.ir.StringImm("tirx"), added(kernel, name)])

    kept, layers = geometry.head_dim, geometry.num_hidden_layers
    copy_page = added(kernels.copy_page, "kv_cache_copy_single_page_mla")
    return relax.call_pure_packed(
        "vm.builtin.paged_attention_kv_cache_create",
        relax.ShapeExpr([*sizes[:4], 0]),
        relax.ShapeExpr([0, layers]),
        *(relax.prim_value(count) for count in (geometry.num_attention_heads, geometry.num_key_value_heads)),
        *(relax.prim_value(size) for size in (kept, latent.rank)),
        relax.ShapeExpr([int(AttnKind.MLA)] * layers),
        relax.prim_value(False),
        relax.prim_value(RopeMode.NONE),
        relax.prim_value(geometry.rope_scale),
        relax.prim_value(geometry.rope_theta),
        relax.prim_value(0),  # factors of long RoPE
        relax.op.zeros((), geometry.dtype),
        relax.prim_value(0),  # appending keys and values
        added(_kv_cache_transpose_append_mla(kept, geometry.dtype), "kv_cache_transpose_append_mla"),
        tir(kernels.ragged, "tir_attention_prefill_ragged_mla"),
        *(relax.Tuple([]) for _ in range(_NOT_NEEDED)),
        tir(kernels.paged, "tir_attention_prefill_mla"),
        relax.Tuple([added(kernels.merge, "tir_attention_merge_state_mla")]),
        copy_page,
        copy_page,
        added(_kv_cache_debug_get_kv_mla(layers, kept, geometry.dtype), "kv_cache_debug_get_kv_mla"),
        copy_page,
        ty_args=relax.AnyType(),
    )
