"""Fields of the gated delta rule's layers, by the names that Qwen's configurations have, and which layers they are."""

from __future__ import annotations

from dataclasses import replace

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, LayerKind
from mlcbuild.compiler.models.architecture.recurrence import DeltaRuleConfig
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.configuration.layer_types import FULL, LINEAR

_DEFAULTS = {  # of transformers' `Qwen3NextConfig` and its like
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
}


def with_delta_rule(
    reader: ConfigReader, config: DecoderConfig, *, fused: bool
) -> tuple[DecoderConfig, dict[str, object]]:
    """The decoder with such layers between those of attention, and what a `model_config` says of them. `fused`: a
    checkpoint has the products as two tensors. Raises StageError where heads do not share keys evenly, and where all
    layers are of one type."""
    rule = _read_rule(reader.with_defaults(**_DEFAULTS), norm_epsilon=config.norm.epsilon, fused=fused)
    types = _read_types(reader, config.num_layers)
    kinds = (LayerKind(name=FULL), LayerKind(name=LINEAR, recurrence=rule))
    fields: dict[str, object] = {
        "linear_key_head_dim": rule.key_dim,
        "linear_value_head_dim": rule.value_dim,
        "linear_num_key_heads": rule.key_heads,
        "linear_num_value_heads": rule.heads,
        "linear_conv_kernel_dim": rule.convolution,
        "layer_types": list(types),
    }
    return replace(config, kinds=kinds, kinds_of_layers=types), fields


def _read_rule(reader: ConfigReader, *, norm_epsilon: float, fused: bool) -> DeltaRuleConfig:
    reader.refuse(hidden_act="silu")
    keys = reader.integer("linear_num_key_heads", low=1, high=1 << 12)
    heads = reader.integer("linear_num_value_heads", low=1, high=1 << 12)
    if heads % keys:
        raise reader.fail("linear_num_key_heads", f'is {keys}; it has to divide "linear_num_value_heads", {heads}')
    return DeltaRuleConfig(
        heads=heads,
        key_heads=keys,
        key_dim=reader.integer("linear_key_head_dim", low=1, high=1 << 12),
        value_dim=reader.integer("linear_value_head_dim", low=1, high=1 << 12),
        convolution=reader.integer("linear_conv_kernel_dim", low=2, high=16),
        norm_epsilon=norm_epsilon,
        fused=fused,
    )


def _read_types(reader: ConfigReader, layers: int) -> tuple[str, ...]:
    """The type of each layer, by `layer_types`, else by `full_attention_interval`."""
    step = reader.integer("full_attention_interval", low=1, high=1 << 12, default=4)
    default = [LINEAR if (number + 1) % step else FULL for number in range(layers)]
    found = reader.value("layer_types") if reader.has("layer_types") else default
    if not isinstance(found, list) or len(found) != layers or not set(found) <= {LINEAR, FULL}:
        raise reader.fail("layer_types", f'has to be "{LINEAR}" or "{FULL}" for each of the {layers} layers')
    if len(set(found)) == 1:
        raise reader.fail("layer_types", f'has "{found[0]}" alone; a model has layers of both types')
    return tuple(found)
