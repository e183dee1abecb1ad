"""BERT, and models of sentences that are built like it: MiniLM, BGE, E5, GTE.

transformers' `BertConfig` has the defaults. Their masked words are not predicted: results are hidden states, of which
`embedding_metadata` says how they become vectors of texts; without it, as in MLC-LLM, the first token's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.encoder import EncoderConfig, read_encoder
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.encoder_family import DEFAULTS, encoder_document, encoder_metadata, encoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile


def resolve(reader: ConfigReader) -> FamilyModel[EncoderConfig]:
    config = read_encoder(reader.with_defaults(**DEFAULTS, vocab_size=30522))
    return encoder_model(config, prefixes=("bert.",))


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    return encoder_document(file, architecture="bert", model_type="bert", class_name="BertModel")


FAMILY = Family(
    name="bert",
    models="BERT; MiniLM, BGE, E5, GTE",
    model_types=("bert",),
    configuration=EncoderConfig,
    resolve=resolve,
    gguf={"bert": GGUFArchitecture(config=_config_of_gguf, metadata=encoder_metadata)},
    kv_state_kind="none",
)
