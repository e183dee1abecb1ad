"""Granite with mixtures of experts: a granite's factors, and checkpoints that have all experts in one tensor.

A `granitemoeshared` also has experts that every token uses. Defaults are those of transformers' `GraniteMoeConfig` and
`GraniteMoeSharedConfig`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, read_decoder
from mlcbuild.compiler.models.architecture.mixture import read_experts
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.configuration.granite_factors import with_granite_factors
from mlcbuild.compiler.models.configuration.granite_mixture import GRANITE_EXPERTS, granite_mixture
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture
from mlcbuild.compiler.models.gguf.config import decoder_document
from mlcbuild.compiler.models.gguf.mixture import MIXTURE_KEYS, mixture_fields
from mlcbuild.compiler.models.gguf.scales import SCALE_KEYS, granite_factors, granite_metadata

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.gguf_file import GGUFFile

_DEFAULTS: dict[str, object] = {"max_position_embeddings": 2048, "num_local_experts": 8, "num_experts_per_tok": 2}
_SHARED, _SHARED_KEY = "granitemoeshared", "expert_shared_feed_forward_length"
_LAYOUT = CheckpointLayout(experts=GRANITE_EXPERTS, gguf_interleaves=True)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(**_DEFAULTS)
    bias = reader.boolean("attention_bias", default=False)
    config = read_decoder(reader, qkv_bias=bias, output_bias=bias)
    experts, chosen = read_experts(reader)
    shared = 0
    if reader.string("model_type") == _SHARED:
        shared = reader.integer("shared_intermediate_size", low=0, high=1 << 20, default=0)
    mixture = granite_mixture(config, (experts, chosen), shared=shared)
    config, own = with_granite_factors(reader, replace(config, feed_forward=mixture))
    own |= {"num_local_experts": experts, "num_experts_per_tok": chosen}
    own |= {"shared_intermediate_size": shared} if shared else {}
    return decoder_model(reader, config, _LAYOUT, own=own)


def _config_of_gguf(file: GGUFFile) -> dict[str, object]:
    shared = file.integer(f"granitemoe.{_SHARED_KEY}", 0)
    document = decoder_document(
        file,
        architecture="granitemoe",
        model_type=_SHARED if shared else "granitemoe",
        class_name="GraniteMoeSharedForCausalLM" if shared else "GraniteMoeForCausalLM",
        also_read=(*MIXTURE_KEYS, *SCALE_KEYS, _SHARED_KEY),
    )
    if shared:
        document["shared_intermediate_size"] = shared
    document["attention_bias"] = "blk.0.attn_q.bias" in file.tensors
    return document | mixture_fields(file, "granitemoe") | granite_factors(file, "granitemoe")


FAMILY = Family(
    name="granitemoe",
    models="Granite 3 with experts",
    model_types=("granitemoe", _SHARED),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={
        "granitemoe": GGUFArchitecture(
            config=_config_of_gguf,
            metadata=partial(granite_metadata, keys=("expert_count", "expert_used_count", _SHARED_KEY)),
        )
    },
)
