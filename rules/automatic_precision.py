"""`quantization = "auto"`: which scheme stores each matrix is chosen by what the model sees of a text, and by a budget.

MeasureSensitivity (one an imported shard and candidate) → ChoosePrecision → AssignPrecision, by the library with which
all methods of calibration observe a model. A measurement knows no budget, so another budget measures nothing anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mlcbuild.compiler.calibration.budget import ADVICE, parse_budget
from mlcbuild.compiler.quantization.mixed.scheme import check_one_dtype
from mlcbuild.engine.action import Action, DerivedArtifact, DiscoveredArtifacts
from mlcbuild.errors import StageError
from mlcbuild.rules import schemes
from mlcbuild.rules.calibration import CALIBRATION, CalibrationTextInfo, Observing, prepare_observing
from mlcbuild.rules.configured_model import configure
from mlcbuild.rules.imported_weights import imported_shards
from mlcbuild.rules.precision import AUTO, TargetPrecision, assign_precision
from mlcbuild.rules.providers import ModelInfo
from mlcbuild.rules.rule import RuleContext, stage_action
from mlcbuild.workspace.schema import Attribute, AttributeKind

MEASURED = "measured"
"""The group of what MeasureSensitivity wrote, of ImportWeights."""

CANDIDATES = ("q3f16_1", "q4f16_1", "q8f16_1", "q0f16")
_PART = "candidates"  # the word of the action that checks a candidate


def automatic_attributes(candidates: Sequence[str] = CANDIDATES) -> tuple[Attribute, ...]:
    """The attributes of targets whose quantization may be chosen."""
    return (
        Attribute(
            name="budget",
            kind=AttributeKind.STRING,
            doc='For quantization = "auto": how much all weights may take, scales counted. Bits a weight ("4.5 bits"), '
            'bytes ("75 MB"), or as many bytes as a candidate takes ("q4f16_1").',
        ),
        Attribute(
            name="candidates",
            kind=AttributeKind.STRING_LIST,
            allowed=schemes.NAMES,
            default=tuple(candidates),
            nonempty=True,
            doc='For quantization = "auto": the schemes to choose from, all of which compute in one type.',
        ),
    )


@dataclass(frozen=True, kw_only=True)
class MeasureShard:
    """Announces the MeasureSensitivity actions of an imported shard: one a candidate."""

    candidates: tuple[str, ...]
    parameters: DerivedArtifact
    shards: DiscoveredArtifacts
    observing: Observing

    def __call__(self, *, owner: str, index: int, shard: DerivedArtifact) -> tuple[tuple[Action, DerivedArtifact], ...]:
        """The actions of the shard of a number, and the file of each."""
        found = []
        for name in self.candidates:
            file = f"measured_{index:05d}_{name}.json"
            action = stage_action(
                f"{owner} MeasureSensitivity {index} {name}",
                "MeasureSensitivity",
                "mlcbuild.compiler.stages.measure_sensitivity:run",
                owner=owner,
                inputs={
                    "shard": shard,
                    "shards": self.shards,
                    "parameters": self.parameters,
                    "samples": self.observing.samples,
                    "library": self.observing.library,
                    "observation": self.observing.observation,
                },
                outputs={"measured": file},
                parameters={},
                plugins=schemes.with_encoder(name),
                toolchains=("tvm",),
                requirements=self.observing.requirements,
            )
            found.append((action, action.output(f"out/{file}")))
        return tuple(found)


@dataclass(frozen=True, kw_only=True)
class AutomaticPrecision:
    """The `precision` that is chosen, and the actions that measure each imported shard for it. Weights are imported by
    the list `parameters`, which waits for no choice."""

    precision: TargetPrecision
    measure: MeasureShard
    parameters: DerivedArtifact


def automatic_precision(context: RuleContext, model: ModelInfo) -> AutomaticPrecision | None:
    """Declare the choice of a target with `automatic_attributes`; None for one whose quantization is not "auto".
    Raises WorkspaceError where it lacks something that the choice needs."""
    target = context.target
    candidates, budget = tuple(dict.fromkeys(target.strings("candidates"))), target.optional_string("budget")
    if target.get("quantization") != AUTO:
        for name in ("budget", "candidates"):
            if target.has(name):
                context.report(f'{name} is for quantization = "{AUTO}"', attribute=name)
        return None
    if budget is None:
        raise context.error(f'quantization = "{AUTO}" needs a `budget`', attribute="quantization", advice=(ADVICE,))
    if target.optional_label(CALIBRATION.name) is None:
        raise context.error(
            f'quantization = "{AUTO}" needs a `calibration`',
            attribute="quantization",
            advice=("name a calibration_text: errors are measured by what the model sees of it",),
        )
    _check(context, candidates, budget)
    text = context.required(CALIBRATION.name, CalibrationTextInfo)
    # Weights are imported by a list that waits for no choice: that of the check of one candidate.
    parameters = configure(context, model, quantization=candidates[0], part=_PART).parameters
    shards = imported_shards(context, model).all
    observing = prepare_observing(context, model, text, parameters=parameters, shards=shards)
    choice = context.stage(
        "ChoosePrecision",
        "mlcbuild.compiler.stages.choose_precision:run",
        inputs={
            "measured": DiscoveredArtifacts(action=shards.action, group=MEASURED),
            "parameters": parameters,
        },
        outputs={"precision": "precision.json"},
        parameters={"candidates": list(candidates), "budget": budget},
    )
    chosen = choice.output("out/precision.json")
    return AutomaticPrecision(
        precision=replace(assign_precision(context, model, candidates, file=chosen), chosen=chosen),
        measure=MeasureShard(candidates=candidates, parameters=parameters, shards=shards, observing=observing),
        parameters=parameters,
    )


def _check(context: RuleContext, candidates: tuple[str, ...], budget: str) -> None:
    """Report candidates that compute in different types, and a budget that is none."""
    try:
        check_one_dtype(map(schemes.scheme, candidates))
    except StageError as error:
        context.report(error, attribute="candidates")
    try:
        parse_budget(budget, candidates)
    except StageError as error:
        context.report(error, attribute="budget")
