"""The `config.json` of a DeepSeek V2 or V3 from the metadata of a GGUF file, and these from a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcbuild.compiler.models.gguf.config import decoder_document
from mlcbuild.compiler.models.gguf.deepseek_mixture import DEEPSEEK_MIXTURE_KEYS, deepseek_mixture_fields
from mlcbuild.compiler.models.gguf.deepseek_routers import (
    DEEPSEEK_ROUTER_KEYS,
    deepseek_router_fields,
    has_sigmoid_router,
)
from mlcbuild.compiler.models.gguf.latent import LATENT_KEYS, latent_document, latent_metadata
from mlcbuild.compiler.models.gguf.writing import decoder_metadata
from mlcbuild.compiler.models.gguf.written import GGUFMetadata, WrittenModel

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_NAME = "deepseek2"
_EXPERT_KEYS = (*DEEPSEEK_MIXTURE_KEYS, *DEEPSEEK_ROUTER_KEYS)


def config_of_gguf(file: GGUFFile) -> dict[str, object]:
    """As llama.cpp reads it."""
    latent = latent_document(file, _NAME)
    is_v3 = has_sigmoid_router(file, _NAME)
    model_type, class_name = ("deepseek_v3", "DeepseekV3") if is_v3 else ("deepseek_v2", "DeepseekV2")
    document = decoder_document(
        file,
        architecture=_NAME,
        model_type=model_type,
        class_name=f"{class_name}ForCausalLM",
        also_read=(*LATENT_KEYS, *_EXPERT_KEYS),
        partial=True,
        yarn_grows=True,
    )
    for name in ("head_dim", "partial_rotary_factor"):
        del document[name]
    return document | latent | deepseek_mixture_fields(file, _NAME) | deepseek_router_fields(file, _NAME)


def metadata_of_model(model: WrittenModel) -> GGUFMetadata:
    own = latent_metadata(model.configuration.attention)
    return decoder_metadata(model, keys=_EXPERT_KEYS, own=own, grows=True)
