"""GLM-4 as transformers has it (`glm`), and GLM-4-0414 (`glm4`), which also norms what a layer adds.

Defaults are those of transformers' `GlmConfig` and `Glm4Config`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.checkpoint_layout import CheckpointLayout, TensorName
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder import DecoderConfig, Wiring, read_decoder
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.decoder_names import DecoderNames
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf_config import decoder_document
from mlcbuild.compiler.models.rotary import RotaryForm
from mlcbuild.errors import StageError

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_NAMES = DecoderNames(after_attention_norm="post_self_attn_layernorm", after_feed_forward_norm="post_mlp_layernorm")
_LAYOUT = CheckpointLayout(
    gate_up=(TensorName("mlp.gate_up_proj", "ffn_up"),),
    after_attention_norm=TensorName("post_self_attn_layernorm", "post_attention_norm"),
    after_feed_forward_norm=TensorName("post_mlp_layernorm", "post_ffw_norm"),
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(
        head_dim=128, num_key_value_heads=2, max_position_embeddings=131072, rms_norm_eps=0.00000015625
    )
    bias = reader.boolean("attention_bias", default=True)
    config = read_decoder(reader, qkv_bias=bias, rotary_form=RotaryForm.NEIGHBOURS, partial_rotation=0.5)
    around = reader.string("model_type") == "glm4"
    config = replace(config, names=_NAMES, wiring=Wiring.NORM_AROUND if around else Wiring.NORM_BEFORE)
    return decoder_model(reader, config, _LAYOUT, own={"attention_bias": bias})


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    document = decoder_document(
        file, architecture="glm4", model_type="glm4", class_name="Glm4ForCausalLM", partial=True
    )
    return document | {"attention_bias": "blk.0.attn_q.bias" in file.tensors}


def _config_of_glm(file: GGUFFile) -> dict[str, object]:
    if "blk.0.attn_qkv.weight" in file.tensors:
        raise StageError(
            f"{file.path} has queries, keys and values in one tensor, which is not supported",
            advice=("import the model from a Hugging Face directory",),
        )
    document = decoder_document(
        file, architecture="chatglm", model_type="glm", class_name="GlmForCausalLM", partial=True
    )
    return document | {"attention_bias": "blk.0.attn_q.bias" in file.tensors}


FAMILY = Family(
    name="glm",
    models="GLM-4 and GLM-4-0414",
    model_types=("glm", "glm4"),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={
        "glm4": GGUFArchitecture(config=_config_of_gguf),
        "chatglm": GGUFArchitecture(config=_config_of_glm),
    },
)
