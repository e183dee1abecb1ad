"""EXAONE 3, 3.5 and Deep: a llama with GPT-2's names.

Defaults are those of transformers' `ExaoneConfig`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, read_decoder
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout, TensorName
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_DEFAULTS: dict[str, object] = {
    "vocab_size": 102400,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
}
_LAYOUT = CheckpointLayout(
    embedding=TensorName("transformer.wte", "token_embd"),
    layers="transformer.h",
    norm=TensorName("transformer.ln_f", "output_norm"),
    attention_norm=TensorName("ln_1", "attn_norm"),
    feed_forward_norm=TensorName("ln_2", "ffn_norm"),
    qkv=(
        TensorName("attn.attention.q_proj", "attn_q"),
        TensorName("attn.attention.k_proj", "attn_k"),
        TensorName("attn.attention.v_proj", "attn_v"),
    ),
    output=TensorName("attn.attention.out_proj", "attn_output"),
    gate_up=(TensorName("mlp.c_fc_0", "ffn_gate"), TensorName("mlp.c_fc_1", "ffn_up")),
    down=TensorName("mlp.c_proj", "ffn_down"),
    ignored=(r".*\.rotary(_emb)?\.inv_freq", r"rope_freqs\.weight"),
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(**_DEFAULTS).with_other_names(
        num_hidden_layers="num_layers", rms_norm_eps="layer_norm_epsilon", hidden_act="activation_function"
    )
    attention_bias, mlp_bias = (reader.boolean(name, default=False) for name in ("attention_bias", "mlp_bias"))
    config = read_decoder(reader, qkv_bias=attention_bias, output_bias=attention_bias, mlp_bias=mlp_bias)
    return decoder_model(reader, config, _LAYOUT)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    document = decoder_document(file, architecture="exaone", model_type="exaone", class_name="ExaoneForCausalLM")
    return document | {"attention_bias": "blk.0.attn_q.bias" in file.tensors}


FAMILY = Family(
    name="exaone",
    models="EXAONE 3, 3.5 and Deep",
    model_types=("exaone",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={"exaone": GGUFArchitecture(config=_config_of_gguf)},
)
