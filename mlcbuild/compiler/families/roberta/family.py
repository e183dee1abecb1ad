"""RoBERTa and XLM-RoBERTa: BERT whose positions begin behind the number of the padding token. BGE-M3, multilingual E5.

transformers' `RobertaConfig` and `XLMRobertaConfig` have the defaults.
"""

from __future__ import annotations

from dataclasses import replace

from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.embedding import EmbeddingMetadata, EmbeddingModelType, PoolingStrategy
from mlcbuild.compiler.models.encoder import EncoderConfig, read_encoder
from mlcbuild.compiler.models.encoder_family import encoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel

_DEFAULTS = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 1,
}
_VOCABULARIES = {"roberta": 50265, "xlm-roberta": 30522}
_EMBEDDING = EmbeddingMetadata(model_type=EmbeddingModelType.ENCODER, pooling_strategy=PoolingStrategy.CLS)


def resolve(reader: ConfigReader) -> FamilyModel[EncoderConfig]:
    vocabulary = _VOCABULARIES[reader.string("model_type")]
    reader = reader.with_defaults(**_DEFAULTS, vocab_size=vocabulary)
    config = read_encoder(reader)
    highest = min(config.positions - 2, config.vocab_size - 1)
    config = replace(config, padding_token=reader.integer("pad_token_id", low=0, high=max(highest, 0)))
    return encoder_model(config, embedding=_EMBEDDING, prefixes=("roberta.",))


FAMILY = Family(
    name="roberta",
    models="RoBERTa, XLM-RoBERTa; BGE-M3, multilingual E5",
    model_types=("roberta", "xlm-roberta"),
    configuration=EncoderConfig,
    resolve=resolve,
    kv_state_kind="none",
)
