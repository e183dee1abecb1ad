"""The cache of latent vectors as a model sees it: what is kept, and attention over it.

Keys and values of a pass's own tokens are made of their latent vectors; what was in the cache before is met as it is.
Both results are merged by the logarithms of their softmax's denominators. The kernels tell by these logarithms, too,
when there is nothing to merge: TVM's cache leaves the second result unwritten where no text was there before, and of
single tokens it has the pass's own already.
"""

from __future__ import annotations

from tvm import relax, te, tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn.llm.kv_cache import PagedKVCache

from mlcbuild.compiler.models.architecture.decoder import AttentionConfig
from mlcbuild.compiler.models.architecture.latent import ALONE, IN_CACHE
from mlcbuild.compiler.models.caches.kv_cache import KVCacheGeometry, LatentGeometry


def latent_geometry(attention: AttentionConfig, *, layers: int, dtype: str) -> KVCacheGeometry:
    """What the KV cache of a decoder with latent attention looks like. The model rotates, and the cache does not."""
    latent = attention.latent
    assert latent is not None
    return KVCacheGeometry(
        attention_kind=attention.kind.value,
        num_hidden_layers=layers,
        num_attention_heads=attention.query_heads,
        num_key_value_heads=1,
        head_dim=latent.kept_dim,
        rotates=False,
        rope_theta=attention.rotary.base,
        rope_scale=1.0,
        rope_scaling=(),
        dtype=dtype,
        latent=LatentGeometry(rank=latent.rank, key_dim=attention.head_dim, value_dim=latent.value_dim),
    )


def append(cache: PagedKVCache, layer: relax.Expr, kept: nn.Tensor) -> PagedKVCache:
    """The cache, with what a layer keeps of the pass's tokens (tokens, rank + rotated)."""
    appended = relax.call_pure_packed(
        "vm.builtin.attention_kv_cache_append_mla_kv", cache._expr, layer, kept._expr, ty_args=relax.AnyType()
    )
    return PagedKVCache(_expr=relax.BlockBuilder.current().emit(appended), _name="paged_kv_cache")


def attend_to_own(
    cache: PagedKVCache, layer: relax.Expr, scale: float, queries: nn.Tensor, keys: nn.Tensor, values: nn.Tensor
) -> tuple[nn.Tensor, nn.Tensor]:
    """What the pass's tokens make of those of them that are not behind: (tokens, heads, value_dim), and the logarithms
    (tokens, heads) float32. Keys are (tokens, heads, key_dim), as queries are."""
    return _attend("self", cache, layer, scale, [queries, keys, values], width=values.shape[2])


def attend_to_cache(
    cache: PagedKVCache, layer: relax.Expr, scale: float, queries: nn.Tensor, *, rank: int
) -> tuple[nn.Tensor, nn.Tensor]:
    """What queries (tokens, heads, rank + rotated) make of the cache: sums of latent vectors (tokens, heads, rank), and
    the logarithms. In a pass of one token of each sequence, the cache has these tokens."""
    return _attend("cross", cache, layer, scale, [queries], width=rank)


def _attend(
    which: str, cache: PagedKVCache, layer: relax.Expr, scale: float, given: list[nn.Tensor], *, width: int
) -> tuple[nn.Tensor, nn.Tensor]:
    builder = relax.BlockBuilder.current()
    tokens, heads, _ = given[0].shape
    results = builder.emit(
        relax.call_dps_packed(
            f"vm.builtin.attention_kv_cache_{which}_attention",
            [cache._expr, layer, relax.prim_value(scale), *(tensor._expr for tensor in given)],
            out_ty=[
                relax.TensorType((tokens, heads, width), given[0].dtype),
                relax.TensorType((tokens, heads), "float32"),
            ],
        )
    )
    result, logarithms = (builder.emit(relax.TupleGetItem(results, place)) for place in range(2))
    return nn.Tensor(_expr=result), nn.Tensor(_expr=logarithms)


def merged(own: nn.Tensor, own_log: nn.Tensor, cached: nn.Tensor, cached_log: nn.Tensor) -> nn.Tensor:
    """Both results (tokens, heads, n), each times its part of the softmax's denominator, by their base-2 logarithms."""

    def compute(a: te.Tensor, log_a: te.Tensor, b: te.Tensor, log_b: te.Tensor) -> te.Tensor:
        def element(token: tirx.Var, head: tirx.Var, place: tirx.Var) -> tirx.Expr:
            mark, other = log_a[token, head], log_b[token, head]
            most = tirx.max(mark, other)
            weight, other_weight = tirx.exp2(mark - most), tirx.exp2(other - most)
            one, two = (x[token, head, place].astype("float32") for x in (a, b))
            both = (one * weight + two * other_weight) / (weight + other_weight)
            # What a mark rules out may be memory that nothing was written to, and no number.
            without_own = tirx.Select(mark < tirx.const(IN_CACHE / 2, "float32"), two, both)
            return tirx.Select(mark > tirx.const(ALONE / 2, "float32"), one, without_own).astype(a.dtype)

        return te.compute(a.shape, element, name="merged")

    return nn.op.tensor_expr_op(compute, "merge_attention", [own, own_log, cached, cached_log])
