"""The `config.json` of a Granite 4 from the metadata of a GGUF file, and these from a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.rotary import RotaryForm
from mlcbuild.compiler.models.description import ModelDescription
from mlcbuild.compiler.models.gguf.config import decoder_document
from mlcbuild.compiler.models.gguf.mixture import MIXTURE_KEYS
from mlcbuild.compiler.models.gguf.recurrence import RECURRENCE_KEYS
from mlcbuild.compiler.models.gguf.recurrent_layers import key_value_heads_of_layers
from mlcbuild.compiler.models.gguf.scales import SCALE_KEYS, granite_factors, granite_metadata
from mlcbuild.compiler.models.gguf.state_space_layers import state_space_document, state_space_metadata
from mlcbuild.compiler.models.gguf.written import GGUFMetadata, Value, WrittenModel

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_NAME = "granitehybrid"
_SHARED, _ROTATES = "expert_shared_feed_forward_length", "rope.scaling.finetuned"


def config_of_gguf(file: GGUFFile) -> dict[str, object]:
    """As llama.cpp reads it: whether attention rotates is said by `rope.scaling.finetuned`."""
    document = decoder_document(
        file,
        architecture=_NAME,
        model_type="granitemoehybrid",
        class_name="GraniteMoeHybridForCausalLM",
        also_read=(*MIXTURE_KEYS, *SCALE_KEYS, *RECURRENCE_KEYS, _ROTATES),
        key_value_heads=key_value_heads_of_layers(file, _NAME)[1],
    )
    experts = file.integer(f"{_NAME}.expert_count", 0)
    document |= {
        "position_embedding_type": "rope" if file.boolean(f"{_NAME}.{_ROTATES}", default=True) else "nope",
        "attention_bias": any(name.endswith(".attn_q.bias") for name in file.tensors),
        "num_local_experts": experts,
        "num_experts_per_tok": file.integer(f"{_NAME}.expert_used_count", 0),
        "shared_intermediate_size": file.integer(f"{_NAME}.{_SHARED if experts else 'feed_forward_length'}"),
    }
    return document | granite_factors(file, _NAME) | state_space_document(file, _NAME)


def architecture_of(model: ModelDescription) -> str:
    """Without recurrent layers it is that of an older Granite, as in llama.cpp's converter."""
    if model.kv_state_kind == "hybrid":
        return _NAME
    return "granitemoe" if "experts" in model.configuration["feed_forward"] else "granite"  # type: ignore[operator]


def metadata_of_model(model: WrittenModel) -> GGUFMetadata:
    config = model.configuration
    own: dict[str, Value] = {
        "feed_forward_length": config.feed_forward.intermediate_size,
        _ROTATES: config.attention.rotary.form is not RotaryForm.NONE,
        **state_space_metadata(config),
    }
    return granite_metadata(model, keys=("expert_count", "expert_used_count", _SHARED), own=own)
