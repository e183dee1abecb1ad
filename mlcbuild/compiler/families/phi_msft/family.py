"""Phi 1, 1.5 and 2 as they were first published: `phi-msft` has the names of MLC-LLM's Phi, and `mixformer-sequential`
numbers its parts.

Defaults are those of the `PhiConfig` and the `MixFormerSequentialConfig` that these checkpoints come with.
"""

from __future__ import annotations

from dataclasses import replace

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, NormConfig, NormKind, Wiring, read_decoder
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout, TensorName
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel
from mlcbuild.compiler.models.shared_names import GPT_FIELDS, PHI_NAMES

_LAYOUT = CheckpointLayout(
    embedding=TensorName("transformer.embd.wte"),
    layers="transformer.h",
    norm=TensorName("lm_head.ln"),
    head=TensorName("lm_head.linear"),
    attention_norm=TensorName("ln"),
    qkv=(TensorName("mixer.Wqkv"),),
    output=TensorName("mixer.out_proj"),
    up=TensorName("mlp.fc1"),
    down=TensorName("mlp.fc2"),
    ignored=(r".*\.rotary_emb\.(inv_freq|scale)",),
)
_FIELDS = {**GPT_FIELDS, "num_key_value_heads": "n_head_kv", "layer_norm_eps": "layer_norm_epsilon"}
_IGNORED = ("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor", "head_dim")
_DEFAULTS: dict[str, object] = {
    "vocab_size": 50304,
    "hidden_size": 1024,
    "num_hidden_layers": 20,
    "num_attention_heads": 16,
    "max_position_embeddings": 2048,
    "layer_norm_eps": 1e-5,
    "hidden_act": "gelu_new",
}
_ARCHITECTURE = {"block_cls": "parallel", "mixer": {}, "mlp": {"mlp_cls": "mlp"}}
_CHAT_CONFIG = (
    *("model_type", "vocab_size", "n_positions", "n_embd", "n_layer", "n_inner", "n_head", "rotary_dim"),
    *("position_embedding_base", "layer_norm_epsilon", "context_window_size", "prefill_chunk_size", "n_head_kv"),
    *("head_dim", "tensor_parallel_shards"),
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.without(*_IGNORED).with_defaults(**_DEFAULTS).with_names(**_FIELDS)
    reader.refuse(architecture=_ARCHITECTURE, embd_layer="default", tie_word_embeddings=False)
    hidden = reader.integer("hidden_size", low=1, high=1 << 18)
    width = max(1, hidden // reader.integer("num_attention_heads", low=1, high=1 << 12))
    turned = reader.integer("rotary_dim", low=2, high=max(2, width), default=32)
    config = read_decoder(
        reader,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        gated=False,
        intermediate_default=4 * hidden,
        norm_field="layer_norm_eps",
        partial_rotation=turned / width,
    )
    # Their code makes the vocabulary a multiple of this.
    multiple = reader.integer("pad_vocab_size_multiple", low=1, high=1 << 16, default=64)
    config = replace(
        config,
        vocab_size=-(-config.vocab_size // multiple) * multiple,
        norm=NormConfig(epsilon=config.norm.epsilon, kind=NormKind.LAYER, bias=True),
        wiring=Wiring.PARALLEL_ONE_NORM,
        head_bias=True,
        names=PHI_NAMES,
    )
    own = {
        "model_type": reader.string("model_type"),
        "n_positions": reader.integer("max_position_embeddings", low=1, high=1 << 27),
        "n_head_kv": config.attention.key_value_heads,
        "rotary_dim": turned,
    }
    return decoder_model(reader, config, _layout(reader, config.num_layers), fields=_CHAT_CONFIG, own=own)


def _layout(reader: ConfigReader, layers: int) -> CheckpointLayout:
    if reader.string("model_type") == "phi-msft":
        return _LAYOUT
    behind = f"layers.{layers + 1}"
    return replace(
        _LAYOUT,
        embedding=TensorName("layers.0.wte"),
        layers="layers",
        first_layer=1,
        norm=TensorName(f"{behind}.ln"),
        head=TensorName(f"{behind}.linear"),
    )


FAMILY = Family(
    name="phi_msft",
    models="Phi 1, 1.5 and 2 as first published",
    model_types=("phi-msft", "mixformer-sequential"),
    configuration=DecoderConfig,
    resolve=resolve,
)
