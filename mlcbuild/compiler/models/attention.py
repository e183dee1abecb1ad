"""Attention over the paged KV cache, which also applies the rotary embedding."""

from __future__ import annotations

from tvm import relax
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn.llm.kv_cache import PagedKVCache

from mlcbuild.compiler.models.decoder import AttentionConfig
from mlcbuild.compiler.models.kv_cache import attend
from mlcbuild.compiler.quantization.layers import Linear
from mlcbuild.compiler.quantization.reader import Reader


class Attention(nn.Module):  # type: ignore[misc]
    """Attention of a layer called `name`: queries, keys and values are one product."""

    def __init__(self, config: AttentionConfig, hidden_size: int, reader: Reader, *, name: str) -> None:
        self.config = config
        heads = config.query_heads + 2 * config.key_value_heads
        self.qkv_proj = Linear(
            hidden_size, heads * config.head_dim, reader=reader, bias=config.qkv_bias, name=f"{name}.qkv_proj"
        )
        self.o_proj = Linear(
            config.query_heads * config.head_dim,
            hidden_size,
            reader=reader,
            bias=config.output_bias,
            name=f"{name}.o_proj",
        )

    def forward(self, hidden: nn.Tensor, cache: PagedKVCache, layer: relax.Expr) -> nn.Tensor:
        """(batch, n, hidden) → the same, at the layer of a number."""
        return self.o_proj(attend(cache, self.qkv_proj(hidden), layer=layer, config=self.config))
