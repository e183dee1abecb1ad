"""MiniCPM 1 and 2, and MiniCPM-MoE: a llama whose embedding, residuals and logits are scaled.

Defaults are those of the `MiniCPMConfig` that its checkpoints come with.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, read_decoder
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.architecture.mixture import MixtureConfig, MixtureNames, RouterConfig
from mlcbuild.compiler.models.checkpoints.layout import IGNORED_WITH_LONGROPE, CheckpointLayout, ExpertNames
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document
from mlcbuild.compiler.models.gguf.numbers import number_below
from mlcbuild.compiler.models.gguf.scales import granite_metadata
from mlcbuild.errors import StageError

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_FIRST = {"scale_emb": 12.0, "scale_depth": 1.4, "dim_model_base": 256.0}  # of MiniCPM 2B
_NAMES = DecoderNames(qkv="self_attn.wqkv_pack")
_EXPERTS = MixtureNames(router="mlp.gate", gate_up="mlp.e1_e3", down="mlp.e2")
_LAYOUT = CheckpointLayout(
    experts=ExpertNames(gate="w1", up="w3", down="w2"), gguf_interleaves=True, ignored=IGNORED_WITH_LONGROPE
)
_CHAT_CONFIG = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_act"),
    *("rms_norm_eps", "intermediate_size", "scale_emb", "scale_depth", "dim_model_base", "use_cache", "bos_token_id"),
    *("eos_token_id", "tie_word_embeddings", "rope_theta", "context_window_size", "prefill_chunk_size"),
    *("tensor_parallel_shards", "head_dim", "max_batch_size", "num_experts_per_tok", "num_experts"),
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(max_position_embeddings=2048, tie_word_embeddings=True)
    reader.refuse(attention_bias=False)
    config = read_decoder(reader)
    experts = reader.integer("num_experts", low=0, high=1 << 12, default=0)
    chosen = reader.integer("num_experts_per_tok", low=1, high=min(experts, 64)) if experts else 0
    if experts:
        mixture = MixtureConfig(
            experts=experts,
            experts_per_token=chosen,
            intermediate_size=config.feed_forward.intermediate_size,
            activation=config.feed_forward.activation,
            router=RouterConfig(normalized=True),
            names=_EXPERTS,
        )
        config = replace(config, feed_forward=mixture)
    scale = reader.number("scale_emb", low=1e-6, high=1e6, default=1.0)
    depth = reader.number("scale_depth", low=1e-6, high=1e6, default=1.0)
    base = reader.number("dim_model_base", low=1.0, high=1e6, default=1.0)
    config = replace(
        config,
        names=_NAMES,
        embedding_scale=scale,
        residual_scale=depth / config.num_layers**0.5,
        logit_scale=base / config.hidden_size,
    )
    own: dict[str, object] = {"scale_emb": scale, "scale_depth": depth, "dim_model_base": base, "use_cache": True}
    own |= {name: reader.value(name) for name in ("bos_token_id", "eos_token_id")}
    own |= {"num_experts_per_tok": chosen, "num_experts": experts}
    return decoder_model(reader, config, _LAYOUT, fields=_CHAT_CONFIG, own=own)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    """Logits are divided by `logit_scale`, as a Granite's. Older files say nothing of scales: they hold models that
    have those of the first one, whose logits llama.cpp multiplies by what it should divide them by."""
    keys = ("embedding_scale", "residual_scale", "logit_scale")
    document = decoder_document(
        file, architecture="minicpm", model_type="minicpm", class_name="MiniCPMForCausalLM", also_read=keys
    )
    layers, hidden = file.integer("minicpm.block_count"), file.integer("minicpm.embedding_length")
    if layers < 1:
        raise StageError(f'{file.path}: the metadata "minicpm.block_count" is {layers}')
    first = (_FIRST["scale_emb"], _FIRST["scale_depth"] / layers**0.5, hidden / _FIRST["dim_model_base"])
    embedding, residual, divisor = (
        number_below(file, "minicpm", key, default) for key, default in zip(keys, first, strict=True)
    )
    return document | {
        "scale_emb": embedding,
        "scale_depth": residual * layers**0.5,
        "dim_model_base": hidden / divisor,
    }


FAMILY = Family(
    name="minicpm",
    models="MiniCPM 1B and 2B, with experts too",
    model_types=("minicpm",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={"minicpm": GGUFArchitecture(config=_config_of_gguf, metadata=partial(granite_metadata, attention=False))},
)
