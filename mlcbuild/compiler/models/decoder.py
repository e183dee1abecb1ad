"""The shape and constants of a decoder-only transformer as values: what its parts are built from.

A family makes a `DecoderConfig` of its `config.json`. The parts themselves are beside this module (`attention`,
`feed_forward`, `norm`, `decoder_layer`, `causal_lm`), and so are their parameters (`decoder_parameters`). A family with
more than that writes a dataclass of its own, which holds these.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, replace

from mlcbuild.compiler.models.config import MAX_CONTEXT, ConfigReader
from mlcbuild.compiler.models.description import Layers
from mlcbuild.compiler.models.rotary import RotaryEmbedding, read_rotary
from mlcbuild.compiler.models.sizes import ContextLimits

LAYERS = "model.layers"  # the name of the list of layers, Hugging Face's and MLC-LLM's


class AttentionKind(enum.Enum):
    """How queries meet keys, by the word of TVM's KV cache."""

    GROUPED_QUERY = "mha"  # each key-value head serves an equal number of query heads: one, some or all


class Activation(enum.Enum):
    """The function inside a feed-forward, by Hugging Face's word."""

    SILU = "silu"
    GELU = "gelu"  # x Φ(x)
    GELU_TANH = "gelu_pytorch_tanh"  # its approximation by a hyperbolic tangent
    RELU = "relu"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionConfig:
    """Softmax(`softmax_scale` · Q Kᵀ) V, with queries and keys turned by `rotary`."""

    query_heads: int
    key_value_heads: int
    head_dim: int
    softmax_scale: float
    rotary: RotaryEmbedding
    kind: AttentionKind = AttentionKind.GROUPED_QUERY
    qkv_bias: bool = False
    output_bias: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForwardConfig:
    """down(activation(gate(x)) · up(x)), by way of `intermediate_size` elements."""

    intermediate_size: int
    activation: Activation = Activation.SILU
    bias: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKind:
    """What the layers of a kind have of their own; None where it is what `DecoderConfig` says."""

    name: str
    attention: AttentionConfig | None = None
    feed_forward: FeedForwardConfig | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """Embedding, `num_layers` layers of attention and feed-forward, a last norm, and a head.

    All layers are equal, unless `kinds_of_layers` names one of `kinds` for each. Raises ValueError for another name,
    and for another number of them.
    """

    hidden_size: int
    vocab_size: int
    num_layers: int
    norm_epsilon: float
    attention: AttentionConfig
    feed_forward: FeedForwardConfig
    tie_word_embeddings: bool
    kinds: tuple[LayerKind, ...] = ()
    kinds_of_layers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        unknown = set(self.kinds_of_layers) - {kind.name for kind in self.kinds}
        if unknown:
            raise ValueError(f"not a kind of layer: {min(unknown)!r}")
        _ = self.layers

    @property
    def layers(self) -> Layers:
        """The layers by name and kind."""
        return Layers(name=LAYERS, count=self.num_layers, kinds=self.kinds_of_layers)

    def of_layer(self, number: int) -> DecoderConfig:
        """What the layer of a number is built from: a decoder whose layers are all of its kind."""
        name = self.layers.kind(number)
        kind = next((kind for kind in self.kinds if kind.name == name), None)
        if kind is None:
            return self
        return replace(
            self,
            attention=kind.attention or self.attention,
            feed_forward=kind.feed_forward or self.feed_forward,
            kinds=(),
            kinds_of_layers=(),
        )

    @property
    def model_config(self) -> dict[str, object]:
        """The object `model_config` of an `mlc-chat-config.json`, in MLC-LLM's order; None where a size goes."""
        document: dict[str, object] = {
            "hidden_size": self.hidden_size,
            "intermediate_size": self.feed_forward.intermediate_size,
            "num_attention_heads": self.attention.query_heads,
            "num_hidden_layers": self.num_layers,
            "rms_norm_eps": self.norm_epsilon,
            "vocab_size": self.vocab_size,
            "tie_word_embeddings": self.tie_word_embeddings,
            "position_embedding_base": self.attention.rotary.base,
            "rope_scaling": self.attention.rotary.model_config,
            "context_window_size": None,
            "prefill_chunk_size": None,
            "num_key_value_heads": self.attention.key_value_heads,
            "head_dim": self.attention.head_dim,
            "tensor_parallel_shards": None,
            "pipeline_parallel_stages": 1,
            "max_batch_size": None,
        }
        return document


def read_decoder(
    reader: ConfigReader, *, qkv_bias: bool = False, output_bias: bool = False, mlp_bias: bool = False
) -> DecoderConfig:
    """A decoder by the field names that most configurations of Hugging Face share, with 1/√d before the softmax.

    The fields are hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, num_key_value_heads,
    head_dim, vocab_size, max_position_embeddings, rms_norm_eps, hidden_act, tie_word_embeddings, and those of
    `read_rotary`. Which parts have biases, the family says. Raises StageError naming a field that is missing, out of
    range or not supported.
    """
    _check_layers(reader)
    hidden = reader.integer("hidden_size", low=1, high=1 << 18)
    heads = reader.integer("num_attention_heads", low=1, high=1 << 12)
    if not reader.has("head_dim") and hidden % heads:
        raise reader.fail(
            "num_attention_heads",
            f'is {heads}; without a "head_dim" it has to divide "hidden_size", which is {hidden}',
        )
    rotated = reader.number("partial_rotary_factor", low=0.0, high=1.0, default=1.0)
    if rotated != 1.0:
        raise reader.fail("partial_rotary_factor", f"is {rotated:g}; whole heads are rotated here: 1")
    positions = read_limits(reader).max_position_embeddings
    feed_forward = FeedForwardConfig(
        intermediate_size=reader.integer("intermediate_size", low=1, high=1 << 20),
        activation=_activation(reader),
        bias=mlp_bias,
    )
    layers = reader.integer("num_hidden_layers", low=1, high=1 << 12)
    key_value_heads = _key_value_heads(reader, heads)
    head_dim = reader.integer("head_dim", low=2, high=1 << 12, default=hidden // heads)
    if head_dim % 2:
        raise reader.fail("head_dim", f"is {head_dim}; rotary embeddings need an even number")
    return DecoderConfig(
        hidden_size=hidden,
        vocab_size=reader.integer("vocab_size", low=1, high=1 << 22),
        num_layers=layers,
        norm_epsilon=reader.number("rms_norm_eps", low=1e-20, high=0.1, default=1e-6),
        attention=AttentionConfig(
            query_heads=heads,
            key_value_heads=key_value_heads,
            head_dim=head_dim,
            softmax_scale=1.0 / math.sqrt(head_dim),
            rotary=read_rotary(reader, max_position_embeddings=positions),
            qkv_bias=qkv_bias,
            output_bias=output_bias,
        ),
        feed_forward=feed_forward,
        tie_word_embeddings=reader.boolean("tie_word_embeddings", default=False),
    )


def _check_layers(reader: ConfigReader) -> None:
    """Raise StageError for what transformers does for any model if its configuration says so."""
    if not reader.boolean("is_causal", default=True):
        raise reader.fail("is_causal", "is false; tokens see only those before them here")
    if reader.document.get("per_layer_config") not in (None, {}):
        raise reader.fail("per_layer_config", "is set; here all layers are alike")


def _key_value_heads(reader: ConfigReader, heads: int) -> int:
    """Transformers' default may depend on how the number is missing: all heads if it is null."""
    name = "num_key_value_heads"
    found = reader.integer(name, low=1, high=1 << 12, default=heads)
    if heads % found:
        how = "is" if name in reader.document else "is missing; its default is"
        raise reader.fail(name, f'{how} {found}; it has to divide "num_attention_heads", which is {heads}')
    return found


def read_limits(reader: ConfigReader) -> ContextLimits:
    """The limits of a model whose attention sees all of the text."""
    return ContextLimits(max_position_embeddings=reader.integer("max_position_embeddings", low=1, high=MAX_CONTEXT))


def _activation(reader: ConfigReader) -> Activation:
    names = {kind.value: kind for kind in Activation} | {"swish": Activation.SILU}
    name = reader.string("hidden_act", default="silu")
    if name not in names:
        raise reader.fail("hidden_act", f'is "{name}"; known: {", ".join(sorted(names))}')
    return names[name]
