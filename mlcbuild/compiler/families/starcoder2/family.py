"""StarCoder2: layer norms and biases, a feed-forward without a gate.

Defaults are those of transformers' `Starcoder2Config`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, NormConfig, NormKind, read_decoder, read_window
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout, TensorName
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document
from mlcbuild.compiler.models.headless import with_head_apart

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_NAMES = DecoderNames(qkv="self_attn.wqkv_pack", up="mlp.c_fc", down="mlp.c_proj")
_LAYOUT = CheckpointLayout(up=TensorName("mlp.c_fc", "ffn_up"), down=TensorName("mlp.c_proj", "ffn_down"))
_CHAT_CONFIG = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_act"),
    *("norm_epsilon", "intermediate_size", "rope_theta", "use_bias", "use_cache", "bos_token_id", "eos_token_id"),
    *("context_window_size", "prefill_chunk_size", "tensor_parallel_shards", "max_batch_size", "head_dim"),
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(
        max_position_embeddings=4096,
        num_key_value_heads=2,
        norm_epsilon=1e-5,
        hidden_act="gelu_pytorch_tanh",
        tie_word_embeddings=True,
    )
    bias = reader.boolean("use_bias", default=True)
    config = read_decoder(
        reader, qkv_bias=bias, output_bias=bias, mlp_bias=bias, gated=False, norm_field="norm_epsilon"
    )
    norm = NormConfig(epsilon=config.norm.epsilon, kind=NormKind.LAYER, bias=True)
    own: dict[str, object] = {"use_bias": bias, "use_cache": True}
    own |= {name: reader.value(name) for name in ("bos_token_id", "eos_token_id")}
    config = with_head_apart(reader, replace(config, norm=norm, names=_NAMES))
    return decoder_model(reader, config, _LAYOUT, fields=_CHAT_CONFIG, limits=read_window(reader), own=own)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    document = decoder_document(
        file,
        architecture="starcoder2",
        model_type="starcoder2",
        class_name="Starcoder2ForCausalLM",
        hidden_act="gelu_pytorch_tanh",
        layer_norm="norm_epsilon",
    )
    return document | {"use_bias": "blk.0.attn_q.bias" in file.tensors}


FAMILY = Family(
    name="starcoder2",
    models="StarCoder2",
    model_types=("starcoder2",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={"starcoder2": GGUFArchitecture(config=_config_of_gguf)},
)
