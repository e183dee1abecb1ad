"""Granite 4 on TVM's `relax.frontend.nn`."""

from __future__ import annotations

from collections.abc import Sequence

from mlcbuild.compiler.families.granitemoehybrid.family import FAMILY
from mlcbuild.compiler.models.architecture.decoder import DecoderConfig
from mlcbuild.compiler.models.compilable import ModelBuilder
from mlcbuild.compiler.models.networks.causal_lm import CausalLM
from mlcbuild.compiler.models.networks.hybrid_lm import HybridLM
from mlcbuild.compiler.quantization.reader import Reader


def _build(config: DecoderConfig, reader: Reader, *, layers: Sequence[int]) -> CausalLM | HybridLM:
    made = HybridLM if config.recurrent_layers else CausalLM
    return made(config, reader, layers=layers)


MODEL = ModelBuilder(family=FAMILY, build=_build)
