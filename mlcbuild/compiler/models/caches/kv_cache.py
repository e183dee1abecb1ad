"""The paged KV cache as a model sees it: its geometry, and a call that stands for its creation.

Which kernels a cache uses depends on the target, and Export does not know one: it leaves the call
`mlcbuild.create_paged_kv_cache`, which Phase0 replaces.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import tvm
from tvm import relax, te, tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn.llm.kv_cache import PagedKVCache

from mlcbuild.compiler.models.architecture.attention_rules import NO_RULES, AttentionRules
from mlcbuild.compiler.models.architecture.decoder import AttentionConfig

PLACEHOLDER = "mlcbuild.create_paged_kv_cache"


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentGeometry:
    """What a cache of latent vectors has besides: elements of the latent vector, the first of the `head_dim` that are
    kept of a token, and of a head of the keys and values that are made of it."""

    rank: int
    key_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCacheGeometry:
    """Kind of attention, shapes, dtype and rotary embedding of a cache.

    `attention_kind` is TVM's word. `num_attention_heads` counts heads that hold scores of `rules` as well. Where it
    `rotates`, `rope_scale` multiplies positions, and `rope_scaling` holds the arguments of TVM's frequency rule, sorted
    by name, empty for the plain one.
    """

    attention_kind: str
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rotates: bool
    rope_theta: float
    rope_scale: float
    rope_scaling: tuple[tuple[str, object], ...]
    dtype: str
    rules: AttentionRules = NO_RULES
    latent: LatentGeometry | None = None

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no spaces."""
        document = asdict(self) | {"rope_scaling": dict(self.rope_scaling)}
        if self.latent is None:
            del document["latent"]
        if not self.rules.alibi:
            del document["rules"]["alibi"]
        return json.dumps(document, sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> KVCacheGeometry:
        """The inverse of `to_json`."""
        document = json.loads(text)
        document["rope_scaling"] = tuple(sorted(document["rope_scaling"].items()))
        document["rules"] = AttentionRules(**document["rules"])
        if "latent" in document:
            document["latent"] = LatentGeometry(**document["latent"])
        return KVCacheGeometry(**document)

    @property
    def metadata(self) -> Mapping[str, int]:
        """The object `kv_cache` of a library's metadata."""
        return {
            "num_hidden_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "head_dim": self.head_dim,
        }


def given_heads(config: AttentionConfig) -> int:
    """How many heads of queries the cache is given: behind those of a key-value head comes one of their sinks."""
    return config.query_heads + (config.key_value_heads if config.sinks else 0)


def attend(
    cache: PagedKVCache,
    qkv: nn.Tensor,
    *,
    layer: relax.Expr,
    config: AttentionConfig,
    change: Callable[[nn.Tensor], nn.Tensor] | None = None,
    sinks: nn.Tensor | None = None,
) -> nn.Tensor:
    """Append keys and values of a layer, by its number, to the cache and attend over it. The cache rotates queries and
    keys, if it is one that does.

    `qkv` (batch, n, (query heads + 2 key-value heads) * head_dim) → (batch, n, query heads * head_dim). What the model
    does to queries and keys before is a `change` of (batch * n, all heads, head_dim) to the same. Each side is reshaped
    once, which costs nothing: two reshapes in a row would become a copy. `sinks` (query heads,) are scores of no key,
    for a layer that has them.
    """
    batch, length, _ = qkv.shape
    heads, width = config.query_heads, config.head_dim
    total = heads + 2 * config.key_value_heads
    given = nn.op.reshape(qkv, (batch * length, total, width))
    if change is not None:
        given = change(given)
    if sinks is not None:
        given = _with_sinks(given, sinks, config)
    # A layer that sees less than others tells the kernels so by the sign (`attention_rules`).
    scale = -config.softmax_scale if config.window else config.softmax_scale
    attended = relax.BlockBuilder.current().emit(
        relax.call_dps_packed(
            "vm.builtin.attention_kv_cache_attention_with_fused_qkv",
            [cache._expr, layer, relax.prim_value(scale), given._expr],
            out_ty=relax.TensorType((batch * length, given_heads(config), width), qkv.dtype),
        )
    )
    result = nn.Tensor(_expr=attended)
    if sinks is not None:
        result = _without_sinks(result, config)
    return nn.op.reshape(result, (batch, length, heads * width))


def _with_sinks(qkv: nn.Tensor, sinks: nn.Tensor, config: AttentionConfig) -> nn.Tensor:
    """(tokens, all heads, head_dim) with a head behind the queries of each key-value head whose first elements are the
    sinks of these. Raises ValueError for more queries than a head has elements."""
    group = config.query_heads // config.key_value_heads
    if group > config.head_dim:
        raise ValueError(f"the sinks of {group} heads do not fit into {config.head_dim} elements")
    queries = given_heads(config)

    def compute(x: te.Tensor, by_head: te.Tensor) -> te.Tensor:
        def element(token: tirx.Var, head: tirx.Var, place: tirx.Var) -> tirx.Expr:
            key_head, number = head // (group + 1), head % (group + 1)
            own = x[token, tirx.if_then_else(head < queries, head - key_head, head - config.key_value_heads), place]
            sink = tirx.if_then_else(place < group, by_head[key_head * group + place], tirx.const(0, by_head.dtype))
            return tirx.if_then_else(tirx.all(head < queries, number == group), sink, own)

        return te.compute((x.shape[0], queries + 2 * config.key_value_heads, x.shape[2]), element, name="with_sinks")

    return nn.op.tensor_expr_op(compute, "with_sinks", [qkv, sinks])


def _without_sinks(attended: nn.Tensor, config: AttentionConfig) -> nn.Tensor:
    """(tokens, heads of queries and sinks, head_dim) without the heads of sinks."""
    group = config.query_heads // config.key_value_heads

    def compute(x: te.Tensor) -> te.Tensor:
        return te.compute(
            (x.shape[0], config.query_heads, x.shape[2]),
            lambda token, head, place: x[token, head + head // group, place],
            name="without_sinks",
        )

    return nn.op.tensor_expr_op(compute, "without_sinks", [attended])


def create_placeholder(geometry: KVCacheGeometry, sizes: Sequence[tirx.Var]) -> PagedKVCache:
    """The call that stands for a cache's creation. `sizes`: most sequences, most tokens in all, most tokens
    in one prefill, tokens a page, and 1 for a sliding window."""
    return PagedKVCache(
        _expr=relax.call_pure_packed(
            PLACEHOLDER,
            relax.ShapeExpr(list(sizes)),
            tvm.ir.StringImm(geometry.to_json()),
            ty_args=relax.AnyType(),
        ),
        _name="paged_kv_cache",
    )
