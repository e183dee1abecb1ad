"""A model as one library, package or weights target has it: checked before anything else of the target starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.configuring import configure as configured_with
from mlcbuild.engine.action import DerivedArtifact, JsonValue
from mlcbuild.rules import schemes
from mlcbuild.rules.backend import PlatformInfo, backends
from mlcbuild.rules.legality import dtype_error
from mlcbuild.rules.precision import TargetPrecision, one_scheme, target_precision
from mlcbuild.rules.providers import ModelInfo
from mlcbuild.rules.requantizing import check_kept_weights, refuses_requantizing
from mlcbuild.rules.rule import RuleContext
from mlcbuild.workspace.schema import PLATFORM

if TYPE_CHECKING:
    from mlcbuild.compiler.quantization.scheme import QuantizationScheme


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredModel:
    """`model` is model.json with the target's sizes, and `window` the sliding window of them. `parameters` is the
    model's own list: whoever takes it waits for the check. `precision` is how they are stored."""

    model: DerivedArtifact
    parameters: DerivedArtifact
    window: DerivedArtifact
    precision: TargetPrecision


def configure(
    context: RuleContext,
    model: ModelInfo,
    *,
    quantization: str | TargetPrecision | None = None,
    overrides: Mapping[str, JsonValue] | None = None,
    platform: PlatformInfo | None = None,
    part: str = "",
) -> ConfiguredModel:
    """Declare the action that applies and checks overrides and quantization, one a target, or one a library of it,
    whose word is `part` (`RuleContext.stage`).

    `quantization` is a scheme, or what was chosen for the target; None for what its attribute says. `platform` is None
    where no library is made. Reports what can be told of a model that is at hand, and of the quantization on the
    platform; what the platform cannot do is illegal.
    """
    precision, scheme = _precision(context, model, quantization)
    checked = dict(overrides or {})
    backend = None if platform is None else backends()[platform.kind]
    kinds, windows = (None, True) if backend is None else (list(backend.kv_state_kinds), backend.sliding_windows)
    first = schemes.scheme(precision.names[0])  # all compute in its type
    if platform is not None and (wrong := dtype_error(first, platform)) is not None:
        context.report_illegal(wrong, attribute="quantization", advice=("see `mlcbuild info --legal`",))
    if model.known is not None and scheme is not None:
        _, invalid = configured_with(
            model.known.description,
            model.known.parameters,
            scheme=scheme,
            overrides=checked,
            kv_state_kinds=kinds,
            sliding_windows=windows,
        )
        for one in invalid:
            report = context.report_illegal if one.attribute == PLATFORM else context.report
            report(one.error, attribute=one.attribute)
    refuses = not part and refuses_requantizing(context)
    if refuses:
        check_kept_weights(context, model, precision.names)
    stage = precision.stage("mlcbuild.compiler.stages.configure_model:run")
    configured = context.stage(
        "ConfigureModel",
        stage.function,
        inputs={"model": precision.model, "parameters": model.parameters, **stage.inputs},
        outputs={"model_out": "model.json", "parameters_out": "parameters.json", "window": "window.json"},
        parameters={
            "overrides": checked,
            "kv_state_kinds": kinds,
            "sliding_windows": windows,
            **({"refuse_requantizing": True} if refuses and model.known is None else {}),
        },
        plugins=stage.plugins,
        part=part,
    )
    return ConfiguredModel(
        model=configured.output("out/model.json"),
        parameters=configured.output("out/parameters.json"),
        window=configured.output("out/window.json"),
        precision=precision,
    )


def _precision(
    context: RuleContext, model: ModelInfo, quantization: str | TargetPrecision | None
) -> tuple[TargetPrecision, QuantizationScheme | None]:
    if quantization is None:
        return target_precision(context, model)
    return one_scheme(model, quantization) if isinstance(quantization, str) else (quantization, None)
