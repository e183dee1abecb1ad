"""The factors of Granite's models, by which embedding, residuals, scores and logits are scaled."""

from __future__ import annotations

from dataclasses import replace

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig
from mlcbuild.compiler.models.config import ConfigReader

_FACTORS = ("attention_multiplier", "embedding_multiplier", "residual_multiplier", "logits_scaling")


def with_granite_factors(reader: ConfigReader, config: DecoderConfig) -> tuple[DecoderConfig, dict[str, object]]:
    """A decoder with the factors that a `config.json` has, 1 for those that it leaves out; and the factors by their
    names. Raises StageError for a factor that is not above 0."""
    factors = {name: reader.number(name, low=1e-9, high=1e9, default=1.0) for name in _FACTORS}
    scaled = replace(
        config,
        attention=replace(config.attention, softmax_scale=factors["attention_multiplier"]),
        embedding_scale=factors["embedding_multiplier"],
        residual_scale=factors["residual_multiplier"],
        logit_scale=1.0 / factors["logits_scaling"],
    )
    return scaled, dict(factors)
