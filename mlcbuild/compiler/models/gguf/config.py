"""A Hugging Face `config.json` from the metadata of a GGUF file: the part that architectures of decoders share."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.gguf.keys import check_keys
from mlcbuild.compiler.models.gguf.numbers import shortest_decimal
from mlcbuild.compiler.models.gguf.rope import rope_keys, rope_scaling
from mlcbuild.errors import StageError

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

RMS_NORM = "layer_norm_rms_epsilon"
LAYER_NORM = "layer_norm_epsilon"
_EMBEDDING = "token_embd.weight"


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
    yarn_grows: bool = False,
    yarn_log_multiplied: bool = False,
    key_value_heads: int = 0,
) -> dict[str, object]:
    """The fields of a `config.json` that `architecture.decoder.read_decoder` reads, with `tie_word_embeddings` and the
    ids of special tokens.

    Metadata are those below `architecture`, of which the caller reads `also_read` itself; `class_name` is transformers'
    class of the model. `layer_norm` is the field for the epsilon of layer norms; a model without has RMS norms.
    `partial` says that the model may rotate heads in part; `yarn_grows` and `yarn_log_multiplied` are those of
    `rope_scaling`. A file with
    experts may leave the size of other feed-forwards out, and then has no `intermediate_size`. `key_value_heads` are
    those that the caller has found, in a file that has a number for each layer. Raises StageError for
    heads that are rotated in part where it may not, for experts, unless the caller reads `expert_count`, and for
    metadata that is not read (`gguf.keys`).
    """
    if file.integer(f"{architecture}.expert_count", 0) > 0 and "expert_count" not in also_read:
        raise StageError(f"{file.path} holds a mixture of experts, which is not supported")
    head_dim = head_size(file, architecture)
    heads = file.integer(f"{architecture}.attention.head_count")
    norm = f"attention.{LAYER_NORM if layer_norm else RMS_NORM}"
    check_keys(file, architecture, head_dim=head_dim, also_read=(*also_read, norm, *rope_keys(file, architecture)))
    rotated = file.integer(f"{architecture}.rope.dimension_count", head_dim)
    if rotated != head_dim and not partial:
        raise StageError(f"{file.path} rotates {rotated} of {head_dim} elements of a head; here, all are")
    theta = shortest_decimal(file.number(f"{architecture}.rope.freq_base", 10000.0))
    document: dict[str, object] = {
        "architectures": [class_name],
        "model_type": model_type,
        "hidden_act": hidden_act,
        "hidden_size": file.integer(f"{architecture}.embedding_length"),
        "num_hidden_layers": file.integer(f"{architecture}.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": key_value_heads or file.integer(f"{architecture}.attention.head_count_kv", heads),
        "head_dim": head_dim,
        "vocab_size": vocabulary_size(file),
        "max_position_embeddings": file.integer(f"{architecture}.context_length"),
        layer_norm or "rms_norm_eps": shortest_decimal(file.number(f"{architecture}.{norm}")),
        "rope_theta": theta,
        "tie_word_embeddings": "output.weight" not in file.tensors,
    }
    inner = f"{architecture}.feed_forward_length"
    if inner in file.metadata or "expert_count" not in also_read:
        document["intermediate_size"] = file.integer(inner)
    if partial:
        document["partial_rotary_factor"] = rotated / head_dim
    scaling = rope_scaling(
        file, architecture, theta=theta, rotated=rotated, grows=yarn_grows, log_multiplied=yarn_log_multiplied
    )
    if scaling is not None:
        document["rope_scaling"] = scaling
    return document | special_tokens(file)


def special_tokens(file: GGUFFile) -> dict[str, object]:
    """The fields for the ids of special tokens that the file has."""
    ids = {name: file.token_id(key) for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))}
    return {f"{name}_token_id": number for name, number in ids.items() if number is not None}


def head_size(file: GGUFFile, architecture: str) -> int:
    """How many elements a head has. Raises StageError for metadata that cannot be."""
    heads = file.integer(f"{architecture}.attention.head_count")
    hidden = file.integer(f"{architecture}.embedding_length")
    if heads < 1:
        raise StageError(f'{file.path}: the metadata "{architecture}.attention.head_count" is {heads}')
    head_dim = file.integer(f"{architecture}.attention.key_length", hidden // heads)
    if head_dim < 1:
        raise StageError(f"{file.path}: heads of {head_dim} elements, of {hidden} for {heads} heads, cannot be")
    return head_dim


def vocabulary_size(file: GGUFFile) -> int:
    """The embedding's rows: the metadata may leave the number out, and may count without padding."""
    embedding = file.tensors.get(_EMBEDDING)
    if embedding is None or len(embedding.shape) != 2:
        raise StageError(f"{file.path} lacks the tensor {_EMBEDDING}")
    return embedding.shape[0]
