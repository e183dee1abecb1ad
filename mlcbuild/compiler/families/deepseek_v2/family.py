"""DeepSeek V2 and V3, and Kimi K2, a V3 by another name: latent attention, experts in groups, and first layers without
experts.

V2 and V3 (and R1) choose experts by different routers. Layers behind the last one, which predict further tokens in V3's
checkpoints, are left out, as in MLC-LLM. Defaults are those of transformers' `DeepseekV2Config` and `DeepseekV3Config`.
"""

from __future__ import annotations

from collections.abc import Mapping

from mlcbuild.compiler.families.deepseek_v2.gguf_metadata import config_of_gguf, metadata_of_model
from mlcbuild.compiler.models.architecture.decoder import DecoderConfig
from mlcbuild.compiler.models.architecture.mixture import read_experts
from mlcbuild.compiler.models.architecture.rotary import RotaryForm
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout, ExpertNames
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.configuration.deepseek_mixture import with_mixture_of_deepseek
from mlcbuild.compiler.models.configuration.deepseek_routers import (
    read_sigmoid_router,
    read_softmax_router,
    router_fields,
)
from mlcbuild.compiler.models.configuration.latent_reading import latent_fields, read_latent_decoder
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture

_LAYOUT = CheckpointLayout(experts=ExpertNames(shared="shared_experts"))
_CHAT_CONFIG = (
    *("vocab_size", "hidden_size", "intermediate_size", "moe_intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "n_shared_experts", "n_routed_experts", "num_experts_per_tok"),
    *("norm_topk_prob", "first_k_dense_replace", "moe_layer_freq", "routed_scaling_factor", "scoring_func"),
    *("topk_method", "n_group", "topk_group", "attention_bias", "kv_lora_rank", "qk_rope_head_dim", "v_head_dim"),
    *("qk_nope_head_dim", "rms_norm_eps", "rope_theta", "q_lora_rank", "rope_scaling", "context_window_size"),
    *("prefill_chunk_size", "tensor_parallel_shards", "dtype", "max_batch_size"),
)
_SIZES = {"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}


_DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "deepseek_v2": {
        **_SIZES,
        "max_position_embeddings": 2048,
        "n_routed_experts": 64,
        "n_shared_experts": 2,
        "moe_intermediate_size": 1407,
    },
    "deepseek_v3": {
        **_SIZES,
        "max_position_embeddings": 4096,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048,
        "first_k_dense_replace": 3,
        "n_group": 8,
        "topk_group": 4,
        "num_key_value_heads": 128,
    },
}


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    is_v2 = reader.string("model_type") == "deepseek_v2"
    reader = reader.with_defaults(**_DEFAULTS["deepseek_v2" if is_v2 else "deepseek_v3"])
    reader.refuse(moe_layer_freq=1)
    reader.integer("n_shared_experts", low=1, high=64)  # which no model is without
    if is_v2:
        # transformers does not read norm_topk_prob here, and DeepSeek's own code does.
        reader.refuse(norm_topk_prob=False, mlp_bias=False)
        counts = read_experts(reader, "n_routed_experts", "num_experts")
        router, form = read_softmax_router(reader, counts), RotaryForm.NEIGHBOURS
    else:
        reader.refuse(head_dim=reader.value("qk_rope_head_dim"))  # by which transformers rotates
        counts = read_experts(reader, "n_routed_experts", "num_local_experts")
        router = read_sigmoid_router(reader, counts)
        form = RotaryForm.NEIGHBOURS if reader.boolean("rope_interleave", default=True) else RotaryForm.HALVES
    config, experts = with_mixture_of_deepseek(reader, read_latent_decoder(reader, form=form), router, counts=counts)
    own = {**experts, **router_fields(router), **latent_fields(config)}
    further = reader.integer("num_nextn_predict_layers", low=0, high=64, default=1)
    layout = _LAYOUT.without_layers_behind(config.num_layers, further)
    return decoder_model(reader, config, layout, fields=_CHAT_CONFIG, own=own)


FAMILY = Family(
    name="deepseek_v2",
    models="DeepSeek V2, V2-Lite, V3, R1, Kimi K2",
    model_types=("deepseek_v2", "deepseek_v3", "kimi_k2"),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={"deepseek2": GGUFArchitecture(config=config_of_gguf, metadata=metadata_of_model)},
)
