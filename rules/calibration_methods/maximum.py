"""Static scales of activations, of the largest that was seen: Maximum for each imported shard."""

from __future__ import annotations

from mlcbuild.compiler.quantization.scheme import QuantizationScheme, StaticScalesScheme
from mlcbuild.rules.calibrated_shards import CalibratedShards
from mlcbuild.rules.calibration import CalibrationInputs, CalibrationMethod
from mlcbuild.rules.rule import RuleContext


def _stores_static_scales(scheme: QuantizationScheme) -> bool:
    return isinstance(scheme, StaticScalesScheme) and scheme.stores_static_scales


def _declare(context: RuleContext, inputs: CalibrationInputs) -> CalibratedShards:
    del context
    return CalibratedShards(inputs=inputs, mnemonic="Maximum", function="mlcbuild.compiler.stages.maximum:run")


METHOD = CalibrationMethod(
    name="maximum",
    doc="Static scales of activations, from the largest that was seen.",
    refusal=lambda scheme: "" if _stores_static_scales(scheme) else "it stores no static scales of activations",
    is_default=_stores_static_scales,
    declare=_declare,
)
