"""GLM-4 as transformers has it (`glm`), and GLM-4-0414 (`glm4`), which also norms what a layer adds.

Defaults are those of transformers' `GlmConfig` and `Glm4Config`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, Wiring, read_decoder
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.architecture.rotary import RotaryForm
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout, TensorName
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document
from mlcbuild.errors import StageError

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_NAMES = DecoderNames(after_attention_norm="post_self_attn_layernorm", after_feed_forward_norm="post_mlp_layernorm")
_LAYOUT = CheckpointLayout(
    gate_up=(TensorName("mlp.gate_up_proj", "ffn_up"),),
    after_attention_norm=TensorName("post_self_attn_layernorm", "post_attention_norm"),
    after_feed_forward_norm=TensorName("post_mlp_layernorm", "post_ffw_norm"),
)

_TURNED = 0.5  # the part of a head that is rotated
# What a ChatGLM's configuration calls the fields.
_CHATGLM = {
    "num_hidden_layers": "num_layers",
    "head_dim": "kv_channels",
    "intermediate_size": "ffn_hidden_size",
    "vocab_size": "padded_vocab_size",
    "max_position_embeddings": "seq_length",
    "num_key_value_heads": "multi_query_group_num",
    "rms_norm_eps": "layernorm_epsilon",
}


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


def _config_of_chatglm(file: GGUFFile) -> dict[str, object]:
    """A file with queries, keys and values in one tensor has those of a ChatGLM, and one with three those of a GLM."""
    is_fused = "blk.0.attn_qkv.weight" in file.tensors
    model_type, class_name = ("chatglm", "ChatGLMModel") if is_fused else ("glm", "GlmForCausalLM")
    document = decoder_document(
        file, architecture="chatglm", model_type=model_type, class_name=class_name, partial=True
    )
    if not is_fused:
        return document | {"attention_bias": "blk.0.attn_q.bias" in file.tensors}
    if document["partial_rotary_factor"] != _TURNED or "rope_scaling" in document:
        raise StageError(f"{file.path} has rotary embeddings that a ChatGLM does not have")
    return {name: value for name, value in document.items() if name not in _CHATGLM} | {
        **{own: document[name] for name, own in _CHATGLM.items()},
        "multi_query_attention": True,
        "add_qkv_bias": "blk.0.attn_qkv.bias" in file.tensors,
        "rope_ratio": file.number("chatglm.rope.freq_base", 10000.0) / 10000.0,
    }


FAMILY = Family(
    name="glm",
    models="GLM-4 and GLM-4-0414",
    model_types=("glm", "glm4"),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf_names={"glm": "chatglm", "glm4": "glm4"},
    gguf={
        "glm4": GGUFArchitecture(config=_config_of_gguf),
        "chatglm": GGUFArchitecture(config=_config_of_chatglm),
    },
)
