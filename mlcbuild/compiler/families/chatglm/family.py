"""ChatGLM 2 and 3, and GLM-4 as its first checkpoints have it: half of each head is turned, neighbours as pairs.

Defaults are those of the `ChatGLMConfig` that their checkpoints come with.
"""

from __future__ import annotations

from dataclasses import replace

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, read_decoder
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.architecture.rotary import RotaryForm
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout, TensorName
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel

_DEFAULTS: dict[str, object] = {
    "vocab_size": 65024,
    "hidden_size": 4096,
    "num_hidden_layers": 28,
    "num_attention_heads": 32,
    "head_dim": 128,
    "intermediate_size": 13696,
    "max_position_embeddings": 2048,
    "layernorm_epsilon": 1e-5,
}
_NAMES = DecoderNames(
    embedding="transformer.embedding",
    layers="transformer.encoder.layers",
    norm="transformer.encoder.final_layernorm",
    head="transformer.output_layer",
    qkv="self_attention.query_key_value",
    output="self_attention.dense",
    gate_up="mlp.dense_h_to_4h",
    down="mlp.dense_4h_to_h",
)
_LAYOUT = CheckpointLayout(
    embedding=TensorName("transformer.embedding.word_embeddings", "token_embd"),
    layers="transformer.encoder.layers",
    norm=TensorName("transformer.encoder.final_layernorm", "output_norm"),
    head=TensorName("transformer.output_layer", "output"),
    qkv=(TensorName("self_attention.query_key_value", "attn_qkv"),),
    output=TensorName("self_attention.dense", "attn_output"),
    gate_up=(TensorName("mlp.dense_h_to_4h", "ffn_up"),),
    down=TensorName("mlp.dense_4h_to_h", "ffn_down"),
    ignored=(r"transformer\.rotary_pos_emb\.inv_freq", r"transformer\.vision\..*"),
)
_FIELDS = {
    "vocab_size": "padded_vocab_size",
    "num_hidden_layers": "num_layers",
    "head_dim": "kv_channels",
    "intermediate_size": "ffn_hidden_size",
    "max_position_embeddings": "seq_length",
}
_CHAT_CONFIG = (
    *("hidden_size", "num_layers", "kv_channels", "num_attention_heads", "ffn_hidden_size", "layernorm_epsilon"),
    *("post_layer_norm", "rmsnorm", "add_bias_linear", "add_qkv_bias", "apply_query_key_layer_scaling"),
    *("multi_query_attention", "multi_query_group_num", "vocab_size", "context_window_size", "prefill_chunk_size"),
    *("tensor_parallel_shards", "head_dim", "max_batch_size"),
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    ignored = ("num_key_value_heads", "hidden_act", "rope_scaling", "rope_parameters", "rope_theta")
    reader = reader.without(*ignored, "partial_rotary_factor").with_defaults(**_DEFAULTS).with_names(**_FIELDS)
    reader.refuse(
        rmsnorm=True,
        post_layer_norm=True,
        apply_residual_connection_post_layernorm=False,
        original_rope=True,
        pre_seq_len=None,
    )
    bias = reader.boolean("add_bias_linear", default=False)
    qkv_bias = bias or reader.boolean("add_qkv_bias", default=False)
    heads = reader.integer("num_attention_heads", low=1, high=1 << 12)
    shared = reader.boolean("multi_query_attention", default=False)
    groups = reader.integer("multi_query_group_num", low=1, high=heads, default=1) if shared else heads
    ratio = reader.number("rope_ratio", low=1e-6, high=1e6, default=1.0)
    config = read_decoder(
        reader.with_defaults(num_key_value_heads=groups, rope_theta=10000.0 * ratio),
        qkv_bias=qkv_bias,
        output_bias=bias,
        mlp_bias=bias,
        norm_field="layernorm_epsilon",
        rotary_form=RotaryForm.NEIGHBOURS,
        partial_rotation=0.5,
    )
    own = {
        "kv_channels": config.attention.head_dim,
        "layernorm_epsilon": config.norm.epsilon,
        "post_layer_norm": True,
        "rmsnorm": True,
        "add_bias_linear": bias,
        "add_qkv_bias": qkv_bias,
        "apply_query_key_layer_scaling": reader.boolean("apply_query_key_layer_scaling", default=True),
        "multi_query_attention": shared,
        "multi_query_group_num": groups,
        "rope_ratio": ratio,
    }
    # Without groups, a checkpoint has the query, key and value of each head together.
    layout = replace(_LAYOUT, grouped_qkv=not shared)
    return decoder_model(reader, replace(config, names=_NAMES), layout, fields=_CHAT_CONFIG, own=own)


FAMILY = Family(
    name="chatglm",
    models="ChatGLM 2 and 3, GLM-4 with ChatGLM's names",
    model_types=("chatglm",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf_names={"chatglm": "chatglm"},
)
