"""The paged KV cache as a model sees it: its geometry, and a call that stands for its creation.

Which kernels a cache uses depends on the target, and Export does not know one: it leaves the call
`mlcbuild.create_paged_kv_cache`, which Phase0 replaces.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import tvm
from tvm import relax, tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn.llm.kv_cache import PagedKVCache

from mlcbuild.compiler.models.attention_rules import NO_RULES, AttentionRules
from mlcbuild.compiler.models.decoder import AttentionConfig

PLACEHOLDER = "mlcbuild.create_paged_kv_cache"


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

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no spaces."""
        document = asdict(self) | {"rope_scaling": dict(self.rope_scaling)}
        return json.dumps(document, sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> KVCacheGeometry:
        """The inverse of `to_json`."""
        document = json.loads(text)
        document["rope_scaling"] = tuple(sorted(document["rope_scaling"].items()))
        document["rules"] = AttentionRules(**document["rules"])
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


def attend(
    cache: PagedKVCache,
    qkv: nn.Tensor,
    *,
    layer: relax.Expr,
    config: AttentionConfig,
    change: Callable[[nn.Tensor], nn.Tensor] | None = None,
) -> nn.Tensor:
    """Append keys and values of a layer, by its number, to the cache and attend over it. The cache rotates queries and
    keys, if it is one that does.

    `qkv` (batch, n, (query heads + 2 key-value heads) * head_dim) → (batch, n, query heads * head_dim). What the model
    does to queries and keys before is a `change` of (batch * n, all heads, head_dim) to the same. Each side is reshaped
    once, which costs nothing: two reshapes in a row would become a copy.
    """
    batch, length, _ = qkv.shape
    heads, width = config.query_heads, config.head_dim
    total = heads + 2 * config.key_value_heads
    given = nn.op.reshape(qkv, (batch * length, total, width))
    if change is not None:
        given = change(given)
    attended = relax.BlockBuilder.current().emit(
        relax.call_dps_packed(
            "vm.builtin.attention_kv_cache_attention_with_fused_qkv",
            [cache._expr, layer, relax.prim_value(config.softmax_scale), given._expr],
            out_ty=relax.TensorType((batch * length, heads, width), qkv.dtype),
        )
    )
    return nn.op.reshape(nn.Tensor(_expr=attended), (batch, length, heads * width))


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
