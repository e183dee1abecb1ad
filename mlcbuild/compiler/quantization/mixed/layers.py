"""Layers of a model that differ in precision are of other kinds, so that each kind is exported once."""

from __future__ import annotations

from dataclasses import replace

from mlcbuild.compiler.models.description import Layers
from mlcbuild.compiler.quantization.mixed.scheme import MixedScheme


def layer_kind(scheme: MixedScheme, name: str) -> str:
    """A text that is equal for layers whose matrices have equal schemes, by the layer's name; empty for one that has
    the default alone."""
    return " ".join(f"{own}={chosen}" for own, chosen in sorted(scheme.precision.below(f"{name}.")))


def with_precision(layers: Layers, scheme: MixedScheme) -> Layers:
    """The layers, each of a kind for its own and its precision. Those of a model that has one precision for the layers
    of each kind are returned as they are."""
    own = [layers.kind(number) for number in range(layers.count)]
    precisions = [layer_kind(scheme, f"{layers.name}.{number}") for number in range(layers.count)]
    pairs = list(zip(own, precisions, strict=True))
    if len(set(pairs)) == len(set(own)):
        return layers
    numbers = {precision: number for number, precision in enumerate(dict.fromkeys(precisions))}
    words = {(kind, precision): f"{kind} precision {numbers[precision]}".strip() for kind, precision in pairs}
    return replace(
        layers,
        kinds=tuple(words[pair] for pair in pairs),
        recurrent=tuple(dict.fromkeys(words[pair] for pair in pairs if pair[0] in layers.recurrent)),
    )
