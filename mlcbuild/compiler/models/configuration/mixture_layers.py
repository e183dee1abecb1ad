"""Decoders some of whose layers have a mixture of experts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, LayerKind
from mlcbuild.compiler.models.architecture.mixture import MixtureConfig, RouterConfig, SharedExperts, read_experts
from mlcbuild.compiler.models.config import ConfigReader


def with_mixture(config: DecoderConfig, mixture: MixtureConfig, *, dense: Sequence[int] = ()) -> DecoderConfig:
    """The decoder with a mixture in each layer, except in those of the numbers `dense`, which keep its feed-forward.
    Where its layers are of several kinds, there may be layers of each with a mixture and without."""
    if not dense:
        return replace(config, feed_forward=mixture)
    attention = {kind.name: kind.attention for kind in config.kinds} or {"": None}
    words = [
        (config.layers.kind(number), "dense" if number in dense else "experts") for number in range(config.num_layers)
    ]
    order = sorted(set(words), key=lambda pair: (list(attention).index(pair[0]), pair[1] == "dense"))
    kinds = tuple(
        LayerKind(
            name=_joined(kind, word),
            attention=attention[kind],
            feed_forward=config.feed_forward if word == "dense" else None,
        )
        for kind, word in order
    )
    of_layers = tuple(_joined(*pair) for pair in words)
    return replace(config, feed_forward=mixture, kinds=kinds, kinds_of_layers=of_layers)


def _joined(*words: str) -> str:
    return ", ".join(word for word in words if word)


def with_mixture_of_qwen(
    reader: ConfigReader, config: DecoderConfig, *, shares: bool = False
) -> tuple[DecoderConfig, dict[str, object]]:
    """The decoder with the experts that the fields of a Qwen say, and what a `model_config` says of them. With `shares`
    there is one beside them that all tokens use, whose result is gated."""
    experts, chosen = read_experts(reader)
    inner = reader.integer("moe_intermediate_size", low=1, high=1 << 20)
    normalized = reader.boolean("norm_topk_prob", default=False)
    mixture = MixtureConfig(
        experts=experts,
        experts_per_token=chosen,
        intermediate_size=inner,
        activation=config.feed_forward.activation,
        router=RouterConfig(normalized=normalized),
        shared=SharedExperts(intermediate_size=_shared_size(reader), gated=True) if shares else None,
    )
    own: dict[str, object] = {
        "intermediate_size": config.feed_forward.intermediate_size,
        "moe_intermediate_size": inner,
        "num_experts_per_tok": chosen,
        "num_experts": experts,
        "decoder_sparse_step": reader.integer("decoder_sparse_step", low=1, high=1 << 12, default=1),
        "norm_topk_prob": normalized,
        **({"shared_expert_intermediate_size": _shared_size(reader)} if shares else {}),
    }
    return with_mixture(config, mixture, dense=_dense_layers(reader, config.num_layers)), own


def _shared_size(reader: ConfigReader) -> int:
    return reader.integer("shared_expert_intermediate_size", low=1, high=1 << 20)


def _dense_layers(reader: ConfigReader, layers: int) -> list[int]:
    """Which layers of a Qwen have no experts: those in `mlp_only_layers`, and all but every `decoder_sparse_step`-th.
    Raises StageError where all are dense."""
    step = reader.integer("decoder_sparse_step", low=1, high=1 << 12, default=1)
    listed = reader.value("mlp_only_layers") or []
    if not isinstance(listed, list) or not all(type(number) is int for number in listed):
        raise reader.fail("mlp_only_layers", "has to be a list of numbers of layers")
    dense = [number for number in range(layers) if number in listed or (number + 1) % step]
    if len(dense) == layers:
        raise reader.fail("decoder_sparse_step", f"is {step}, and no layer of {layers} has experts")
    return dense
