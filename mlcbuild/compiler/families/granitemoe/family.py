"""Granite with mixtures of experts: a granite's factors, and checkpoints that have all experts in one tensor.

Defaults are those of transformers' `GraniteMoeConfig`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, read_decoder
from mlcbuild.compiler.models.architecture.mixture import MixtureConfig, RouterConfig, read_experts
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout, ExpertNames
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document
from mlcbuild.compiler.models.gguf.mixture import MIXTURE_KEYS, mixture_fields
from mlcbuild.compiler.models.gguf.scales import SCALE_KEYS, granite_factors, granite_metadata
from mlcbuild.errors import StageError

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_DEFAULTS: dict[str, object] = {"max_position_embeddings": 2048, "num_local_experts": 8, "num_experts_per_tok": 2}
_FACTORS = ("attention_multiplier", "embedding_multiplier", "residual_multiplier", "logits_scaling")
_LAYOUT = CheckpointLayout(
    experts=ExpertNames(
        module="block_sparse_moe",
        router="router.layer",
        fused_gate_up=("block_sparse_moe.input_linear.weight", "block_sparse_moe.experts.gate_up_proj"),
        fused_down=("block_sparse_moe.output_linear.weight", "block_sparse_moe.experts.down_proj"),
        fused_router="block_sparse_moe.router",
    ),
    gguf_interleaves=True,
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(**_DEFAULTS)
    bias = reader.boolean("attention_bias", default=False)
    config = read_decoder(reader, qkv_bias=bias, output_bias=bias)
    experts, chosen = read_experts(reader)
    mixture = MixtureConfig(
        experts=experts,
        experts_per_token=chosen,
        intermediate_size=config.feed_forward.intermediate_size,
        activation=config.feed_forward.activation,
        router=RouterConfig(normalized=True),
    )

    def factor(name: str) -> float:
        return reader.number(name, low=1e-9, high=1e9, default=1.0)

    config = replace(
        config,
        attention=replace(config.attention, softmax_scale=factor("attention_multiplier")),
        feed_forward=mixture,
        embedding_scale=factor("embedding_multiplier"),
        residual_scale=factor("residual_multiplier"),
        logit_scale=1.0 / factor("logits_scaling"),
    )
    own = {name: factor(name) for name in _FACTORS} | {"num_local_experts": experts, "num_experts_per_tok": chosen}
    return decoder_model(reader, config, _LAYOUT, own=own)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    if file.integer("granitemoe.expert_shared_feed_forward_length", 0) > 0:
        raise StageError(f"{file.path} has experts that all tokens use (granitemoeshared), which is not supported")
    document = decoder_document(
        file,
        architecture="granitemoe",
        model_type="granitemoe",
        class_name="GraniteMoeForCausalLM",
        also_read=(*MIXTURE_KEYS, *SCALE_KEYS),
    )
    document["attention_bias"] = "blk.0.attn_q.bias" in file.tensors
    return document | mixture_fields(file, "granitemoe") | granite_factors(file, "granitemoe")


FAMILY = Family(
    name="granitemoe",
    models="Granite 3 with experts",
    model_types=("granitemoe",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={
        "granitemoe": GGUFArchitecture(
            config=_config_of_gguf, metadata=partial(granite_metadata, keys=("expert_count", "expert_used_count"))
        )
    },
)
