"""Decoders some of whose layers have a mixture of experts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder import DecoderConfig, LayerKind
from mlcbuild.compiler.models.mixture import MixtureConfig


def with_mixture(config: DecoderConfig, mixture: MixtureConfig, *, dense: Sequence[int] = ()) -> DecoderConfig:
    """The decoder with a mixture in each layer, except in those of the numbers `dense`, which keep its feed-forward."""
    if not dense:
        return replace(config, feed_forward=mixture)
    kinds = (LayerKind(name="experts"), LayerKind(name="dense", feed_forward=config.feed_forward))
    of_layers = tuple("dense" if number in dense else "experts" for number in range(config.num_layers))
    return replace(config, feed_forward=mixture, kinds=kinds, kinds_of_layers=of_layers)


def read_dense_layers(reader: ConfigReader, layers: int) -> list[int]:
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
