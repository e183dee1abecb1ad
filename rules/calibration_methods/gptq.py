"""GPTQ: Gptq for each imported shard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcbuild.rules.calibrated_shards import CalibratedShards
from mlcbuild.rules.calibration import CalibrationInputs, CalibrationMethod
from mlcbuild.rules.rule import RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind

if TYPE_CHECKING:
    from mlcbuild.compiler.quantization.scheme import QuantizationScheme

KINDS = ("group-quant", "awq", "ft-quant")
"""Kinds of schemes whose encoder is a `quantization.integer_grid.GridEncoder`."""
ACT_ORDER = Attribute(
    name="act_order",
    kind=AttributeKind.BOOLEAN,
    default=False,
    doc="For gptq: columns that meet the largest inputs are rounded first. Groups stay where they are, with the scales "
    "of the weights as they were.",
)


def _refusal(scheme: QuantizationScheme) -> str:
    return "" if scheme.kind in KINDS else "it chooses integers in groups of columns, which the scheme does not store"


def _declare(context: RuleContext, inputs: CalibrationInputs) -> CalibratedShards:
    return CalibratedShards(
        inputs=inputs,
        mnemonic="Gptq",
        function="mlcbuild.compiler.stages.gptq:run",
        parameters=(("by_activations", context.target.boolean(ACT_ORDER.name)),),
    )


METHOD = CalibrationMethod(
    name="gptq",
    doc="Integers that are chosen one column after the other, each making up for the errors of those before it.",
    refusal=_refusal,
    is_default=lambda _: False,
    declare=_declare,
    attributes=(ACT_ORDER,),
)
