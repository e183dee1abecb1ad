"""The shape and constants of a decoder-only transformer as values: what its parts are built from.

A family makes a `DecoderConfig` of its `config.json`. The parts themselves are beside this module (`attention`,
`feed_forward`, `norm`, `decoder_layer`, `causal_lm`), and so are their parameters (`decoder_parameters`). A family with
more than that writes a dataclass of its own, which holds these.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

from mlcbuild.compiler.models.architecture.activation import Activation, read_activation
from mlcbuild.compiler.models.architecture.attention_rules import AttentionRules
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.architecture.latent import LatentConfig
from mlcbuild.compiler.models.architecture.mixture import MixtureConfig
from mlcbuild.compiler.models.architecture.recurrence import Recurrence
from mlcbuild.compiler.models.architecture.rotary import RotaryEmbedding, RotaryForm, read_rotary
from mlcbuild.compiler.models.config import MAX_CONTEXT, ConfigReader
from mlcbuild.compiler.models.description import Layers
from mlcbuild.compiler.models.sizes import ContextLimits


class AttentionKind(enum.Enum):
    """How queries meet keys, by the word of TVM's KV cache."""

    GROUPED_QUERY = "mha"  # each key-value head serves an equal number of query heads: one, some or all
    LATENT = "mla"  # all heads make their keys and values of one vector a token, which the cache keeps


class NormKind(enum.Enum):
    """What is done to a vector x; ε is added below the root."""

    RMS = "rms"  # x / √mean(x²)
    LAYER = "layer"  # (x - mean(x)) / √variance(x)


@dataclass(frozen=True, slots=True, kw_only=True)
class NormConfig:
    """A norm of vectors, with a weight for each element, and a bias, where it has them. A norm that multiplies by
    1 + w has 1 + w as its weight here, as in MLC-LLM."""

    epsilon: float
    kind: NormKind = NormKind.RMS
    weight: bool = True
    bias: bool = False

    def __post_init__(self) -> None:
        if self.kind is NormKind.RMS and self.bias:
            raise ValueError("an RMS norm has no bias here")


class NormScope(enum.Enum):
    """Which elements of queries, or of keys, are one vector to a norm, and which have a weight of their own."""

    HEAD = "head"  # a head's; all heads have the same weights
    EACH_HEAD = "each head"  # a head's; each has weights of its own
    ALL_HEADS = "all heads"  # those of all heads together


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryKeyNorm:
    """Norms of queries and of keys, before they are rotated."""

    norm: NormConfig
    scope: NormScope = NormScope.HEAD


@dataclass(frozen=True, slots=True, kw_only=True)
class TemperatureTuning:
    """Queries of the token at position p, 0 for the first, are multiplied by
    1 + `strength` · log(1 + ⌊(p + `offset`) / `interval`⌋), so that a softmax over many keys stays as sharp (arXiv
    2501.19399)."""

    strength: float
    interval: int
    offset: int = 0


class Wiring(enum.Enum):
    """How a layer adds attention A and feed-forward F to the hidden state x; N, N' … are its norms."""

    NORM_BEFORE = "norm before"  # x += A(N(x)); x += F(N'(x))
    NORM_AFTER = "norm after"  # x += N(A(x)); x += N'(F(x))
    NORM_AROUND = "norm around"  # x += N'(A(N(x))); x += N'"(F(N"(x)))
    PARALLEL = "parallel"  # x += A(N(x)) + F(N'(x))
    PARALLEL_ONE_NORM = "parallel, one norm"  # x += A(N(x)) + F(N(x))


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionConfig:
    """Softmax(`softmax_scale` · Q Kᵀ) V, with queries and keys turned by `rotary`.

    `window` is how many tokens a token sees, itself among them; 0 for all that are not behind it. `chunked`,
    `soft_cap`, `sinks` and `alibi` are as in `attention_rules.AttentionRules`; a model has them in all layers, or in
    none. With `latent`, heads of queries and keys have `head_dim` elements, and `qkv_bias` is that of the products that
    make latent vectors.
    """

    query_heads: int
    key_value_heads: int
    head_dim: int
    softmax_scale: float
    rotary: RotaryEmbedding
    latent: LatentConfig | None = None
    qkv_bias: bool = False
    output_bias: bool = False
    query_key_norm: QueryKeyNorm | None = None
    qkv_clip: float = 0.0  # queries, keys (normed) and values are kept between its negative and this; 0 for no bounds
    temperature: TemperatureTuning | None = None
    window: int = 0
    chunked: bool = False
    soft_cap: float = 0.0
    sinks: bool = False
    alibi: bool = False
    output_gate: bool = False  # what is attended is multiplied by the sigmoid of gates, made as the queries are

    @property
    def kind(self) -> AttentionKind:
        return AttentionKind.GROUPED_QUERY if self.latent is None else AttentionKind.LATENT

    def __post_init__(self) -> None:
        if self.sinks and self.rotary.in_cache:
            raise ValueError("a cache that rotates queries would rotate the sinks, which it is given with them")


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForwardConfig:
    """down(activation(gate(x)) · up(x)), by way of `intermediate_size` elements; down(activation(up(x))) if it is not
    `gated`. Where gate and up are one product, up's elements are first if it has `up_first`."""

    KIND: ClassVar[str] = "feed forward"
    intermediate_size: int
    activation: Activation = Activation.SILU
    bias: bool = False
    gated: bool = True
    up_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKind:
    """What the layers of a kind have of their own; None where it is what `DecoderConfig` says. Those with a
    `recurrence` have it in place of attention."""

    name: str
    attention: AttentionConfig | None = None
    feed_forward: FeedForwardConfig | MixtureConfig | None = None
    recurrence: Recurrence | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """Embedding, `num_layers` layers of attention and feed-forward, a last norm, and a head.

    All layers are equal, unless `kinds_of_layers` names one of `kinds` for each. Raises ValueError for another name or
    another number of them, and for kinds that cannot share the kernels of one KV cache.

    A head that is tied, and `head_apart`, is a parameter of its own, made of the embedding: MLC-LLM has some so.

    `learned_positions` is how many positions have a vector that is added to the embedding; 0 where none has. The
    embedding, what a layer adds, and logits are multiplied by `embedding_scale`, `residual_scale` and `logit_scale`.
    Logits x become c tanh(x / c) for a `logit_softcap` c other than 0.
    """

    hidden_size: int
    vocab_size: int
    num_layers: int
    norm: NormConfig
    attention: AttentionConfig
    feed_forward: FeedForwardConfig | MixtureConfig
    tie_word_embeddings: bool
    wiring: Wiring = Wiring.NORM_BEFORE
    learned_positions: int = 0
    head_bias: bool = False
    head_apart: bool = False
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    logit_softcap: float = 0.0
    names: DecoderNames = field(default_factory=DecoderNames)
    kinds: tuple[LayerKind, ...] = ()
    kinds_of_layers: tuple[str, ...] = ()
    recurrence: Recurrence | None = None  # of a layer alone (`of_layer`)

    def __post_init__(self) -> None:
        unknown = set(self.kinds_of_layers) - {kind.name for kind in self.kinds}
        if unknown:
            raise ValueError(f"not a kind of layer: {min(unknown)!r}")
        _ = self.layers, self.rules

    @property
    def rules(self) -> AttentionRules:
        """What attention of the layers computes, by the kernels that they share."""
        found = [self.attention, *(kind.attention for kind in self.kinds if kind.attention is not None)]
        windows = {(each.window, each.chunked) for each in found if each.window}
        same = {
            (
                *(each.query_heads, each.key_value_heads, each.head_dim, each.latent),
                *(each.soft_cap, each.sinks, each.alibi, each.rotary.in_cache),
            )
            for each in found
        }
        if len(windows) > 1 or len(same) > 1:
            raise ValueError(f"layers cannot share a KV cache: {found}")
        window, chunked = max(windows, default=(0, False))
        attention = self.attention
        return AttentionRules(
            window=window,
            chunked=chunked,
            soft_cap=attention.soft_cap,
            sinks=attention.sinks,
            alibi=attention.alibi,
        )

    @property
    def layers(self) -> Layers:
        """The layers by name and kind."""
        recurrent = tuple(kind.name for kind in self.kinds if kind.recurrence is not None)
        return Layers(name=self.names.layers, count=self.num_layers, kinds=self.kinds_of_layers, recurrent=recurrent)

    @property
    def recurrent_layers(self) -> int:
        """How many layers have a recurrence in place of attention."""
        return sum(name in self.layers.recurrent for name in self.kinds_of_layers)

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
            recurrence=kind.recurrence,
            kinds=(),
            kinds_of_layers=(),
        )


def read_decoder(
    reader: ConfigReader,
    *,
    qkv_bias: bool = False,
    output_bias: bool = False,
    mlp_bias: bool = False,
    gated: bool = True,
    intermediate_default: int | None = None,
    norm_field: str = "rms_norm_eps",
    rotary_form: RotaryForm = RotaryForm.HALVES,
    partial_rotation: float | None = None,
) -> DecoderConfig:
    """A decoder by the field names that most configurations of Hugging Face share, with 1/√d before the softmax.

    The fields are hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, num_key_value_heads,
    head_dim, vocab_size, max_position_embeddings, hidden_act, tie_word_embeddings, that of the norms' epsilon, and
    those of `read_rotary`, which are not read if `rotary_form` is none. Which parts have biases, the family says.
    Raises StageError naming a field that is missing, out of range or not supported.
    """
    _check_layers(reader)
    hidden = reader.integer("hidden_size", low=1, high=1 << 18)
    heads = reader.integer("num_attention_heads", low=1, high=1 << 12)
    if not reader.has("head_dim") and hidden % heads:
        raise reader.fail(
            "num_attention_heads",
            f'is {heads}; without a "head_dim" it has to divide "hidden_size", which is {hidden}',
        )
    positions = read_limits(reader).max_position_embeddings
    feed_forward = FeedForwardConfig(
        intermediate_size=reader.integer("intermediate_size", low=1, high=1 << 20, default=intermediate_default),
        activation=read_activation(reader),
        bias=mlp_bias,
        gated=gated,
    )
    layers = reader.integer("num_hidden_layers", low=1, high=1 << 12)
    key_value_heads = _key_value_heads(reader, heads)
    head_dim = reader.integer("head_dim", low=2, high=1 << 12, default=hidden // heads)
    if head_dim % 2:
        raise reader.fail("head_dim", f"is {head_dim}; rotary embeddings need an even number")
    rotary = RotaryEmbedding(base=10000.0, form=RotaryForm.NONE)
    if rotary_form is not RotaryForm.NONE:
        rotary = read_rotary(
            reader,
            max_position_embeddings=positions,
            head_dim=head_dim,
            form=rotary_form,
            partial=partial_rotation,
        )
    return DecoderConfig(
        hidden_size=hidden,
        vocab_size=reader.integer("vocab_size", low=1, high=1 << 22),
        num_layers=layers,
        norm=NormConfig(epsilon=reader.number(norm_field, low=1e-20, high=0.1, default=1e-6)),
        attention=AttentionConfig(
            query_heads=heads,
            key_value_heads=key_value_heads,
            head_dim=head_dim,
            softmax_scale=1.0 / math.sqrt(head_dim),
            rotary=rotary,
            qkv_bias=qkv_bias,
            output_bias=output_bias,
        ),
        feed_forward=feed_forward,
        tie_word_embeddings=reader.boolean("tie_word_embeddings", default=False),
    )


def normed_behind_rotation(attention: AttentionConfig, norm: NormConfig) -> AttentionConfig:
    """Attention with RMS norms of each query and key that are behind the rotation, and have no weight.

    A rotation changes the length of a head by its attention factor alone. So a norm before it, with an epsilon that is
    smaller by the factor's square, computes the same.
    """
    rotary, epsilon = attention.rotary, norm.epsilon
    if rotary.table is not None:
        epsilon /= rotary.table.attention_factor**2
        rotary = replace(rotary, table=replace(rotary.table, attention_factor=1.0))
    plain = QueryKeyNorm(norm=NormConfig(epsilon=epsilon, weight=False))
    return replace(attention, rotary=rotary, query_key_norm=plain)


def read_cap(reader: ConfigReader, name: str) -> float:
    """A field that bounds scores or logits: c of c tanh(x / c), or 0 for no bound."""
    return reader.number(name, low=1e-3, high=1e6) if reader.has(name) else 0.0


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


def read_window(reader: ConfigReader) -> ContextLimits:
    """The limits of a model whose attention sees the tokens of `sliding_window`, or all of the text if that is null, or
    as long as the longest text: Phi-3.5 and Phi-4-mini have windows that no text of theirs reaches."""
    limits = read_limits(reader)
    window = reader.integer("sliding_window", low=1, high=MAX_CONTEXT) if reader.has("sliding_window") else -1
    return replace(limits, sliding_window=window if window < limits.max_position_embeddings else -1)
