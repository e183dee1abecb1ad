"""A model as one library, package or weights target has it: checked before anything else of the target starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mlcbuild.engine.action import DerivedArtifact, JsonValue
from mlcbuild.rules import schemes
from mlcbuild.rules.providers import ModelInfo
from mlcbuild.rules.rule import RuleContext


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredModel:
    """`model` is model.json with the target's sizes. `parameters` is the model's own list: whoever takes it waits for
    the check."""

    model: DerivedArtifact
    parameters: DerivedArtifact


def configure(
    context: RuleContext, model: ModelInfo, *, quantization: str, overrides: Mapping[str, JsonValue] | None = None
) -> ConfiguredModel:
    """Declare the action that applies and checks overrides and quantization, one a target."""
    configured = context.stage(
        "ConfigureModel",
        "mlcbuild.compiler.stages.configure_model:run",
        inputs={"model": model.model, "parameters": model.parameters},
        outputs={"model_out": "model.json", "parameters_out": "parameters.json"},
        parameters={"overrides": dict(overrides or {})},
        plugins={"scheme": schemes.plugin(quantization)},
    )
    return ConfiguredModel(
        model=configured.output("out/model.json"), parameters=configured.output("out/parameters.json")
    )
