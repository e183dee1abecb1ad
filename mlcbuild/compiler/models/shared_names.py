"""Names that several families share: of GPT-2's parameters and configuration fields, and of Phi's parameters."""

from __future__ import annotations

from collections.abc import Mapping

from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames

GPT_NAMES = DecoderNames(
    embedding="transformer.wte",
    positions="transformer.wpe",
    layers="transformer.h",
    norm="transformer.ln_f",
    attention_norm="ln_1",
    feed_forward_norm="ln_2",
    qkv="attn.c_attn",
    output="attn.c_proj",
    up="mlp.c_fc",
    down="mlp.c_proj",
)
"""MLC-LLM's names of parameters of GPT-2."""

GPT_FIELDS: Mapping[str, str] = {
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
    "hidden_act": "activation_function",
}
"""What configurations of GPT-2 and its like call fields (`ConfigReader.with_names`)."""

PHI_NAMES = DecoderNames(
    embedding="transformer.embd",
    layers="transformer.h",
    norm="lm_head.ln",
    head="lm_head.linear",
    attention_norm="ln",
    qkv="mixer.Wqkv",
    output="mixer.out_proj",
    query_norm="mixer.q_layernorm",
    key_norm="mixer.k_layernorm",
    up="mlp.fc1",
    down="mlp.fc2",
)
"""MLC-LLM's names of parameters of Phi, and those of its first checkpoints."""
