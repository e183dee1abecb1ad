"""A layer of a decoder: attention and feed-forward, each with its norms, added to the hidden state."""

from __future__ import annotations

from tvm import relax
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn.llm.kv_cache import PagedKVCache

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, Wiring
from mlcbuild.compiler.models.architecture.mixture import MixtureConfig
from mlcbuild.compiler.models.layers.attention import Attention, OfPositions
from mlcbuild.compiler.models.layers.experts import Mixture
from mlcbuild.compiler.models.layers.feed_forward import FeedForward
from mlcbuild.compiler.models.layers.latent_attention import LatentAttention
from mlcbuild.compiler.models.layers.norm import make_norm
from mlcbuild.compiler.models.layers.placing import place
from mlcbuild.compiler.quantization.reader import Reader


class DecoderLayer(nn.Module):  # type: ignore[misc]
    """The layer called `name`.

    A layer is computed from its own first norm to the next layer's: whoever adds to the hidden state can norm the sum.
    A layer whose `first_norm` is None, and so are those of all others, begins with the hidden state as it is.
    """

    def __init__(self, config: DecoderConfig, reader: Reader, *, name: str) -> None:
        self._wiring, self._residual_scale = config.wiring, config.residual_scale
        names, hidden = config.names, config.hidden_size
        make = Attention if config.attention.latent is None else LatentAttention
        self._attention: Attention | LatentAttention = make(config.attention, names, hidden, reader, layer=name)
        self._feed_forward: FeedForward | Mixture
        if isinstance(config.feed_forward, MixtureConfig):
            self._feed_forward = Mixture(config.feed_forward, hidden, reader, layer=name)
        else:
            self._feed_forward = FeedForward(config.feed_forward, names, hidden, reader, layer=name)
        made: dict[str, nn.Module] = {}

        def norm(own_name: str, *wirings: Wiring) -> nn.Module | None:
            if config.wiring not in wirings:
                return None
            made[own_name] = make_norm(config.norm, hidden, dtype=reader.scheme.model_dtype)
            return made[own_name]

        before, after, around = Wiring.NORM_BEFORE, Wiring.NORM_AFTER, Wiring.NORM_AROUND
        parallel, one_norm = Wiring.PARALLEL, Wiring.PARALLEL_ONE_NORM
        first = norm(names.attention_norm, before, around, parallel, one_norm)
        after_attention = norm(names.after_attention_norm, after, around)
        second = norm(names.feed_forward_norm, before, around, parallel)
        after_feed_forward = norm(names.after_feed_forward_norm, after, around)
        self._norms = (first, after_attention, second, after_feed_forward)
        for own_name, module in (self._attention.modules | self._feed_forward.modules | made).items():
            place(self, own_name, module)

    @property
    def first_norm(self) -> nn.Module | None:
        return self._norms[0]

    @property
    def of_positions(self) -> tuple[OfPositions, ...]:
        """What `forward` is given the values of, at the positions of tokens."""
        return self._attention.of_positions

    def forward(
        self,
        hidden: nn.Tensor,
        normed: nn.Tensor,
        cache: PagedKVCache,
        layer: relax.Expr,
        next_norm: nn.Module | None,
        *of_positions: nn.Tensor,
    ) -> tuple[nn.Tensor, nn.Tensor]:
        """The hidden state behind this layer, and its norm; `normed` is the hidden state's before. The values
        `of_positions` are as the property says."""
        _, after_attention, second, after_feed_forward = self._norms
        attended = self._scaled(_applied(after_attention, self._attention(normed, cache, layer, *of_positions)))
        if self._wiring is Wiring.PARALLEL_ONE_NORM:
            hidden = self._scaled(self._feed_forward(normed)) + attended + hidden
        elif self._wiring is Wiring.PARALLEL:
            hidden = self._scaled(self._feed_forward(_applied(second, hidden))) + attended + hidden
        else:
            hidden = attended + hidden
            added = self._feed_forward(_applied(second, hidden))
            hidden = self._scaled(_applied(after_feed_forward, added)) + hidden
        return hidden, _applied(next_norm, hidden)

    def _scaled(self, x: nn.Tensor) -> nn.Tensor:
        return x if self._residual_scale == 1.0 else x * self._residual_scale

    def parts(self, next_norm: nn.Module | None, *, single: bool) -> list[nn.Module]:
        """What has the parameters that `forward` reads; `single` is a pass of one token of each sequence."""
        _, after_attention, second, after_feed_forward = self._norms
        found = [*self._attention.parts(single=single), after_attention, second, *self._feed_forward.parts]
        return [part for part in (*found, after_feed_forward, next_norm) if part is not None]


def _applied(norm: nn.Module | None, x: nn.Tensor) -> nn.Tensor:
    return x if norm is None else norm(x)
