"""What families of encoders make of an `EncoderConfig`, and of the metadata of a GGUF file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.encoder import EncoderConfig
from mlcbuild.compiler.models.chat_config import SIZES
from mlcbuild.compiler.models.checkpoints.encoder_parameters import encoder_parameters
from mlcbuild.compiler.models.embedding import FIELD, EmbeddingMetadata, EmbeddingModelType, PoolingStrategy
from mlcbuild.compiler.models.family import FamilyModel
from mlcbuild.compiler.models.gguf.config import LAYER_NORM, vocabulary_size
from mlcbuild.compiler.models.gguf.keys import check_keys
from mlcbuild.compiler.models.gguf.numbers import shortest_decimal
from mlcbuild.compiler.models.gguf.written import GGUFMetadata, Value, WrittenModel
from mlcbuild.errors import StageError

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

# Of transformers' `BertConfig`, `RobertaConfig` and `XLMRobertaConfig`, whose vocabularies differ.
DEFAULTS: dict[str, object] = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}
_FIRST_TOKEN = EmbeddingMetadata(model_type=EmbeddingModelType.ENCODER, pooling_strategy=PoolingStrategy.CLS)

# llama.cpp's `enum llama_pooling_type`.
_POOLING = {1: PoolingStrategy.MEAN, 2: PoolingStrategy.CLS, 3: PoolingStrategy.LAST}
_NO_POOLING = (-1, 0)


def encoder_model(config: EncoderConfig, *, prefixes: tuple[str, ...]) -> FamilyModel[EncoderConfig]:
    """The model of a configuration. If its `config.json` does not say what texts become, it is the hidden state of the
    first token, as in MLC-LLM. `prefixes` are those of `encoder_parameters`."""
    return FamilyModel(
        configuration=config,
        vocab_size=config.vocab_size,
        layers=config.layers,
        limits=config.limits,
        chat_config={
            "vocab_size": config.vocab_size,
            "hidden_size": config.hidden_size,
            "num_hidden_layers": config.num_layers,
            "num_attention_heads": config.heads,
            "intermediate_size": config.feed_forward.intermediate_size,
            "hidden_act": config.feed_forward.activation.value,
            "layer_norm_eps": config.norm.epsilon,
            **dict.fromkeys(SIZES),
            "type_vocab_size": config.token_types,
            "head_dim": config.head_dim,
        },
        parameters=encoder_parameters(config, prefixes=prefixes),
        embedding=_FIRST_TOKEN,
    )


def encoder_document(file: GGUFFile, *, architecture: str, model_type: str, class_name: str) -> dict[str, object]:
    """The fields of a `config.json` that `encoder.read_encoder` reads, with what becomes of hidden states. Raises
    StageError for metadata that is not read, and for a kind of pooling that is not known."""
    hidden = file.integer(f"{architecture}.embedding_length")
    heads = file.integer(f"{architecture}.attention.head_count")
    norm = f"attention.{LAYER_NORM}"
    check_keys(file, architecture, head_dim=max(hidden // max(heads, 1), 1), also_read=(norm, "attention.causal"))
    if file.boolean(f"{architecture}.attention.causal", default=True):
        raise StageError(f'{file.path}: "{architecture}.attention.causal" is not false; tokens of an encoder see all')
    types = file.tensors.get("token_types.weight")
    document: dict[str, object] = {
        "architectures": [class_name],
        "model_type": model_type,
        "hidden_act": "gelu",
        "hidden_size": hidden,
        "intermediate_size": file.integer(f"{architecture}.feed_forward_length"),
        "num_hidden_layers": file.integer(f"{architecture}.block_count"),
        "num_attention_heads": heads,
        "vocab_size": vocabulary_size(file),
        "max_position_embeddings": file.integer(f"{architecture}.context_length"),
        "type_vocab_size": types.shape[0] if types is not None else 2,
        "layer_norm_eps": shortest_decimal(file.number(f"{architecture}.{norm}")),
    }
    pooling = file.integer(f"{architecture}.pooling_type", _NO_POOLING[0])
    if pooling in _POOLING:
        document[FIELD] = {"pooling_strategy": _POOLING[pooling].value, "normalize": True}
    elif pooling not in _NO_POOLING:
        raise StageError(
            f'{file.path}: "{architecture}.pooling_type" is {pooling}; known are 1 (mean), 2 (cls), 3 (last)'
        )
    return document


def encoder_metadata(model: WrittenModel) -> GGUFMetadata:
    """The inverse of `encoder_document`."""
    config: EncoderConfig = model.configuration
    embedding = model.description.embedding
    kinds = {strategy: number for number, strategy in _POOLING.items()}
    values: dict[str, Value] = {
        "block_count": config.num_layers,
        "context_length": model.positions,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.feed_forward.intermediate_size,
        "attention.head_count": config.heads,
        f"attention.{LAYER_NORM}": config.norm.epsilon,
        "attention.causal": False,
        "pooling_type": _NO_POOLING[1] if embedding is None else kinds[embedding.pooling_strategy],
        "vocab_size": config.vocab_size,
    }
    return GGUFMetadata(values=values, factors={})
