"""What the parts of a decoder are called by MLC-LLM: the names of parameters in its packages.

Checkpoints have names of their own (`checkpoints.layout`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderNames:
    """Modules by the path that MLC-LLM gives them; those from `attention_norm` on are below a layer. The values here
    are those of its llama. A part that a decoder does not have has no use for its name.

    Queries, keys and values are one product, called `qkv`, or three of the names in `apart`. Without `gate`, gate and
    up are one product, called `gate_up`.
    """

    embedding: str = "model.embed_tokens"
    positions: str = "model.embed_positions"
    layers: str = "model.layers"
    norm: str = "model.norm"
    head: str = "lm_head"
    attention_norm: str = "input_layernorm"
    after_attention_norm: str = "post_attention_layernorm"
    feed_forward_norm: str = "post_attention_layernorm"
    after_feed_forward_norm: str = "post_feedforward_layernorm"
    qkv: str = "self_attn.qkv_proj"
    apart: tuple[str, ...] = ()
    query_norm: str = "self_attn.q_norm"
    key_norm: str = "self_attn.k_norm"
    sinks: str = "self_attn.sinks"
    output: str = "self_attn.o_proj"
    gate_up: str = "mlp.gate_up_proj"
    gate: str = ""
    up: str = "mlp.up_proj"
    down: str = "mlp.down_proj"
    recurrence: str = "linear_attn"
