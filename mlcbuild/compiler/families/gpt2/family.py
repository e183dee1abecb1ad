"""GPT-2: learned positions, matrices of layers stored column first.

Defaults are those of transformers' `GPT2Config`.
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
    embedding=TensorName("wte", "token_embd"),
    positions=TensorName("wpe", "position_embd"),
    layers="h",
    norm=TensorName("ln_f", "output_norm"),
    attention_norm=TensorName("ln_1", "attn_norm"),
    feed_forward_norm=TensorName("ln_2", "ffn_norm"),
    qkv=(TensorName("attn.c_attn", "attn_qkv"),),
    output=TensorName("attn.c_proj", "attn_output"),
    up=TensorName("mlp.c_fc", "ffn_up"),
    down=TensorName("mlp.c_proj", "ffn_down"),
    transposed=True,
    other_names=(("", "transformer."),),
    ignored=(r".*\.attn\.(masked_)?bias",),
)
_CHAT_CONFIG = (
    *("vocab_size", "n_embd", "n_layer", "n_head", "layer_norm_epsilon", "n_inner", "context_window_size"),
    *("prefill_chunk_size", "scale_attn_by_inverse_layer_idx", "tensor_parallel_shards", "head_dim", "max_batch_size"),
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.without("num_key_value_heads", "head_dim")
    reader = reader.with_names(**GPT_FIELDS).with_defaults(
        max_position_embeddings=1024, layer_norm_epsilon=1e-5, hidden_act="gelu_new", tie_word_embeddings=True
    )
    reader.refuse(scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    config = read_decoder(
        reader,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        gated=False,
        intermediate_default=4 * reader.integer("hidden_size", low=1, high=1 << 18),
        norm_field="layer_norm_epsilon",
        rotary_form=RotaryForm.NONE,
    )
    config = replace(
        config,
        norm=NormConfig(epsilon=config.norm.epsilon, kind=NormKind.LAYER, bias=True),
        learned_positions=reader.integer("max_position_embeddings", low=1, high=1 << 22),
        names=GPT_NAMES,
    )
    config = with_head_apart(reader, config)
    own = {"scale_attn_by_inverse_layer_idx": False}
    return decoder_model(reader, config, _LAYOUT, fields=_CHAT_CONFIG, own=own)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    document = decoder_document(
        file,
        architecture="gpt2",
        model_type="gpt2",
        class_name="GPT2LMHeadModel",
        hidden_act="gelu_new",
        layer_norm="layer_norm_epsilon",
    )
    return {GPT_FIELDS.get(name, name): value for name, value in document.items()}


FAMILY = Family(
    name="gpt2",
    models="GPT-2, DistilGPT-2",
    model_types=("gpt2",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={"gpt2": GGUFArchitecture(config=_config_of_gguf)},
)
