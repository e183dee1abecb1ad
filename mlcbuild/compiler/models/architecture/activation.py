"""The functions inside feed-forwards, by name."""

from __future__ import annotations

import enum

from mlcbuild.compiler.models.config import ConfigReader


class Activation(enum.Enum):
    """The function inside a feed-forward, by Hugging Face's word."""

    SILU = "silu"
    GELU = "gelu"  # x Φ(x)
    GELU_TANH = "gelu_pytorch_tanh"  # its approximation by a hyperbolic tangent
    GELU_SIGMOID = "quick_gelu"  # its approximation by a sigmoid: x σ(1.702 x)
    RELU = "relu"
    RELU_SQUARED = "relu2"


_OTHER_NAMES = {
    "swish": Activation.SILU,
    "gelu_new": Activation.GELU_TANH,
    "gelu_fast": Activation.GELU_TANH,
}
"""Further words that Hugging Face has for the same functions."""


def read_activation(reader: ConfigReader) -> Activation:
    """The function in the field `hidden_act`. Raises StageError for another word."""
    names = {kind.value: kind for kind in Activation} | _OTHER_NAMES
    name = reader.string("hidden_act", default="silu")
    if name not in names:
        raise reader.fail("hidden_act", f'is "{name}"; known: {", ".join(sorted(names))}')
    return names[name]
