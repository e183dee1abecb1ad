"""BERT, and models of sentences that are built like it: MiniLM, BGE, E5, GTE.

transformers' `BertConfig` has the defaults. Their masked words are not predicted: results are hidden states, of which
`embedding_metadata` says how they become vectors of texts; without it, as in MLC-LLM, the first token's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.embedding import EmbeddingMetadata, EmbeddingModelType, PoolingStrategy
from mlcbuild.compiler.models.encoder import EncoderConfig, read_encoder
from mlcbuild.compiler.models.encoder_family import encoder_document, encoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_DEFAULTS = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}
_EMBEDDING = EmbeddingMetadata(model_type=EmbeddingModelType.ENCODER, pooling_strategy=PoolingStrategy.CLS)


def resolve(reader: ConfigReader) -> FamilyModel[EncoderConfig]:
    config = read_encoder(reader.with_defaults(**_DEFAULTS))
    return encoder_model(config, embedding=_EMBEDDING, prefixes=("bert.",))


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    return encoder_document(file, architecture="bert", model_type="bert", class_name="BertModel")


FAMILY = Family(
    name="bert",
    models="BERT; MiniLM, BGE, E5, GTE",
    model_types=("bert",),
    configuration=EncoderConfig,
    resolve=resolve,
    gguf={"bert": GGUFArchitecture(config=_config_of_gguf)},
    kv_state_kind="none",
)
