"""The fields of a `config.json` that tell of Mamba 2's layers beside layers of attention, from the metadata of a GGUF
file, and these metadata from a decoder. Layers without key-value heads are the recurrent ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig
from mlcbuild.compiler.models.configuration.state_space_layers import ATTENTION, MAMBA
from mlcbuild.compiler.models.gguf.recurrence import recurrence_metadata, recurrence_sizes
from mlcbuild.compiler.models.gguf.recurrent_layers import KEY_VALUE_HEADS, key_value_heads_of_layers
from mlcbuild.compiler.models.gguf.written import Value

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile


def state_space_document(file: GGUFFile, architecture: str) -> dict[str, object]:
    """`layer_types`, and sizes of the recurrent layers, whose steps have no bounds, as in llama.cpp. Raises StageError
    for numbers that cannot be."""
    recurrent, _ = key_value_heads_of_layers(file, architecture)
    sizes = recurrence_sizes(file, architecture)
    return {
        "layer_types": [MAMBA if each else ATTENTION for each in recurrent],
        "mamba_n_heads": sizes.heads,
        "mamba_d_head": sizes.head_dim,
        "mamba_d_state": sizes.state_size,
        "mamba_d_conv": sizes.convolution,
        "mamba_n_groups": sizes.groups,
        "mamba_expand": sizes.inner / max(file.integer(f"{architecture}.embedding_length"), 1),
        "mamba_conv_bias": any(name.endswith(".ssm_conv1d.bias") for name in file.tensors),
    }


def state_space_metadata(config: DecoderConfig) -> dict[str, Value]:
    """The inverse of `state_space_document`, with the number of each layer's key-value heads."""
    layers = [config.of_layer(number).recurrence for number in range(config.num_layers)]
    heads = tuple(config.attention.key_value_heads if each is None else 0 for each in layers)
    return {KEY_VALUE_HEADS: heads, **recurrence_metadata(next(each for each in layers if each is not None))}
