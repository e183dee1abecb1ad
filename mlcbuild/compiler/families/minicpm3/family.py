"""MiniCPM 3: latent attention, with the embedding, residuals and logits of MiniCPM."""

from __future__ import annotations

from dataclasses import replace

from mlcbuild.compiler.models.chat_config import LLAMA
from mlcbuild.compiler.models.checkpoint_layout import CheckpointLayout
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder import DecoderConfig
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel
from mlcbuild.compiler.models.latent_reading import latent_fields, read_latent_decoder
from mlcbuild.compiler.models.rotary import RotaryForm

_SIZES = {
    "kv_lora_rank": 256,
    "q_lora_rank": 768,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32,
    "scale_emb": 12.0,
    "scale_depth": 1.4,
    "dim_model_base": 256.0,
}


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
    return decoder_model(reader, config, CheckpointLayout(), fields=LLAMA, own=own)


FAMILY = Family(
    name="minicpm3",
    models="MiniCPM 3 4B",
    model_types=("minicpm3",),
    configuration=DecoderConfig,
    resolve=resolve,
)
