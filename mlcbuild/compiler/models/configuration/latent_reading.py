"""The fields of a `config.json` that tell of multi-head latent attention, by the names that DeepSeek's models have."""

from __future__ import annotations

import math
from dataclasses import replace

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, read_decoder, read_limits
from mlcbuild.compiler.models.architecture.latent import LatentConfig
from mlcbuild.compiler.models.architecture.rotary import RotaryForm, read_rotary
from mlcbuild.compiler.models.config import ConfigReader


def read_latent_decoder(reader: ConfigReader, *, form: RotaryForm) -> DecoderConfig:
    """A decoder (`read_decoder`) with latent attention. Every head has keys of its own, so `num_key_value_heads` can
    only be `num_attention_heads`. `head_dim` is not read: transformers sets it. Raises StageError as that does."""
    own = reader.without("head_dim", "num_key_value_heads")
    bias = reader.boolean("attention_bias", default=False)
    plain = reader.integer("qk_nope_head_dim", low=1, high=1 << 12)
    rotated = reader.integer("qk_rope_head_dim", low=2, high=1 << 12)
    if rotated % 2:
        raise reader.fail("qk_rope_head_dim", f"is {rotated}; rotary embeddings need an even number")
    # Neither follows from hidden_size or a model's own default.
    own = own.with_defaults(head_dim=plain + plain % 2, num_key_value_heads=None)
    config = read_decoder(own, qkv_bias=bias, output_bias=bias, rotary_form=RotaryForm.NONE)
    heads = config.attention.query_heads
    given = reader.integer("num_key_value_heads", low=1, high=1 << 12, default=heads)
    if given != heads:
        raise reader.fail("num_key_value_heads", f'is {given}; here it has to be "num_attention_heads", {heads}')
    query_rank = reader.integer("q_lora_rank", low=1, high=1 << 18) if reader.has("q_lora_rank") else 0
    latent = LatentConfig(
        rank=reader.integer("kv_lora_rank", low=1, high=1 << 18),
        query_rank=query_rank,
        plain_dim=plain,
        rotated_dim=rotated,
        value_dim=reader.integer("v_head_dim", low=1, high=1 << 12),
    )
    rotary = read_rotary(
        reader,
        max_position_embeddings=read_limits(reader).max_position_embeddings,
        head_dim=rotated,
        form=form,
    ).in_model(rotated)
    attention = replace(
        config.attention,
        head_dim=plain + rotated,
        softmax_scale=_magnitude(reader) ** 2 / math.sqrt(plain + rotated),
        rotary=rotary,
        latent=latent,
    )
    return replace(config, attention=attention)


def latent_fields(config: DecoderConfig) -> dict[str, object]:
    """The same fields, for a `model_config`."""
    latent = config.attention.latent
    assert latent is not None
    return {
        "num_key_value_heads": config.attention.query_heads,
        "kv_lora_rank": latent.rank,
        "q_lora_rank": latent.query_rank or None,
        "qk_rope_head_dim": latent.rotated_dim,
        "v_head_dim": latent.value_dim,
        "qk_nope_head_dim": latent.plain_dim,
    }


def _magnitude(reader: ConfigReader) -> float:
    """What queries and keys are multiplied by each, for texts longer than those of the first training: transformers
    takes it for every kind of scaling that has an `mscale_all_dim`."""
    for name in ("rope_scaling", "rope_parameters"):
        if reader.document.get(name) in (None, {}):
            continue
        inner = reader.table(name)
        kind = inner.string("rope_type" if inner.has("rope_type") else "type", default="default")
        scale = inner.number("mscale_all_dim", low=0.0, high=1e6, default=0.0)
        if kind == "default" or not scale:
            return 1.0
        factor = inner.number("factor", low=1.0, high=1e6)
        return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0
    return 1.0
