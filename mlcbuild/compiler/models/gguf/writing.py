"""The metadata of a GGUF file from a decoder's configuration: the inverse of `gguf.config`.

Some keys all architectures have. Which of the others an architecture has, its family says, by the names that it reads;
what a key's value is, is written down here, once for all architectures that have it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, FeedForwardConfig, NormKind, Wiring
from mlcbuild.compiler.models.architecture.mixture import MixtureConfig, RouterScores
from mlcbuild.compiler.models.architecture.rotary import RotaryEmbedding, RotaryForm
from mlcbuild.compiler.models.gguf.config import LAYER_NORM, RMS_NORM
from mlcbuild.compiler.models.gguf.rope_writing import rope_metadata
from mlcbuild.compiler.models.gguf.windows import WINDOW, WINDOW_BASE, WINDOW_PATTERN
from mlcbuild.compiler.models.gguf.written import GGUFMetadata, Value, WrittenModel

_GATING = {RouterScores.SOFTMAX: 1, RouterScores.SIGMOID: 2}  # llama.cpp's numbers


def decoder_metadata(
    model: WrittenModel,
    *,
    keys: Collection[str] = (),
    own: Mapping[str, Value] | None = None,
    grows: bool = False,
    log_multiplied: bool = False,
) -> GGUFMetadata:
    """The metadata that all decoders have, and the architecture's `keys` of those that some have. `own` are other
    values, or other keys. `grows` and `log_multiplied` are those of `rope_metadata`.

    A value of a key that says nothing is left out. Raises StageError for a rotary embedding that no file says.
    """
    config: DecoderConfig = model.configuration
    attention, rotary = config.attention, _rotary(config)
    values: dict[str, Value] = {
        "block_count": config.num_layers,
        "context_length": model.positions,
        "embedding_length": config.hidden_size,
        "feed_forward_length": _feed_forward(model),
        "attention.head_count": attention.query_heads,
        "attention.head_count_kv": attention.key_value_heads,
        "attention.key_length": attention.head_dim,
        "attention.value_length": attention.head_dim,
        f"attention.{RMS_NORM if config.norm.kind is NormKind.RMS else LAYER_NORM}": config.norm.epsilon,
        "vocab_size": config.vocab_size,
    }
    factors: Mapping[str, tuple[float, ...]] = {}
    if rotary is not None:
        rotated = rotated_size(config)
        values |= {"rope.dimension_count": rotated, "rope.freq_base": rotary.base}
        scaled = rope_metadata(model, rotary, head_dim=rotated, grows=grows, log_multiplied=log_multiplied)
        values |= scaled.values
        factors = scaled.factors
    found = {key: _VALUES[key](model) for key in keys if key in _VALUES}
    values |= {key: value for key, value in found.items() if value is not None}
    return GGUFMetadata(values=values | dict(own or {}), factors=factors)


def rotated_size(config: DecoderConfig) -> int:
    """How many elements of a head are rotated, in the layers that rotate."""
    rotary, attention = _rotary(config), config.attention
    if rotary is not None and rotary.table is not None and rotary.table.frequencies:
        return 2 * len(rotary.table.frequencies)
    return attention.head_dim if attention.latent is None else attention.latent.rotated_dim


def _rotary(config: DecoderConfig) -> RotaryEmbedding | None:
    """That of the layers that see all of the text, or else of any that are rotated; None for a model without."""
    kinds = [kind.attention for kind in config.kinds if kind.attention is not None]
    every = sorted((config.attention, *kinds), key=lambda one: one.window > 0)
    return next((one.rotary for one in every if one.rotary.form is not RotaryForm.NONE), None)


def _feed_forward(model: WrittenModel) -> int:
    """That of layers without experts, if there are any; some configurations have it for all layers."""
    config: DecoderConfig = model.configuration
    kinds = [config.feed_forward, *(kind.feed_forward for kind in config.kinds)]
    dense = [one.intermediate_size for one in kinds if isinstance(one, FeedForwardConfig)]
    return model.integer("intermediate_size") or max(dense, default=config.feed_forward.intermediate_size)


def _mixture(model: WrittenModel) -> MixtureConfig | None:
    config: DecoderConfig = model.configuration
    kinds = [config.feed_forward, *(kind.feed_forward for kind in config.kinds)]
    return next((one for one in kinds if isinstance(one, MixtureConfig)), None)


def _of_mixture(value: Callable[[MixtureConfig], Value | None]) -> Callable[[WrittenModel], Value | None]:
    def found(model: WrittenModel) -> Value | None:
        mixture = _mixture(model)
        return None if mixture is None else value(mixture)

    return found


def _pattern(model: WrittenModel) -> Value | None:
    """Which layers slide, where some do."""
    config: DecoderConfig = model.configuration
    slides = tuple(config.of_layer(number).attention.window > 0 for number in range(config.num_layers))
    return slides if any(slides) else None


def _base_in_windows(model: WrittenModel) -> Value | None:
    config: DecoderConfig = model.configuration
    full = _rotary(config)
    bases = {
        kind.attention.rotary.base for kind in config.kinds if kind.attention is not None and kind.attention.window
    }
    base = next(iter(bases), None)
    return None if full is None or base in (None, full.base, 10000.0) else base


def _first_dense(model: WrittenModel) -> Value | None:
    """How many layers come before the first with experts."""
    config: DecoderConfig = model.configuration
    for number in range(config.num_layers):
        if isinstance(config.of_layer(number).feed_forward, MixtureConfig):
            return number
    return None


def _groups(mixture: MixtureConfig) -> Value | None:
    return None if mixture.router.groups is None else mixture.router.groups.count


def _chosen_groups(mixture: MixtureConfig) -> Value | None:
    return None if mixture.router.groups is None else mixture.router.groups.chosen


def _shared_length(mixture: MixtureConfig) -> Value | None:
    return None if mixture.shared is None else mixture.shared.intermediate_size


def _shared_count(mixture: MixtureConfig) -> Value | None:
    return None if mixture.shared is None else mixture.shared.intermediate_size // mixture.intermediate_size


_VALUES: Mapping[str, Callable[[WrittenModel], Value | None]] = {
    WINDOW: lambda model: model.window or None,
    WINDOW_PATTERN: _pattern,
    WINDOW_BASE: _base_in_windows,
    "attention.clamp_kqv": lambda model: model.configuration.attention.qkv_clip or None,
    "attention.scale": lambda model: model.configuration.attention.softmax_scale,
    "attn_logit_softcapping": lambda model: model.configuration.attention.soft_cap or None,
    "final_logit_softcapping": lambda model: model.configuration.logit_softcap or None,
    "embedding_scale": lambda model: model.configuration.embedding_scale,
    "residual_scale": lambda model: model.configuration.residual_scale,
    "logit_scale": lambda model: model.configuration.logit_scale,
    "use_parallel_residual": lambda model: model.configuration.wiring in (Wiring.PARALLEL, Wiring.PARALLEL_ONE_NORM),
    "expert_count": _of_mixture(lambda mixture: mixture.experts),
    "expert_used_count": _of_mixture(lambda mixture: mixture.experts_per_token),
    "expert_feed_forward_length": _of_mixture(lambda mixture: mixture.intermediate_size),
    "expert_shared_feed_forward_length": _of_mixture(_shared_length),
    "expert_shared_count": _of_mixture(_shared_count),
    "expert_weights_scale": _of_mixture(lambda mixture: mixture.router.scale),
    "expert_weights_norm": _of_mixture(lambda mixture: mixture.router.normalized),
    "expert_gating_func": _of_mixture(lambda mixture: _GATING.get(mixture.router.scores)),
    "expert_group_count": _of_mixture(_groups),
    "expert_group_used_count": _of_mixture(_chosen_groups),
    "leading_dense_block_count": _first_dense,
}
"""Values of the metadata that some architectures have, None where a file says nothing; by names without the
architecture's."""
