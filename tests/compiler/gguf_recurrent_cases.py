"""Small GGUF files of models with recurrent layers, alone or beside attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.compiler.gguf_case import (
    EXPERTS,
    GGUFCase,
    case_of,
)
from tests.compiler.tiny_models import Array

_HYBRID: Mapping[str, Any] = {
    "num_hidden_layers": 4,
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
_HYBRID_METADATA: Mapping[str, Any] = {
    "full_attention_interval": 4,
    "rope.dimension_count": 8,
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 96,
    "ssm.state_size": 16,
    "ssm.time_step_rank": 6,
    "ssm.group_count": 2,
}
_SECTIONS = {"rope.dimension_sections": [2, 1, 1, 0]}
_HYBRID_EXPERTS = {
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 64,
}
_HYBRID_EXPERTS_METADATA = {
    **EXPERTS,
    "expert_feed_forward_length": 32,
    "expert_shared_feed_forward_length": 64,
}


_GRANITE_4: Mapping[str, Any] = {
    "attention_multiplier": 0.2,
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.5,
    "logits_scaling": 2.0,
    "layer_types": ["mamba", "attention", "mamba"],
    "mamba_n_heads": 8,
    "mamba_d_state": 24,
}
_GRANITE_4_METADATA: Mapping[str, Any] = {
    "attention.scale": 0.2,
    "embedding_scale": 3.0,
    "residual_scale": 0.5,
    "logit_scale": 2.0,
    "attention.head_count_kv": [0, 2, 0],
    "rope.scaling.finetuned": False,
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 128,
    "ssm.state_size": 24,
    "ssm.time_step_rank": 8,
    "ssm.group_count": 1,
}


def _predicting_layer(number: int) -> dict[str, Array]:
    """A layer that predicts one more token, as Qwen3.5's converter writes it behind the others."""
    shapes = {
        "attn_norm": (64,),
        "post_attention_norm": (64,),
        "attn_q": (256, 64),
        "attn_k": (64, 64),
        "attn_v": (64, 64),
        "attn_q_norm": (32,),
        "attn_k_norm": (32,),
        "attn_output": (64, 128),
        "ffn_gate": (96, 64),
        "ffn_up": (96, 64),
        "ffn_down": (64, 96),
        "nextn.eh_proj": (64, 128),
        "nextn.enorm": (64,),
        "nextn.hnorm": (64,),
        "nextn.shared_head_norm": (64,),
    }
    return {f"blk.{number}.{name}.weight": np.ones(shape, np.float32) for name, shape in shapes.items()}


_MATRICES_OF_HYBRIDS = r"(?!.*(conv1d|gate_inp|norm)).*\.weight"
"""llama.cpp's converter leaves convolutions, routers and norms as they are."""

RECURRENT: Mapping[str, GGUFCase] = {
    "qwen3_next": case_of(
        "qwen3_next",
        "qwen3next",
        {**_HYBRID, **_HYBRID_EXPERTS},
        metadata={**_HYBRID_METADATA, **_HYBRID_EXPERTS_METADATA},
    ),
    "qwen3_5": case_of("qwen3_5_text", "qwen35", _HYBRID, metadata={**_HYBRID_METADATA, **_SECTIONS}, in_ci=True),
    # The file says which layers are recurrent, and has one behind them that is not the model's.
    "qwen3_5-predicting": case_of(
        "qwen3_5_text",
        "qwen35",
        {
            **_HYBRID,
            "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"],
            "mtp_num_hidden_layers": 1,
        },
        metadata={
            **_HYBRID_METADATA,
            **_SECTIONS,
            "block_count": 5,
            "nextn_predict_layers": 1,
            "attention.recurrent_layers": [True, False, True, True, False],
        },
        tensors=_predicting_layer(4),
    ),
    "qwen3_5_moe": case_of(
        "qwen3_5_moe_text",
        "qwen35moe",
        {**_HYBRID, **_HYBRID_EXPERTS, "linear_num_key_heads": 3, "intermediate_size": 512},
        metadata={
            **_HYBRID_METADATA,
            **_HYBRID_EXPERTS_METADATA,
            **_SECTIONS,
            "ssm.group_count": 3,
            "feed_forward_length": None,
        },
    ),
    "qwen3_5_moe-fused": case_of(
        "qwen3_5_moe_text",
        "qwen35moe",
        {**_HYBRID, **_HYBRID_EXPERTS, "intermediate_size": 512},
        metadata={**_HYBRID_METADATA, **_HYBRID_EXPERTS_METADATA, **_SECTIONS, "feed_forward_length": None},
        fused_experts=True,
    ),
    "granitemoehybrid": case_of(
        "granitemoehybrid",
        "granitehybrid",
        {**_GRANITE_4, "num_local_experts": 6, "shared_intermediate_size": 64},
        metadata={**_GRANITE_4_METADATA, **EXPERTS, "expert_shared_feed_forward_length": 64},
    ),
    "granitemoehybrid-dense": case_of(
        "granitemoehybrid",
        "granitehybrid",
        {**_GRANITE_4, "num_local_experts": 0, "shared_intermediate_size": 96, "position_embedding_type": "rope"},
        metadata={**_GRANITE_4_METADATA, "rope.scaling.finetuned": True},
        in_ci=True,
    ),
    "mamba2": GGUFCase(
        architecture="mamba2",
        config={
            "model_type": "mamba2",
            "hidden_size": 64,
            "num_hidden_layers": 3,
            "num_heads": 8,
            "head_dim": 16,
            "state_size": 24,
            "n_groups": 2,
            "vocab_size": 320,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
        metadata={
            "ssm.conv_kernel": 4,
            "ssm.inner_size": 128,
            "ssm.state_size": 24,
            "ssm.time_step_rank": 8,
            "ssm.group_count": 2,
        },
        in_ci=True,
    ),
    **{
        f"{name}-{kind.lower()}": case_of(
            model_type,
            architecture,
            config,
            metadata=metadata,
            kind=kind,
            stored_so=_MATRICES_OF_HYBRIDS,
        )
        for name, model_type, architecture, config, metadata in (
            (
                "granitemoehybrid",
                "granitemoehybrid",
                "granitehybrid",
                {**_GRANITE_4, "num_local_experts": 6, "shared_intermediate_size": 64},
                {**_GRANITE_4_METADATA, **EXPERTS, "expert_shared_feed_forward_length": 64},
            ),
            ("qwen3_5", "qwen3_5_text", "qwen35", _HYBRID, {**_HYBRID_METADATA, **_SECTIONS}),
            (
                "qwen3_5_moe",
                "qwen3_5_moe_text",
                "qwen35moe",
                {**_HYBRID, **_HYBRID_EXPERTS, "intermediate_size": 512},
                {**_HYBRID_METADATA, **_HYBRID_EXPERTS_METADATA, **_SECTIONS, "feed_forward_length": None},
            ),
        )
        for kind in ("Q4_0", "Q8_0")
    },
}
