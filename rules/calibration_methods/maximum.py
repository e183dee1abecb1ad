"""Static scales of activations, of the largest that was seen: Maximum for each imported shard."""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.compiler.quantization.scheme import QuantizationScheme, StaticScalesScheme
from mlcbuild.engine.action import Action, DerivedArtifact
from mlcbuild.rules.calibration import CalibrationInputs, CalibrationMethod
from mlcbuild.rules.rule import RuleContext, stage_action


@dataclass(frozen=True, kw_only=True)
class MaximumShards:
    """Announces Maximum of a shard. The action's output has the number in its name, as shards have."""

    inputs: CalibrationInputs

    def __call__(self, *, owner: str, index: int, shard: DerivedArtifact) -> tuple[Action, DerivedArtifact]:
        stage = self.inputs.precision.stage("mlcbuild.compiler.stages.maximum:run", "encoder")
        file = f"calibrated_{index:05d}.safetensors"
        action = stage_action(
            f"{owner} Maximum {index}",
            "Maximum",
            stage.function,
            owner=owner,
            inputs={
                "shard": shard,
                "parameters": self.inputs.parameters,
                "statistics": self.inputs.statistics,
                **stage.inputs,
            },
            outputs={"calibrated": file},
            parameters={},
            plugins=stage.plugins,
        )
        return action, action.output(f"out/{file}")


def _stores_static_scales(scheme: QuantizationScheme) -> bool:
    return isinstance(scheme, StaticScalesScheme) and scheme.stores_static_scales


def _declare(context: RuleContext, inputs: CalibrationInputs) -> MaximumShards:
    del context
    return MaximumShards(inputs=inputs)


METHOD = CalibrationMethod(
    name="maximum",
    doc="Static scales of activations, from the largest that was seen.",
    refusal=lambda scheme: "" if _stores_static_scales(scheme) else "it stores no static scales of activations",
    is_default=_stores_static_scales,
    declare=_declare,
)
