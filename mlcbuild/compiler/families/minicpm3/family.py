"""MiniCPM 3: latent attention, with the embedding, residuals and logits of MiniCPM."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig
from mlcbuild.compiler.models.architecture.rotary import RotaryForm
from mlcbuild.compiler.models.chat_config import LLAMA
from mlcbuild.compiler.models.checkpoints.layout import IGNORED_WITH_LONGROPE, CheckpointLayout
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.configuration.latent_reading import latent_fields, read_latent_decoder
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document, head_size
from mlcbuild.compiler.models.gguf.writing import decoder_metadata
from mlcbuild.compiler.models.gguf.written import GGUFMetadata, Value, WrittenModel

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_SCALES = {"scale_emb": 12.0, "scale_depth": 1.4, "dim_model_base": 256.0}
_SIZES = {"kv_lora_rank": 256, "q_lora_rank": 768, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, **_SCALES}
_LAYOUT = CheckpointLayout(gguf_latent_up="attn_kv_b", ignored=IGNORED_WITH_LONGROPE)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(
        **_SIZES, max_position_embeddings=32768, num_key_value_heads=40, rms_norm_eps=1e-5, tie_word_embeddings=True
    )
    reader.refuse(mlp_bias=False, logits_scaling=None)
    hidden = reader.integer("hidden_size", low=1, high=1 << 18)
    heads = reader.integer("num_attention_heads", low=1, high=1 << 12)
    if not reader.has("v_head_dim"):
        if hidden % heads:
            raise reader.fail("v_head_dim", 'is missing; without it "num_attention_heads" has to divide "hidden_size"')
        reader = reader.without("v_head_dim").with_defaults(v_head_dim=hidden // heads)
    config = read_latent_decoder(reader, form=RotaryForm.HALVES)
    scale = reader.number("scale_emb", low=1e-6, high=1e6)
    depth = reader.number("scale_depth", low=1e-6, high=1e6, default=config.num_layers**0.5)
    base = reader.number("dim_model_base", low=1.0, high=1e6, default=float(hidden))
    config = replace(
        config,
        embedding_scale=scale,
        residual_scale=depth / config.num_layers**0.5,
        logit_scale=base / hidden,
    )
    own = {"scale_emb": scale, "scale_depth": depth, "dim_model_base": base, **latent_fields(config)}
    return decoder_model(reader, config, _LAYOUT, fields=LLAMA, own=own)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    """As llama.cpp reads it. Files say nothing of scales: llama.cpp has those of MiniCPM 3 4B."""
    ranks = ("attention.q_lora_rank", "attention.kv_lora_rank")
    document = decoder_document(
        file,
        architecture="minicpm3",
        model_type="minicpm3",
        class_name="MiniCPM3ForCausalLM",
        also_read=(*ranks, "attention.value_length"),
        partial=True,
    )
    for name in ("head_dim", "partial_rotary_factor"):
        del document[name]
    rotated = file.integer("minicpm3.rope.dimension_count")
    hidden, heads = (file.integer(f"minicpm3.{name}") for name in ("embedding_length", "attention.head_count"))
    own = {
        "q_lora_rank": file.integer(f"minicpm3.{ranks[0]}"),
        "kv_lora_rank": file.integer(f"minicpm3.{ranks[1]}"),
        "qk_rope_head_dim": rotated,
        "qk_nope_head_dim": head_size(file, "minicpm3") - rotated,
        "v_head_dim": file.integer("minicpm3.attention.value_length", hidden // heads),
    }
    return document | own | _SCALES


def _metadata(model: WrittenModel) -> GGUFMetadata:
    latent = model.configuration.attention.latent
    ranks: dict[str, Value] = {
        "attention.q_lora_rank": latent.query_rank,
        "attention.kv_lora_rank": latent.rank,
        "attention.value_length": latent.value_dim,
    }
    return decoder_metadata(model, own=ranks)


FAMILY = Family(
    name="minicpm3",
    models="MiniCPM 3 4B",
    model_types=("minicpm3",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={"minicpm3": GGUFArchitecture(config=_config_of_gguf, metadata=_metadata)},
)
