"""The Qwen2 family on TVM's `relax.frontend.nn`: the shared decoder, with MLC-LLM's name for one projection."""

from __future__ import annotations

import functools

from tvm import relax
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn.llm.kv_cache import PagedKVCache

from mlcbuild.compiler.families.qwen2.family import FAMILY
from mlcbuild.compiler.models.causal_lm import CausalLM
from mlcbuild.compiler.models.compilable import ModelBuilder
from mlcbuild.compiler.models.decoder import AttentionConfig, DecoderConfig
from mlcbuild.compiler.models.decoder_layer import DecoderLayer
from mlcbuild.compiler.models.kv_cache import attend
from mlcbuild.compiler.quantization.layers import Linear
from mlcbuild.compiler.quantization.reader import Reader


class Qwen2Attention(nn.Module):  # type: ignore[misc]
    """The shared `Attention`, with the fused projection called `c_attn`."""

    def __init__(self, config: AttentionConfig, hidden_size: int, reader: Reader, *, name: str) -> None:
        self.config = config
        query = config.query_heads * config.head_dim
        key_value = config.key_value_heads * config.head_dim
        self.c_attn = Linear(
            hidden_size, query + 2 * key_value, reader=reader, bias=config.qkv_bias, name=f"{name}.c_attn"
        )
        self.o_proj = Linear(query, hidden_size, reader=reader, bias=config.output_bias, name=f"{name}.o_proj")

    def forward(self, hidden: nn.Tensor, cache: PagedKVCache, layer: relax.Expr) -> nn.Tensor:
        return self.o_proj(attend(cache, self.c_attn(hidden), layer=layer, config=self.config))


class Qwen2Layer(DecoderLayer):
    """The shared layer with this attention."""

    def __init__(self, config: DecoderConfig, reader: Reader, *, name: str) -> None:
        super().__init__(config, reader, name=name)
        self.self_attn = Qwen2Attention(config.attention, config.hidden_size, reader, name=f"{name}.self_attn")


MODEL = ModelBuilder(family=FAMILY, build=functools.partial(CausalLM, make_layer=Qwen2Layer))
