"""A layer of a decoder: attention and feed-forward, each behind a norm and added to its input."""

from __future__ import annotations

from tvm import relax
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn.llm.kv_cache import PagedKVCache

from mlcbuild.compiler.models.attention import Attention
from mlcbuild.compiler.models.decoder import DecoderConfig
from mlcbuild.compiler.models.feed_forward import GatedFeedForward
from mlcbuild.compiler.models.norm import rms_norm
from mlcbuild.compiler.quantization.reader import Reader


class DecoderLayer(nn.Module):  # type: ignore[misc]
    """The layer called `name`.

    A layer is computed from its own first norm to the next layer's: whoever adds to the hidden state can norm the sum.
    """

    def __init__(self, config: DecoderConfig, reader: Reader, *, name: str) -> None:
        self.self_attn = Attention(config.attention, config.hidden_size, reader, name=f"{name}.self_attn")
        self.mlp = GatedFeedForward(config.feed_forward, config.hidden_size, reader, name=f"{name}.mlp")
        self.input_layernorm = rms_norm(config, dtype=reader.scheme.model_dtype)
        self.post_attention_layernorm = rms_norm(config, dtype=reader.scheme.model_dtype)

    def forward(
        self, hidden: nn.Tensor, normed: nn.Tensor, cache: PagedKVCache, layer: relax.Expr, next_norm: nn.Module
    ) -> tuple[nn.Tensor, nn.Tensor]:
        """The hidden state behind this layer, and its norm; `normed` is the hidden state's before."""
        hidden = self.self_attn(normed, cache, layer) + hidden
        hidden = self.mlp(self.post_attention_layernorm(hidden)) + hidden
        return hidden, next_norm(hidden)

    def parts(self, next_norm: nn.Module) -> list[nn.Module]:
        """What has the parameters that `forward` reads."""
        return [self.self_attn, self.post_attention_layernorm, self.mlp, next_norm]
