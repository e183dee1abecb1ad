"""Experts of Granite's models, and how their checkpoints have them: all in one tensor, gate and up fused."""

from __future__ import annotations

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, FeedForwardConfig
from mlcbuild.compiler.models.architecture.mixture import MixtureConfig, RouterConfig, SharedExperts, read_experts
from mlcbuild.compiler.models.checkpoints.layout import ExpertNames
from mlcbuild.compiler.models.config import ConfigReader

SHARED_INPUT, SHARED_OUTPUT = "shared_mlp.input_linear", "shared_mlp.output_linear"
GRANITE_EXPERTS = ExpertNames(
    module="block_sparse_moe",
    router="router.layer",
    fused_gate_up=("block_sparse_moe.input_linear.weight", "block_sparse_moe.experts.gate_up_proj"),
    fused_down=("block_sparse_moe.output_linear.weight", "block_sparse_moe.experts.down_proj"),
    fused_router="block_sparse_moe.router",
    fused_shared=(SHARED_INPUT, SHARED_OUTPUT),
)


def granite_mixture(config: DecoderConfig, counts: tuple[int, int], *, shared: int) -> MixtureConfig:
    """Experts of the size of the decoder's feed-forward, `counts` of which there are and a token uses, and `shared`
    elements of such as all use, if any."""
    experts, chosen = counts
    return MixtureConfig(
        experts=experts,
        experts_per_token=chosen,
        intermediate_size=config.feed_forward.intermediate_size,
        activation=config.feed_forward.activation,
        router=RouterConfig(normalized=True),
        shared=SharedExperts(intermediate_size=shared) if shared else None,
    )


def read_granite_feed_forward(reader: ConfigReader, config: DecoderConfig) -> FeedForwardConfig | MixtureConfig:
    """Of a Granite whose layers all have the shared part: that alone where there are no experts, else both."""
    shared = reader.integer("shared_intermediate_size", low=1, high=1 << 20)
    if reader.integer("num_local_experts", low=0, high=1 << 12) == 0:
        return FeedForwardConfig(intermediate_size=shared, activation=config.feed_forward.activation)
    return granite_mixture(config, read_experts(reader, "num_local_experts"), shared=shared)
