"""The bert family on TVM's `relax.frontend.nn`: the shared encoder as it is."""

from __future__ import annotations

from mlcbuild.compiler.families.bert.family import FAMILY
from mlcbuild.compiler.models.compilable import ModelBuilder
from mlcbuild.compiler.models.networks.encoder_model import Encoder

MODEL = ModelBuilder(family=FAMILY, build=Encoder)
