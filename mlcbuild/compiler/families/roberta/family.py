"""RoBERTa and XLM-RoBERTa: BERT whose positions begin behind the number of the padding token. BGE-M3, multilingual E5.

transformers' `RobertaConfig` and `XLMRobertaConfig` have the defaults.
"""

from __future__ import annotations

from dataclasses import replace

from mlcbuild.compiler.models.architecture.encoder import EncoderConfig, read_encoder
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.encoder_family import DEFAULTS, encoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel

_VOCABULARIES = {"roberta": 50265, "xlm-roberta": 30522}


def resolve(reader: ConfigReader) -> FamilyModel[EncoderConfig]:
    vocabulary = _VOCABULARIES[reader.string("model_type")]
    reader = reader.with_defaults(**DEFAULTS, vocab_size=vocabulary, pad_token_id=1)
    config = read_encoder(reader)
    highest = min(config.positions - 2, config.vocab_size - 1)
    config = replace(config, padding_token=reader.integer("pad_token_id", low=0, high=max(highest, 0)))
    return encoder_model(config, prefixes=("roberta.",))


FAMILY = Family(
    name="roberta",
    models="RoBERTa, XLM-RoBERTa; BGE-M3, multilingual E5",
    model_types=("roberta", "xlm-roberta"),
    configuration=EncoderConfig,
    resolve=resolve,
    kv_state_kind="none",
)
