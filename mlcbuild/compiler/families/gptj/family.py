"""GPT-J: attention and feed-forward in parallel behind one norm, neighbours turned in a part of each head.

Defaults are those of transformers' `GPTJConfig`.
"""

from __future__ import annotations

from dataclasses import replace

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, NormConfig, NormKind, Wiring, read_decoder
from mlcbuild.compiler.models.architecture.rotary import RotaryForm
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout, TensorName
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel
from mlcbuild.compiler.models.shared_names import GPT_FIELDS, GPT_NAMES

_NAMES = replace(GPT_NAMES, output="attn.out_proj", up="mlp.fc_in", down="mlp.fc_out")
_LAYOUT = CheckpointLayout(
    embedding=TensorName("transformer.wte"),
    layers="transformer.h",
    norm=TensorName("transformer.ln_f"),
    head=TensorName("lm_head"),
    attention_norm=TensorName("ln_1"),
    qkv=(TensorName("attn.q_proj"), TensorName("attn.k_proj"), TensorName("attn.v_proj")),
    output=TensorName("attn.out_proj"),
    up=TensorName("mlp.fc_in"),
    down=TensorName("mlp.fc_out"),
    ignored=(r".*\.attn\.(masked_)?bias",),
)
_CHAT_CONFIG = (
    *("vocab_size", "n_embd", "n_layer", "n_head", "layer_norm_epsilon", "rotary_dim", "activation_function"),
    *("n_inner", "rope_scaling", "context_window_size", "prefill_chunk_size", "tensor_parallel_shards"),
    *("max_batch_size", "head_dim"),
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    ignored = (
        "num_key_value_heads",
        "head_dim",
        "rope_theta",
        "rope_scaling",
        "rope_parameters",
        "partial_rotary_factor",
    )
    reader = reader.without(*ignored)  # as transformers' model does
    reader = reader.with_names(**GPT_FIELDS).with_defaults(
        max_position_embeddings=2048, layer_norm_epsilon=1e-5, hidden_act="gelu_new"
    )
    hidden = reader.integer("hidden_size", low=1, high=1 << 18)
    heads = reader.integer("num_attention_heads", low=1, high=1 << 12)
    turned = reader.integer("rotary_dim", low=2, high=max(2, hidden // heads), default=64)
    config = read_decoder(
        reader,
        mlp_bias=True,
        gated=False,
        intermediate_default=4 * hidden,
        norm_field="layer_norm_epsilon",
        rotary_form=RotaryForm.NEIGHBOURS,
        partial_rotation=turned / (hidden // heads),
    )
    config = replace(
        config,
        norm=NormConfig(epsilon=config.norm.epsilon, kind=NormKind.LAYER, bias=True),
        wiring=Wiring.PARALLEL_ONE_NORM,
        head_bias=True,
        names=_NAMES,
    )
    if config.tie_word_embeddings:
        raise reader.fail("tie_word_embeddings", "is true; the head of a GPT-J has a bias, and is not the embedding")
    return decoder_model(reader, config, _LAYOUT, fields=_CHAT_CONFIG, own={"rotary_dim": turned})


FAMILY = Family(
    name="gptj",
    models="GPT-J",
    model_types=("gptj",),
    configuration=DecoderConfig,
    resolve=resolve,
)
