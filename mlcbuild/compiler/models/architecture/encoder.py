"""The shape and constants of an encoder as values: a transformer each of whose tokens sees all of the text.

A family makes an `EncoderConfig` of its `config.json`. The parts are those of decoders, but for attention
(`masked_attention`); `encoder_model` puts them together, and `encoder_parameters` lists their parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.compiler.models.architecture.activation import read_activation
from mlcbuild.compiler.models.architecture.decoder import FeedForwardConfig, NormConfig, NormKind
from mlcbuild.compiler.models.config import MAX_CONTEXT, ConfigReader
from mlcbuild.compiler.models.description import Layers
from mlcbuild.compiler.models.sizes import ContextLimits

LAYERS = "encoder.layer"
QKV = "attention.self.qkv"  # queries, keys and values of a layer in one


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderConfig:
    """Embeddings of tokens, positions and types, their sum normed; `num_layers` layers, which add attention and
    feed-forward to the hidden state and norm each sum. All linear parts have biases.

    `positions` are the rows of the table of positions, and `token_types` those of types, of which texts have the first.
    With a `padding_token`, positions count the tokens that are another one, and the first has the number behind that
    token's; without, the first has 0.
    """

    hidden_size: int
    vocab_size: int
    num_layers: int
    heads: int
    norm: NormConfig
    feed_forward: FeedForwardConfig
    positions: int
    token_types: int
    padding_token: int | None = None

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.heads

    @property
    def layers(self) -> Layers:
        return Layers(name=LAYERS, count=self.num_layers)

    @property
    def limits(self) -> ContextLimits:
        """A text has as many tokens as positions have vectors."""
        first = 0 if self.padding_token is None else self.padding_token + 1
        return ContextLimits(max_position_embeddings=self.positions - first, is_encoder=True)


def read_encoder(reader: ConfigReader) -> EncoderConfig:
    """An encoder by the names that configurations of Hugging Face have since BERT.

    Raises StageError naming a field that is missing, out of range or not supported.
    """
    reader.refuse(
        position_embedding_type="absolute", is_decoder=False, add_cross_attention=False, chunk_size_feed_forward=0
    )
    if reader.document.get("per_layer_config") not in (None, {}):
        raise reader.fail("per_layer_config", "is set; here all layers are alike")
    if reader.boolean("is_causal", default=False):
        raise reader.fail("is_causal", "is true; each token of an encoder sees all of the text here")
    hidden = reader.integer("hidden_size", low=1, high=1 << 18)
    heads = reader.integer("num_attention_heads", low=1, high=1 << 12)
    if hidden % heads or hidden // heads % 2:
        raise reader.fail("num_attention_heads", f'is {heads}; "hidden_size", {hidden}, has to be an even multiple')
    return EncoderConfig(
        hidden_size=hidden,
        vocab_size=reader.integer("vocab_size", low=1, high=1 << 22),
        num_layers=reader.integer("num_hidden_layers", low=1, high=1 << 12),
        heads=heads,
        norm=NormConfig(epsilon=reader.number("layer_norm_eps", low=1e-20, high=0.1), kind=NormKind.LAYER, bias=True),
        feed_forward=FeedForwardConfig(
            intermediate_size=reader.integer("intermediate_size", low=1, high=1 << 20),
            activation=read_activation(reader),
            bias=True,
            gated=False,
        ),
        positions=reader.integer("max_position_embeddings", low=1, high=MAX_CONTEXT),
        token_types=reader.integer("type_vocab_size", low=1, high=1 << 16),
    )
