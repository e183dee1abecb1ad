"""Llama 4 on TVM's `relax.frontend.nn`: the shared decoder as it is."""

from __future__ import annotations

from mlcbuild.compiler.families.llama4.family import FAMILY
from mlcbuild.compiler.models.compilable import ModelBuilder
from mlcbuild.compiler.models.networks.causal_lm import CausalLM

MODEL = ModelBuilder(family=FAMILY, build=CausalLM)
