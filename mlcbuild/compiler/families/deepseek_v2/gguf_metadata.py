"""The `config.json` of a DeepSeek V2 or V3 from the metadata of a GGUF file, and these from a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcbuild.compiler.models.gguf.config import decoder_document
from mlcbuild.compiler.models.gguf.deepseek_mixture import DEEPSEEK_MIXTURE_KEYS, deepseek_mixture_fields
from mlcbuild.compiler.models.gguf.latent import LATENT_KEYS, latent_document, latent_metadata
from mlcbuild.compiler.models.gguf.numbers import number_below
from mlcbuild.compiler.models.gguf.writing import decoder_metadata
from mlcbuild.compiler.models.gguf.written import GGUFMetadata, WrittenModel

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_NAME = "deepseek2"
_EXPERT_KEYS = (
    *DEEPSEEK_MIXTURE_KEYS,
    *("expert_weights_norm", "expert_gating_func", "expert_group_count", "expert_group_used_count"),
)
_SOFTMAX, _SIGMOID = 1, 2  # llama.cpp's numbers


def config_of_gguf(file: GGUFFile) -> dict[str, object]:
    """As llama.cpp reads it."""
    latent = latent_document(file, _NAME)
    sigmoid = file.integer(f"{_NAME}.expert_gating_func", _SOFTMAX) == _SIGMOID
    model_type, class_name = ("deepseek_v3", "DeepseekV3") if sigmoid else ("deepseek_v2", "DeepseekV2")
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
    groups = file.integer(f"{_NAME}.expert_group_count", 1) or 1
    document |= latent | deepseek_mixture_fields(file, _NAME)
    document |= {
        "routed_scaling_factor": number_below(file, _NAME, "expert_weights_scale", 1.0),
        "norm_topk_prob": file.metadata.get(f"{_NAME}.expert_weights_norm", False),
        "n_group": groups,
        "topk_group": file.integer(f"{_NAME}.expert_group_used_count", 1) or 1,
    }
    if not sigmoid:
        document["topk_method"] = "greedy" if groups == 1 else "group_limited_greedy"
    return document


def metadata_of_model(model: WrittenModel) -> GGUFMetadata:
    own = latent_metadata(model.configuration.attention)
    return decoder_metadata(model, keys=_EXPERT_KEYS, own=own, grows=True)
