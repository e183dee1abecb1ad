"""SmoothQuant: SmoothScales once for a target, then ApplyScales for each imported shard."""

from __future__ import annotations

from mlcbuild.compiler.quantization.scheme import QuantizationScheme, StaticScalesScheme
from mlcbuild.rules.calibration import CalibrationInputs, CalibrationMethod
from mlcbuild.rules.calibration_methods.awq import ApplyScales
from mlcbuild.rules.rule import RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind

SMOOTHING = Attribute(
    name="smoothing",
    kind=AttributeKind.NUMBER,
    default=0.5,
    doc="For smoothquant: how much of what is hard to round weights are given instead of activations, from 0 to 1; "
    "rounded to 1/1024.",
)


def _refusal(scheme: QuantizationScheme) -> str:
    if scheme.kind == "no-quant":
        return "it stores matrices as they are"
    if not isinstance(scheme, StaticScalesScheme):  # an arithmetic without scales of activations
        return "it rounds weights alone"
    return ""


def _declare(context: RuleContext, inputs: CalibrationInputs) -> ApplyScales:
    alpha = context.target.number(SMOOTHING.name)
    if not 0 <= alpha <= 1:
        context.report(f"`smoothing` is {alpha}, and not from 0 to 1", attribute=SMOOTHING.name)
    stage = inputs.precision.stage("mlcbuild.compiler.stages.smooth_scales:run", "encoder")
    search = context.stage(
        "SmoothScales",
        stage.function,
        inputs={
            "shards": inputs.shards.all,
            "parameters": inputs.parameters,
            "statistics": inputs.statistics,
            **stage.inputs,
        },
        outputs={"scales": "scales.safetensors"},
        parameters={"alpha": alpha},
        plugins=stage.plugins,
    )
    return ApplyScales(parameters=inputs.parameters, scales=search.output("out/scales.safetensors"))


METHOD = CalibrationMethod(
    name="smoothquant",
    doc="Scales that even out the channels of activations, which are then easier to round.",
    refusal=_refusal,
    is_default=lambda _: False,
    declare=_declare,
    attributes=(SMOOTHING,),
)
