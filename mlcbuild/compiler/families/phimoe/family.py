"""Phi 3.5 with mixtures of experts, of which each token uses two, weighed by a sparse mixer.

Defaults are those of transformers' `PhimoeConfig`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, NormConfig, NormKind, read_decoder, read_window
from mlcbuild.compiler.models.architecture.mixture import MixtureConfig, RouterConfig, RouterScores, read_experts
from mlcbuild.compiler.models.checkpoints.layout import IGNORED_WITH_LONGROPE, CheckpointLayout, ExpertNames
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document
from mlcbuild.compiler.models.gguf.mixture import MIXTURE_KEYS, mixture_fields
from mlcbuild.compiler.models.gguf.windows import WINDOW
from mlcbuild.compiler.models.gguf.written import GGUFMetadata, WrittenModel
from mlcbuild.errors import StageError

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_DEFAULTS: dict[str, object] = {
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1e6,
    "intermediate_size": 6400,
    "num_local_experts": 16,
    "num_experts_per_tok": 2,
}
_LAYOUT = CheckpointLayout(
    experts=ExpertNames(module="block_sparse_moe", gate="w1", up="w3", down="w2", fused_router="mlp.router"),
    ignored=IGNORED_WITH_LONGROPE,
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(**_DEFAULTS)
    bias = reader.boolean("attention_bias", default=False)
    config = read_decoder(reader, qkv_bias=bias, output_bias=bias)
    experts, chosen = read_experts(reader)
    if chosen != 2:
        raise reader.fail("num_experts_per_tok", f"is {chosen}; a sparse mixer chooses 2")
    near = reader.number("router_jitter_noise", low=0.0, high=1e3, default=0.01)
    mixture = MixtureConfig(
        experts=experts,
        experts_per_token=chosen,
        intermediate_size=config.feed_forward.intermediate_size,
        activation=config.feed_forward.activation,
        router=RouterConfig(scores=RouterScores.SPARSE_MIXER, near=near),
    )
    own: dict[str, object] = {"num_local_experts": experts, "num_experts_per_tok": chosen}
    if reader.has("sliding_window"):
        own |= {"sliding_window_size": None, "attention_sink_size": None}
    norm = NormConfig(epsilon=config.norm.epsilon, kind=NormKind.LAYER, bias=True)
    head_bias = reader.boolean("lm_head_bias", default=False)
    if head_bias and config.tie_word_embeddings:
        raise reader.fail("lm_head_bias", "is true; a head that is the embedding has none")
    config = replace(config, norm=norm, feed_forward=mixture, head_bias=head_bias)
    return decoder_model(reader, config, _LAYOUT, limits=read_window(reader), own=own)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    """llama.cpp does not compute this model: its norms do not subtract the mean, and its router is a softmax. What the
    model computes is the same whatever holds its weights, so that is what is read."""
    document = decoder_document(
        file,
        architecture="phimoe",
        model_type="phimoe",
        class_name="PhimoeForCausalLM",
        also_read=(*MIXTURE_KEYS, WINDOW),
    )
    scaling = document.get("rope_scaling")
    if isinstance(scaling, dict) and scaling["rope_type"] == "longrope":
        document["original_max_position_embeddings"] = scaling["original_max_position_embeddings"]
    own = {
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "lm_head_bias": "output.bias" in file.tensors,
        "sliding_window": file.integer(f"phimoe.{WINDOW}", 0) or None,
    }
    return document | mixture_fields(file, "phimoe") | own


def _no_metadata(model: WrittenModel) -> GGUFMetadata:
    raise StageError(
        f'llama.cpp does not compute a model of type "{model.description.model_type}": its norms do not subtract the '
        "mean, and its router is a softmax",
        advice=("a model_package computes it",),
    )


FAMILY = Family(
    name="phimoe",
    models="Phi 3.5 with experts",
    model_types=("phimoe",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={
        "phimoe": GGUFArchitecture(
            config=_config_of_gguf,
            metadata=_no_metadata,
        )
    },
)
