"""AWQ: SearchScales once for a target, then ApplyScales for each imported shard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlcbuild.engine.action import Action, DerivedArtifact
from mlcbuild.rules import schemes
from mlcbuild.rules.calibration import CalibrationInputs, CalibrationMethod
from mlcbuild.rules.rule import RuleContext, stage_action

if TYPE_CHECKING:
    from mlcbuild.compiler.quantization.scheme import QuantizationScheme

KINDS = ("group-quant", "awq", "ft-quant", "float4-quant")
"""Kinds of schemes that round weights alone."""


@dataclass(frozen=True, kw_only=True)
class ApplyScales:
    """Announces ApplyScales of a shard. The action's output has the number in its name, as shards have."""

    parameters: DerivedArtifact
    scales: DerivedArtifact

    def __call__(self, *, owner: str, index: int, shard: DerivedArtifact) -> tuple[Action, DerivedArtifact]:
        file = f"calibrated_{index:05d}.safetensors"
        action = stage_action(
            f"{owner} ApplyScales {index}",
            "ApplyScales",
            "mlcbuild.compiler.stages.apply_scales:run",
            owner=owner,
            inputs={"shard": shard, "parameters": self.parameters, "scales": self.scales},
            outputs={"calibrated": file},
            parameters={},
        )
        return action, action.output(f"out/{file}")


def _refusal(scheme: QuantizationScheme) -> str:
    if scheme.kind in KINDS:
        return ""
    return "its search is for weights of few bits that meet activations as they are"


def _declare(context: RuleContext, inputs: CalibrationInputs) -> ApplyScales:
    search = context.stage(
        "SearchScales",
        "mlcbuild.compiler.stages.search_scales:run",
        inputs={"shards": inputs.shards, "parameters": inputs.parameters, "statistics": inputs.statistics},
        outputs={"scales": "scales.safetensors"},
        plugins=schemes.with_encoder(inputs.quantization),
    )
    return ApplyScales(parameters=inputs.parameters, scales=search.output("out/scales.safetensors"))


METHOD = CalibrationMethod(
    name="awq",
    doc="Scales of channels that meet large inputs, and limits of groups, with which the scheme's error is least.",
    refusal=_refusal,
    is_default=lambda scheme: scheme.kind in KINDS,
    declare=_declare,
)
