"""DeepSeek V2 and V3, and Kimi K2, a V3 by another name: latent attention, experts in groups, and first layers without
experts.

V2 has the softmax of all experts' scores, and takes the groups by their best expert; V3 (and R1) has sigmoids, with a
correction for choosing alone, and takes the groups by their best two. Layers behind the last one, which predict further
tokens in V3's checkpoints, are left out, as in MLC-LLM.
"""

from __future__ import annotations

from mlcbuild.compiler.families.deepseek_v2.gguf_metadata import config_of_gguf, metadata_of_model
from mlcbuild.compiler.models.architecture.decoder import DecoderConfig
from mlcbuild.compiler.models.architecture.mixture import (
    RouterConfig,
    RouterScores,
    read_experts,
)
from mlcbuild.compiler.models.architecture.rotary import RotaryForm
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout, ExpertNames
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.configuration.deepseek_mixture import read_expert_groups, with_mixture_of_deepseek
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


def resolve_v2(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(
        **_SIZES, max_position_embeddings=2048, n_routed_experts=64, n_shared_experts=2, moe_intermediate_size=1407
    )
    # transformers does not read norm_topk_prob here, and DeepSeek's own code does.
    reader.refuse(scoring_func="softmax", norm_topk_prob=False, mlp_bias=False)
    method = reader.string("topk_method", default="greedy")
    if method not in ("greedy", "group_limited_greedy"):
        raise reader.fail("topk_method", f'is "{method}"; it is "greedy" or "group_limited_greedy" here')
    experts = read_experts(reader, "n_routed_experts", "num_experts")
    groups = read_expert_groups(reader, *experts, summed=1) if method == "group_limited_greedy" else None
    return _resolve(
        reader,
        experts,
        RouterConfig(groups=groups, scale=reader.number("routed_scaling_factor", low=1e-6, high=1e6, default=1.0)),
        form=RotaryForm.NEIGHBOURS,
        method=method,
    )


def resolve_v3(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(
        **_SIZES,
        max_position_embeddings=4096,
        n_routed_experts=256,
        n_shared_experts=1,
        num_experts_per_tok=8,
        moe_intermediate_size=2048,
        first_k_dense_replace=3,
        n_group=8,
        topk_group=4,
        num_key_value_heads=128,
    )
    reader.refuse(scoring_func="sigmoid", topk_method="noaux_tc")
    reader.refuse(head_dim=reader.value("qk_rope_head_dim"))  # by which transformers rotates
    experts = read_experts(reader, "n_routed_experts", "num_local_experts")
    return _resolve(
        reader,
        experts,
        RouterConfig(
            scores=RouterScores.SIGMOID,
            normalized=reader.boolean("norm_topk_prob", default=True),
            scale=reader.number("routed_scaling_factor", low=1e-6, high=1e6, default=2.5),
            correction_bias=True,
            groups=read_expert_groups(reader, *experts, summed=2),
        ),
        form=RotaryForm.NEIGHBOURS if reader.boolean("rope_interleave", default=True) else RotaryForm.HALVES,
        method="noaux_tc",
    )


def _resolve(
    reader: ConfigReader, counts: tuple[int, int], router: RouterConfig, *, form: RotaryForm, method: str
) -> FamilyModel[DecoderConfig]:
    reader.refuse(moe_layer_freq=1)
    reader.integer("n_shared_experts", low=1, high=64)  # which no model is without
    config, experts = with_mixture_of_deepseek(reader, read_latent_decoder(reader, form=form), router, counts=counts)
    own = {
        **experts,
        "norm_topk_prob": router.normalized,
        "routed_scaling_factor": router.scale,
        "scoring_func": router.scores.value,
        "topk_method": method,
        "n_group": router.groups.count if router.groups else 1,
        "topk_group": router.groups.chosen if router.groups else 1,
        **latent_fields(config),
    }
    further = reader.integer("num_nextn_predict_layers", low=0, high=64, default=1)
    layout = _LAYOUT.without_layers_behind(config.num_layers, further)
    return decoder_model(reader, config, layout, fields=_CHAT_CONFIG, own=own)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    return resolve_v2(reader) if reader.value("model_type") == "deepseek_v2" else resolve_v3(reader)


FAMILY = Family(
    name="deepseek_v2",
    models="DeepSeek V2, V2-Lite, V3, R1, Kimi K2",
    model_types=("deepseek_v2", "deepseek_v3", "kimi_k2"),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={"deepseek2": GGUFArchitecture(config=config_of_gguf, metadata=metadata_of_model)},
)
