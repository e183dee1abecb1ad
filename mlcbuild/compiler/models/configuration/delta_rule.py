"""Fields of the gated delta rule's layers, by the names that Qwen's configurations have, and which layers they are."""

from __future__ import annotations

from collections.abc import Sequence

from mlcbuild.compiler.models.architecture.recurrence import DeltaRuleConfig
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.configuration.layer_types import FULL, LINEAR


def read_delta_rule(reader: ConfigReader, *, norm_epsilon: float, fused: bool) -> DeltaRuleConfig:
    """`fused`: a checkpoint has the products as two tensors. Raises StageError where heads do not share keys evenly."""
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


def read_linear_layers(reader: ConfigReader, layers: int) -> tuple[str, ...]:
    """The type of each layer, by `layer_types`, else by `full_attention_interval`. Raises StageError where all are of
    one type."""
    step = reader.integer("full_attention_interval", low=1, high=1 << 12, default=4)
    default = [LINEAR if (number + 1) % step else FULL for number in range(layers)]
    found = reader.value("layer_types") if reader.has("layer_types") else default
    if not isinstance(found, list) or len(found) != layers or not set(found) <= {LINEAR, FULL}:
        raise reader.fail("layer_types", f'has to be "{LINEAR}" or "{FULL}" for each of the {layers} layers')
    if len(set(found)) == 1:
        raise reader.fail("layer_types", f'has "{found[0]}" alone; a model has layers of both types')
    return tuple(found)


def delta_rule_fields(rule: DeltaRuleConfig, types: Sequence[str]) -> dict[str, object]:
    """The same fields, for a `model_config`."""
    return {
        "linear_key_head_dim": rule.key_dim,
        "linear_value_head_dim": rule.value_dim,
        "linear_num_key_heads": rule.key_heads,
        "linear_num_value_heads": rule.heads,
        "linear_conv_kernel_dim": rule.convolution,
        "layer_types": list(types),
    }
