"""GPT-NeoX and Pythia: attention and feed-forward in parallel, each behind a norm of its own.

Defaults are those of transformers' `GPTNeoXConfig`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, NormConfig, NormKind, Wiring, read_decoder
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout, TensorName
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document
from mlcbuild.compiler.models.gguf.writing import decoder_metadata

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_NAMES = DecoderNames(
    embedding="gpt_neox.embed_in",
    layers="gpt_neox.layers",
    norm="gpt_neox.final_layer_norm",
    head="embed_out",
    qkv="attention.query_key_value",
    output="attention.dense",
    up="mlp.dense_h_to_4h",
    down="mlp.dense_4h_to_h",
)
_LAYOUT = CheckpointLayout(
    embedding=TensorName("gpt_neox.embed_in", "token_embd"),
    layers="gpt_neox.layers",
    norm=TensorName("gpt_neox.final_layer_norm", "output_norm"),
    head=TensorName("embed_out", "output"),
    qkv=(TensorName("attention.query_key_value", "attn_qkv"),),
    output=TensorName("attention.dense", "attn_output"),
    up=TensorName("mlp.dense_h_to_4h", "ffn_up"),
    down=TensorName("mlp.dense_4h_to_h", "ffn_down"),
    grouped_qkv=True,
    other_names=(("embed_out", "lm_head"),),  # as transformers 5 calls it
    ignored=(r".*\.attention\.(rotary_emb\.inv_freq|masked_bias|bias)",),
)
_GGUF_PARALLEL = "use_parallel_residual"
_CHAT_CONFIG = (
    *("use_parallel_residual", "hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers"),
    *("layer_norm_eps", "vocab_size", "rotary_pct", "position_embedding_base", "context_window_size", "head_dim"),
    *("prefill_chunk_size", "tensor_parallel_shards", "ffn_out_dtype", "max_batch_size"),
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    hidden = reader.integer("hidden_size", low=1, high=1 << 18)
    reader.refuse(head_dim=hidden // reader.integer("num_attention_heads", low=1, high=1 << 12))
    reader = reader.without("num_key_value_heads", "rope_theta", "partial_rotary_factor")
    reader = reader.with_defaults(max_position_embeddings=2048, layer_norm_eps=1e-5, hidden_act="gelu")
    reader = reader.with_names(rope_theta="rotary_emb_base")
    part = reader.number("rotary_pct", low=0.0, high=1.0, default=0.25)
    bias = reader.boolean("attention_bias", default=True)
    config = read_decoder(
        reader,
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=True,
        gated=False,
        norm_field="layer_norm_eps",
        partial_rotation=part,
    )
    parallel = reader.boolean("use_parallel_residual", default=True)
    config = replace(
        config,
        norm=NormConfig(epsilon=config.norm.epsilon, kind=NormKind.LAYER, bias=True),
        wiring=Wiring.PARALLEL if parallel else Wiring.NORM_BEFORE,
        names=_NAMES,
    )
    own = {"use_parallel_residual": parallel, "rotary_pct": part, "ffn_out_dtype": "float32"}
    return decoder_model(reader, config, _LAYOUT, fields=_CHAT_CONFIG, own=own)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    parallel = bool(file.metadata.get(f"gptneox.{_GGUF_PARALLEL}", True))
    document = decoder_document(
        file,
        architecture="gptneox",
        model_type="gpt_neox",
        class_name="GPTNeoXForCausalLM",
        hidden_act="gelu",
        layer_norm="layer_norm_eps",
        partial=True,
        also_read=(_GGUF_PARALLEL,),
    )
    names = {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"}
    document = {names.get(name, name): value for name, value in document.items()}
    biases = {"attention_bias": "blk.0.attn_qkv.bias" in file.tensors}
    return document | biases | {"use_parallel_residual": parallel}


FAMILY = Family(
    name="gpt_neox",
    models="GPT-NeoX, Pythia, RedPajama-INCITE",
    model_types=("gpt_neox",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={
        "gptneox": GGUFArchitecture(config=_config_of_gguf, metadata=partial(decoder_metadata, keys=(_GGUF_PARALLEL,)))
    },
)
