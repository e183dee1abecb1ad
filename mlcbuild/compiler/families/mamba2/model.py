"""Mamba 2 on TVM's `relax.frontend.nn`."""

from __future__ import annotations

from mlcbuild.compiler.families.mamba2.family import FAMILY
from mlcbuild.compiler.models.compilable import ModelBuilder
from mlcbuild.compiler.models.networks.recurrent_lm import RecurrentLM

MODEL = ModelBuilder(family=FAMILY, build=RecurrentLM)
