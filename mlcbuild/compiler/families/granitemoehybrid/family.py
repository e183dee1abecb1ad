"""Granite 4: layers of Mamba 2 and of attention, which may be all; in each a feed-forward, and experts beside it where
the model has them.

Defaults are those of transformers' `GraniteMoeHybridConfig`.
"""

from __future__ import annotations

from dataclasses import replace

from mlcbuild.compiler.families.granitemoehybrid.gguf_metadata import (
    architecture_of,
    config_of_gguf,
    metadata_of_model,
)
from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, read_decoder
from mlcbuild.compiler.models.architecture.rotary import RotaryForm
from mlcbuild.compiler.models.checkpoints.layout import CheckpointLayout, TensorName
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.configuration.granite_factors import with_granite_factors
from mlcbuild.compiler.models.configuration.granite_mixture import (
    GRANITE_EXPERTS,
    SHARED_INPUT,
    SHARED_OUTPUT,
    read_granite_feed_forward,
)
from mlcbuild.compiler.models.configuration.state_space_layers import MAMBA, with_state_space_layers
from mlcbuild.compiler.models.decoder_family import decoder_model
from mlcbuild.compiler.models.family import Family, FamilyModel, GGUFArchitecture

_DEFAULTS: dict[str, object] = {
    "max_position_embeddings": 2048,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "shared_intermediate_size": 1024,
}
_LAYOUT = CheckpointLayout(
    gate_up=(TensorName(SHARED_INPUT),),
    down=TensorName(SHARED_OUTPUT, "ffn_down"),
    gguf_gate_up=("ffn_gate", "ffn_up"),
    experts=GRANITE_EXPERTS,
    recurrence=TensorName(MAMBA),
    gguf_interleaves=True,
)


def resolve(reader: ConfigReader) -> FamilyModel[DecoderConfig]:
    reader = reader.with_defaults(**_DEFAULTS)
    bias = reader.boolean("attention_bias", default=False)
    config = read_decoder(
        reader, qkv_bias=bias, output_bias=bias, rotary_form=_rotary_form(reader), intermediate_default=11008
    )
    config, own = with_granite_factors(reader, replace(config, feed_forward=read_granite_feed_forward(reader, config)))
    config, types = with_state_space_layers(reader, config)
    own |= {"layer_types": list(types)}
    found = decoder_model(reader, config, _LAYOUT, own=own)
    return replace(found, kv_state_kind="hybrid" if MAMBA in types else "kv_cache")


def _rotary_form(reader: ConfigReader) -> RotaryForm:
    kind = reader.value("position_embedding_type")
    if kind not in (None, "nope", "rope"):
        raise reader.fail("position_embedding_type", f'is "{kind}"; it has to be "rope", "nope" or null')
    return RotaryForm.HALVES if kind == "rope" else RotaryForm.NONE


FAMILY = Family(
    name="granitemoehybrid",
    models="Granite 4",
    model_types=("granitemoehybrid",),
    configuration=DecoderConfig,
    resolve=resolve,
    gguf={"granitehybrid": GGUFArchitecture(config=config_of_gguf, metadata=metadata_of_model)},
    gguf_names={"granitemoehybrid": architecture_of},
    kv_state_kind="hybrid",
)
