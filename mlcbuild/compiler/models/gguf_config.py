"""A Hugging Face `config.json` from the metadata of a GGUF file: the part that architectures of decoders share."""

from __future__ import annotations

import math
import struct
from collections.abc import Collection
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.gguf_keys import check_keys
from mlcbuild.errors import StageError

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

RMS_NORM = "layer_norm_rms_epsilon"
LAYER_NORM = "layer_norm_epsilon"
ROPE_FACTORS = "rope_freqs.weight"
_EMBEDDING = "token_embd.weight"
# Llama 3.1's constants; a file holds only the factors that follow from them.
_LOW, _HIGH, _ORIGINAL = 1.0, 4.0, 8192


def decoder_document(
    file: GGUFFile,
    *,
    architecture: str,
    model_type: str,
    class_name: str,
    also_read: Collection[str] = (),
    hidden_act: str = "silu",
    layer_norm: str = "",
    partial: bool = False,
) -> dict[str, object]:
    """The fields of a `config.json` that `models.decoder.read_decoder` reads, with `tie_word_embeddings` and the ids of
    special tokens.

    Metadata are those below `architecture`, of which the caller reads `also_read` itself; `class_name` is transformers'
    class of the model. `layer_norm` is the field for the epsilon of layer norms; a model without has RMS norms.
    `partial` says that the model may rotate heads in part. Raises StageError for heads that are rotated in part where
    it may not, for experts, unless the caller reads `expert_count`, and for metadata that is not read (`gguf_keys`).
    """
    if file.integer(f"{architecture}.expert_count", 0) > 0 and "expert_count" not in also_read:
        raise StageError(f"{file.path} holds a mixture of experts, which is not supported")
    heads = file.integer(f"{architecture}.attention.head_count")
    hidden = file.integer(f"{architecture}.embedding_length")
    if heads < 1:
        raise StageError(f'{file.path}: the metadata "{architecture}.attention.head_count" is {heads}')
    head_dim = file.integer(f"{architecture}.attention.key_length", hidden // heads)
    if head_dim < 1:
        raise StageError(f"{file.path}: heads of {head_dim} elements, of {hidden} for {heads} heads, cannot be")
    norm = f"attention.{LAYER_NORM if layer_norm else RMS_NORM}"
    check_keys(file, architecture, head_dim=head_dim, also_read=(*also_read, norm))
    rotated = file.integer(f"{architecture}.rope.dimension_count", head_dim)
    if rotated != head_dim and not partial:
        raise StageError(f"{file.path} rotates {rotated} of {head_dim} elements of a head; here, all are")
    theta = shortest_decimal(file.number(f"{architecture}.rope.freq_base", 10000.0))
    document: dict[str, object] = {
        "architectures": [class_name],
        "model_type": model_type,
        "hidden_act": hidden_act,
        "hidden_size": hidden,
        "intermediate_size": file.integer(f"{architecture}.feed_forward_length"),
        "num_hidden_layers": file.integer(f"{architecture}.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": file.integer(f"{architecture}.attention.head_count_kv", heads),
        "head_dim": head_dim,
        "vocab_size": _vocabulary_size(file),
        "max_position_embeddings": file.integer(f"{architecture}.context_length"),
        layer_norm or "rms_norm_eps": shortest_decimal(file.number(f"{architecture}.{norm}")),
        "rope_theta": theta,
        "tie_word_embeddings": "output.weight" not in file.tensors,
    }
    if partial:
        document["partial_rotary_factor"] = rotated / head_dim
    scaling = _rope_scaling(file, architecture, theta=theta, head_dim=head_dim)
    if scaling is not None:
        document["rope_scaling"] = scaling
    for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding")):
        number = file.token_id(key)
        if number is not None:
            document[f"{name}_token_id"] = number
    return document


def number_below(file: GGUFFile, architecture: str, key: str, default: float) -> float:
    """The number of a key below the architecture's name; 0, which stands for none in llama.cpp, is the default."""
    return shortest_decimal(file.number(f"{architecture}.{key}", 0.0)) or default


def shortest_decimal(number: float) -> float:
    """The shortest decimal that rounds to the same float32: 1e-05, where the file's bits say 9.99999974e-06. A number
    beyond the largest float32 stays as it is."""
    try:
        (exact,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:
        return number
    for digits in range(1, 10):
        decimal = float(f"{exact:.{digits}g}")
        if _is_float32(decimal, exact):
            return decimal
    return float(exact)


def _is_float32(decimal: float, exact: float) -> bool:
    """Whether a decimal rounds to that float32; one beyond the largest rounds to none."""
    try:
        return struct.pack("<f", decimal) == struct.pack("<f", exact)
    except OverflowError:
        return False


def _vocabulary_size(file: GGUFFile) -> int:
    """The embedding's rows: the metadata may leave the number out, and may count without padding."""
    embedding = file.tensors.get(_EMBEDDING)
    if embedding is None or len(embedding.shape) != 2:
        raise StageError(f"{file.path} lacks the tensor {_EMBEDDING}")
    return embedding.shape[0]


def _rope_scaling(file: GGUFFile, architecture: str, *, theta: float, head_dim: int) -> dict[str, object] | None:
    """As llama.cpp reads it: without a type the scaling is linear, and `rope.scale_linear` is the older name of the
    factor; a factor of 0 is none."""
    kind = file.string(f"{architecture}.rope.scaling.type", "linear")
    if kind not in ("none", "linear"):
        raise StageError(
            f'{file.path}: RoPE scaling of the type "{kind}" is not supported',
            advice=('known: "none", "linear", and Llama 3.1\'s factors in the tensor ' + ROPE_FACTORS,),
        )
    older = file.number(f"{architecture}.rope.scale_linear", 0.0)
    factor = shortest_decimal(file.number(f"{architecture}.rope.scaling.factor", older))
    if kind == "none" or factor == 0:
        factor = 1.0
    if ROPE_FACTORS in file.tensors:
        if factor != 1.0:
            raise StageError(f"{file.path} scales RoPE both by a factor and by the tensor {ROPE_FACTORS}")
        return _llama3_scaling(file, theta=theta, head_dim=head_dim)
    return None if factor == 1.0 else {"rope_type": "linear", "factor": factor}


def _llama3_scaling(file: GGUFFile, *, theta: float, head_dim: int) -> dict[str, object]:
    """The rule whose factors, one for each rotated pair, are those in the file."""
    factors = file.float32_numbers(ROPE_FACTORS)
    factor = shortest_decimal(max(factors))
    expected = []
    for pair in range(head_dim // 2):
        wavelength = 2 * math.pi * theta ** (2 * pair / head_dim)
        if wavelength < _ORIGINAL / _HIGH:
            expected.append(1.0)
        elif wavelength > _ORIGINAL / _LOW:
            expected.append(factor)
        else:
            smooth = (_ORIGINAL / wavelength - _LOW) / (_HIGH - _LOW)
            expected.append(1 / ((1 - smooth) / factor + smooth))
    if len(factors) != len(expected) or not all(map(_is_close, factors, expected)):
        raise StageError(
            f"{file.path}: the factors in {ROPE_FACTORS} are not those of Llama 3.1's rule, the only one that is read"
        )
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": _LOW,
        "high_freq_factor": _HIGH,
        "original_max_position_embeddings": _ORIGINAL,
    }


def _is_close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-4)
