"""Granite 4 on TVM's `relax.frontend.nn`."""

from __future__ import annotations

from mlcbuild.compiler.families.granitemoehybrid.family import FAMILY
from mlcbuild.compiler.models.compilable import ModelBuilder
from mlcbuild.compiler.models.networks.hybrid_lm import hybrid_or_cached

MODEL = ModelBuilder(family=FAMILY, build=hybrid_or_cached)
