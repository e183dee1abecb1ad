"""The fields of a `config.json` that tell of the gated delta rule's layers, from the metadata of a GGUF file, and these
metadata from a decoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig
from mlcbuild.compiler.models.configuration.layer_types import FULL, LINEAR
from mlcbuild.compiler.models.gguf.recurrence import RECURRENCE_KEYS, recurrence_metadata, recurrence_sizes
from mlcbuild.compiler.models.gguf.recurrent_layers import (
    RECURRENT_LAYER_KEYS,
    recurrent_layers,
    recurrent_layers_metadata,
)
from mlcbuild.compiler.models.gguf.written import Value
from mlcbuild.errors import StageError

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

PREDICTING = "nextn_predict_layers"
"""The key, without the architecture's name, of how many layers predict further tokens."""
DELTA_RULE_KEYS = (*RECURRENCE_KEYS, *RECURRENT_LAYER_KEYS)
_MOST_LAYERS = 1 << 12
_FUSED = "ssm_in.weight"


def delta_rule_document(file: GGUFFile, architecture: str, *, predicting: bool) -> dict[str, object]:
    """Sizes, `num_hidden_layers` and `layer_types`. With `predicting`, layers that predict further tokens are counted
    among a file's others, and come last. Raises StageError for numbers that cannot be, and for files of older
    converters, which have all products of a recurrent layer in one tensor."""
    older = [name for name in file.tensors if name.endswith(f".{_FUSED}")]
    if older:
        raise StageError(
            f"{file.path} is of an older llama.cpp: it has the tensor {older[0]}",
            advice=("convert the model again, or import it from a Hugging Face directory",),
        )
    sizes = recurrence_sizes(file, architecture)
    blocks = file.integer(f"{architecture}.block_count")
    further = file.integer(f"{architecture}.{PREDICTING}", 0) if predicting else 0
    if not 0 <= further < blocks <= _MOST_LAYERS:
        raise StageError(f"{file.path}: {further} of {blocks} layers that predict further tokens cannot be")
    recurrent = recurrent_layers(file, architecture, blocks)[: blocks - further]
    return {
        "num_hidden_layers": blocks - further,
        "layer_types": [LINEAR if each else FULL for each in recurrent],
        "linear_conv_kernel_dim": sizes.convolution,
        "linear_num_key_heads": sizes.groups,
        "linear_num_value_heads": sizes.heads,
        "linear_key_head_dim": sizes.state_size,
        "linear_value_head_dim": sizes.head_dim,
        **({"mtp_num_hidden_layers": further} if further else {}),
    }


def delta_rule_metadata(config: DecoderConfig) -> dict[str, Value]:
    """Of a file without layers that predict further tokens."""
    layers = [config.of_layer(number).recurrence for number in range(config.num_layers)]
    rule = next(each for each in layers if each is not None)
    return recurrence_metadata(rule) | recurrent_layers_metadata([each is not None for each in layers])
