"""Methods of calibration whose work is an action for each imported shard, which takes the shard and the statistics."""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.engine.action import Action, DerivedArtifact, JsonValue
from mlcbuild.rules.calibration import CalibrationInputs
from mlcbuild.rules.rule import stage_action


@dataclass(frozen=True, kw_only=True)
class CalibratedShards:
    """Announces the action `mnemonic` of a shard, by the stage `function`. Its output has the number in its name, as
    shards have."""

    inputs: CalibrationInputs
    mnemonic: str
    function: str
    parameters: tuple[tuple[str, JsonValue], ...] = ()

    def __call__(self, *, owner: str, index: int, shard: DerivedArtifact) -> tuple[Action, DerivedArtifact]:
        stage = self.inputs.precision.stage(self.function, "encoder")
        file = f"calibrated_{index:05d}.safetensors"
        action = stage_action(
            f"{owner} {self.mnemonic} {index}",
            self.mnemonic,
            stage.function,
            owner=owner,
            inputs={
                "shard": shard,
                "parameters": self.inputs.parameters,
                "statistics": self.inputs.statistics,
                **stage.inputs,
            },
            outputs={"calibrated": file},
            parameters=dict(self.parameters),
            plugins=stage.plugins,
        )
        return action, action.output(f"out/{file}")
