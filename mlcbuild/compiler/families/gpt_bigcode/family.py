"""GPT BigCode (StarCoder, SantaCoder): learned positions, and one key-value head for all queries.

Defaults are those of transformers' `GPTBigCodeConfig`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, NormConfig, NormKind, read_decoder
from mlcbuild.compiler.models.architecture.rotary import RotaryForm
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout, TensorName
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document
from mlcbuild.compiler.models.headless import with_head_apart
from mlcbuild.compiler.models.shared_names import GPT_FIELDS, GPT_NAMES

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_LAYOUT = CheckpointLayout(
    embedding=TensorName("transformer.wte", "token_embd"),
    positions=TensorName("transformer.wpe", "position_embd"),
    layers="transformer.h",
    norm=TensorName("transformer.ln_f", "output_norm"),
    attention_norm=TensorName("ln_1", "attn_norm"),
    feed_forward_norm=TensorName("ln_2", "ffn_norm"),
    qkv=(TensorName("attn.c_attn", "attn_qkv"),),
    output=TensorName("attn.c_proj", "attn_output"),
    up=TensorName("mlp.c_fc", "ffn_up"),
    down=TensorName("mlp.c_proj", "ffn_down"),
    ignored=(r".*\.attn\.(masked_)?bias",),
)
_CHAT_CONFIG = (
    *("n_embd", "n_inner", "n_head", "n_layer", "n_positions", "layer_norm_epsilon", "vocab_size"),
    *("context_window_size", "prefill_chunk_size", "tensor_parallel_shards", "max_batch_size"),
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.without("num_key_value_heads", "head_dim")
    reader = reader.with_names(**GPT_FIELDS).with_defaults(
        max_position_embeddings=1024,
        layer_norm_epsilon=1e-5,
        hidden_act="gelu_pytorch_tanh",
        tie_word_embeddings=True,
    )
    reader.refuse(scale_attn_weights=True, add_cross_attention=False)
    many = not reader.boolean("multi_query", default=True)
    heads = reader.integer("num_attention_heads", low=1, high=1 << 12)
    config = read_decoder(
        reader.with_defaults(num_key_value_heads=heads if many else 1),
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        gated=False,
        intermediate_default=4 * reader.integer("hidden_size", low=1, high=1 << 18),
        norm_field="layer_norm_epsilon",
        rotary_form=RotaryForm.NONE,
    )
    positions = reader.integer("max_position_embeddings", low=1, high=1 << 22)
    config = replace(
        config,
        norm=NormConfig(epsilon=config.norm.epsilon, kind=NormKind.LAYER, bias=True),
        learned_positions=positions,
        names=GPT_NAMES,
    )
    config = with_head_apart(reader, config)
    layout = replace(_LAYOUT, grouped_qkv=many)
    return decoder_model(reader, config, layout, fields=_CHAT_CONFIG, own={"n_positions": positions})


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    document = decoder_document(
        file,
        architecture="starcoder",
        model_type="gpt_bigcode",
        class_name="GPTBigCodeForCausalLM",
        hidden_act="gelu_pytorch_tanh",
        layer_norm="layer_norm_epsilon",
    )
    document["multi_query"] = document["num_key_value_heads"] == 1
    return {GPT_FIELDS.get(name, name): value for name, value in document.items()}


FAMILY = Family(
    name="gpt_bigcode",
    models="StarCoder, SantaCoder, Granite Code 20B and 34B",
    model_types=("gpt_bigcode",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={"starcoder": GGUFArchitecture(config=_config_of_gguf)},
)
