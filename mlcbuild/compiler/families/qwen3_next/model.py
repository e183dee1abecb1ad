"""Qwen3-Next and Qwen3.5 on TVM's `relax.frontend.nn`."""

from __future__ import annotations

from mlcbuild.compiler.families.qwen3_next.family import FAMILY
from mlcbuild.compiler.models.compilable import ModelBuilder
from mlcbuild.compiler.models.networks.hybrid_lm import HybridLM

MODEL = ModelBuilder(family=FAMILY, build=HybridLM)
