"""Layers of Mamba 2 beside layers of attention: the fields that the configurations of such models have for them.

Sizes have the names of transformers' configurations with both (`mamba_n_heads`, `mamba_d_state` …), and their defaults.
"""

from __future__ import annotations

from dataclasses import replace

from mlcbuild.compiler.models.architecture.decoder import DecoderConfig, LayerKind
from mlcbuild.compiler.models.architecture.decoder_names import DecoderNames
from mlcbuild.compiler.models.config import ConfigReader
from mlcbuild.compiler.models.configuration.state_space import read_state_space

ATTENTION, MAMBA = "attention", "mamba"
_NAMES = {  # as published, and as transformers 5 writes them
    "attention": ATTENTION,
    "mamba": MAMBA,
    "full_attention": ATTENTION,
    "linear_attention": MAMBA,
}
_SIZES = {
    "num_heads": "mamba_n_heads",
    "head_dim": "mamba_d_head",
    "n_groups": "mamba_n_groups",
    "state_size": "mamba_d_state",
    "conv_kernel": "mamba_d_conv",
    "expand": "mamba_expand",
    "use_conv_bias": "mamba_conv_bias",
    "use_bias": "mamba_proj_bias",
}
_DEFAULTS = {"num_heads": 128, "n_groups": 1, "state_size": 256, "conv_kernel": 4, "expand": 2}


def with_state_space_layers(reader: ConfigReader, config: DecoderConfig) -> tuple[DecoderConfig, tuple[str, ...]]:
    """The decoder with such layers, and the type of each layer, `ATTENTION` or `MAMBA`; where all are of attention, it
    stays as it is. Raises StageError where none is, and for sizes that do not fit each other."""
    types = _read_types(reader, config.num_layers)
    if MAMBA not in types:
        return config, types
    # With several groups, transformers norms each by itself.
    reader.refuse(hidden_act="silu", mamba_n_groups=1)
    named = reader.with_names(**_SIZES).with_defaults(**_DEFAULTS)
    recurrence = read_state_space(named, hidden_size=config.hidden_size, norm_epsilon=config.norm.epsilon)
    found = replace(
        config,
        names=DecoderNames(recurrence=MAMBA),
        kinds=(LayerKind(name=ATTENTION), LayerKind(name=MAMBA, recurrence=recurrence)),
        kinds_of_layers=types,
    )
    return found, types


def _read_types(reader: ConfigReader, layers: int) -> tuple[str, ...]:
    found = reader.value("layer_types") or reader.value("layers_block_type") or [MAMBA] * layers
    types = tuple(_NAMES.get(str(name), "") for name in found) if isinstance(found, list) else ()
    if len(types) != layers or "" in types:
        raise reader.fail("layer_types", f'has to be "{ATTENTION}" or "{MAMBA}" for each of the {layers} layers')
    if ATTENTION not in types:
        raise reader.fail("layer_types", f'has "{MAMBA}" alone; a model has layers of attention too')
    return types
