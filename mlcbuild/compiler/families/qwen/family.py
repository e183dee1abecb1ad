"""Qwen 1: a llama with biases on queries, keys and values.

Defaults are those of the `QWenConfig` that its checkpoints come with. Where a text is longer than `seq_length`, their
code changes the base of frequencies by the text's length (`use_dynamic_ntk`), and the length of queries
(`use_logn_attn`). With either, a context can be no longer than that here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, FeedForwardConfig, read_decoder
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout, TensorName
from mlcbuild.compiler.models.config import MAX_CONTEXT, ConfigReader
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document
from mlcbuild.compiler.models.shared_names import GPT_NAMES
from mlcbuild.compiler.models.sizes import ContextLimits
from mlcbuild.errors import StageError

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_DEFAULTS: dict[str, object] = {
    "vocab_size": 151936,
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "kv_channels": 128,
    "head_dim": 128,
    "intermediate_size": 22016,
    "layer_norm_epsilon": 1e-6,
    "max_position_embeddings": 8192,
    "seq_length": 8192,
}
_NAMES = replace(GPT_NAMES, gate_up="mlp.gate_up_proj")
_LAYOUT = CheckpointLayout(
    embedding=TensorName("transformer.wte", "token_embd"),
    layers="transformer.h",
    norm=TensorName("transformer.ln_f", "output_norm"),
    attention_norm=TensorName("ln_1", "attn_norm"),
    feed_forward_norm=TensorName("ln_2", "ffn_norm"),
    qkv=(TensorName("attn.c_attn", "attn_qkv"),),
    output=TensorName("attn.c_proj", "attn_output"),
    gate_up=(TensorName("mlp.w1", "ffn_up"), TensorName("mlp.w2", "ffn_gate")),
    down=TensorName("mlp.c_proj", "ffn_down"),
    ignored=(r".*rotary_emb\.inv_freq", r".*\.attn\.masked_bias"),
)
_CHAT_CONFIG = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "layer_norm_epsilon"),
    *("scale_attn_weights", "kv_channels", "rotary_emb_base", "intermediate_size", "context_window_size"),
    *("prefill_chunk_size", "tensor_parallel_shards", "max_batch_size", "head_dim"),
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    ignored = ("num_key_value_heads", "head_dim", "hidden_act", "rope_scaling", "rope_parameters", "rope_theta")
    reader = reader.without(*ignored, "partial_rotary_factor").with_defaults(**_DEFAULTS)
    reader = reader.with_names(head_dim="kv_channels", rope_theta="rotary_emb_base", partial_rotary_factor="rotary_pct")
    reader.refuse(scale_attn_weights=True, tie_word_embeddings=False)
    bias = not reader.boolean("no_bias", default=True)
    config = read_decoder(
        reader,
        qkv_bias=True,
        output_bias=bias,
        mlp_bias=bias,
        norm_field="layer_norm_epsilon",
        partial_rotation=1.0,
    )
    feed_forward = config.feed_forward
    assert isinstance(feed_forward, FeedForwardConfig)
    twice = feed_forward.intermediate_size
    if twice % 2:
        raise reader.fail("intermediate_size", f"is {twice}; it is that of gate and up together, an even number")
    config = replace(
        config, names=_NAMES, feed_forward=replace(feed_forward, intermediate_size=twice // 2, up_first=True)
    )
    own = {
        "scale_attn_weights": True,
        "kv_channels": config.attention.head_dim,
        "rotary_emb_base": config.attention.rotary.base,
        "intermediate_size": twice,
    }
    return decoder_model(reader, config, _LAYOUT, fields=_CHAT_CONFIG, limits=_limits(reader), own=own)


def _limits(reader: ConfigReader) -> ContextLimits:
    positions = reader.integer("max_position_embeddings", low=1, high=MAX_CONTEXT)
    if not any(reader.boolean(name, default=True) for name in ("use_dynamic_ntk", "use_logn_attn")):
        return ContextLimits(max_position_embeddings=positions)
    plain = min(positions, reader.integer("seq_length", low=1, high=MAX_CONTEXT))
    return ContextLimits(max_position_embeddings=plain, longest=plain)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    """Without the scaling of long texts (`use_dynamic_ntk`, `use_logn_attn`), which llama.cpp does not compute."""
    document = decoder_document(file, architecture="qwen", model_type="qwen", class_name="QWenLMHeadModel")
    if "rope_scaling" in document:
        raise StageError(f"{file.path} scales RoPE, which a Qwen 1 does not")
    return {name: value for name, value in document.items() if name not in ("rms_norm_eps", "rope_theta")} | {
        "layer_norm_epsilon": document["rms_norm_eps"],
        "rotary_emb_base": document["rope_theta"],
        "kv_channels": document["head_dim"],
        "no_bias": True,
        "use_dynamic_ntk": False,
        "use_logn_attn": False,
    }


FAMILY = Family(
    name="qwen",
    models="Qwen 1",
    model_types=("qwen",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={"qwen": GGUFArchitecture(config=_config_of_gguf)},
)
