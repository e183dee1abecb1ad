"""The `config.json` of a Qwen3-Next or Qwen3.5 from the metadata of a GGUF file, and these from a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcbuild.compiler.models.gguf.config import decoder_document
from mlcbuild.compiler.models.gguf.delta_rule import (
    DELTA_RULE_KEYS,
    PREDICTING,
    delta_rule_document,
    delta_rule_metadata,
)
from mlcbuild.compiler.models.gguf.mixture import MIXTURE_KEYS, mixture_fields
from mlcbuild.compiler.models.gguf.sections import SECTIONS, check_sections, sections_metadata
from mlcbuild.compiler.models.gguf.writing import decoder_metadata, rotated_size
from mlcbuild.compiler.models.gguf.written import GGUFMetadata, WrittenModel

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_CLASSES = {
    "qwen3_next": "Qwen3NextForCausalLM",
    "qwen3_5_text": "Qwen3_5ForCausalLM",
    "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM",
}


def config_of_gguf(file: GGUFFile, *, architecture: str, model_type: str) -> dict[str, object]:
    """As llama.cpp reads it; the weights of chosen experts are normalized."""
    experts = () if model_type == "qwen3_5_text" else MIXTURE_KEYS
    later = () if model_type == "qwen3_next" else (PREDICTING, SECTIONS)
    if later:
        check_sections(file, architecture)
    document = decoder_document(
        file,
        architecture=architecture,
        model_type=model_type,
        class_name=_CLASSES[model_type],
        also_read=(*DELTA_RULE_KEYS, *experts, *later),
        partial=True,
    )
    document |= delta_rule_document(file, architecture, predicting=bool(later))
    return document | mixture_fields(file, architecture) | {"norm_topk_prob": True} if experts else document


def metadata_of_model(model: WrittenModel) -> GGUFMetadata:
    """Without layers that predict further tokens, which packages do not have."""
    own = delta_rule_metadata(model.configuration)
    if model.description.model_type != "qwen3_next":
        own |= sections_metadata(rotated_size(model.configuration))
    return decoder_metadata(model, keys=MIXTURE_KEYS, own=own)
