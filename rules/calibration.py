"""Calibration: a model is observed while it reads a text, and a method changes its weights by what was seen.

SampleTexts → Observe (one a shard of the sample) → MergeStatistics, with a library of its own: ExportObserved → Phase0
… Link. They name no scheme: every scheme and method of a model shares them. Then a method declares what it does once
for a model, and announces an action for each imported shard, which Quantize takes as it takes any shard.

Methods are plug-ins: modules of `rules/calibration_methods/`, each with a METHOD.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Protocol

from mlcbuild.compiler.manifest import read_manifest
from mlcbuild.engine.action import (
    Action,
    DerivedArtifact,
    DiscoveredArtifacts,
    Discovery,
    ExecutionRequirements,
)
from mlcbuild.plugins import plugins_in
from mlcbuild.rules import schemes
from mlcbuild.rules.backend import PlatformInfo
from mlcbuild.rules.compiled_module import compile_module
from mlcbuild.rules.configured_model import ConfiguredModel, configure
from mlcbuild.rules.families import model_plugins
from mlcbuild.rules.imported_weights import ShardFiles, source_of
from mlcbuild.rules.optimization import LEVELS
from mlcbuild.rules.precision import TargetPrecision
from mlcbuild.rules.providers import FilesInfo, ModelInfo, Provider
from mlcbuild.rules.rule import RuleContext, stage_action
from mlcbuild.workspace.schema import Attribute, AttributeKind

if TYPE_CHECKING:
    from mlcbuild.compiler.quantization.scheme import QuantizationScheme

OBSERVED_SCHEME = "q0f32"
_PLAIN = "no-quant"  # the kind of schemes that store matrices as they are
_PART = "observation"  # the word of the observing library's actions
_STATISTICS = "statistics"


@dataclass(frozen=True, kw_only=True)
class CalibrationTextInfo(Provider):
    """A sample of texts, and how a model is observed on it: `samples` pieces of `tokens` tokens, in so many `shards`,
    each an action, on `platform`."""

    name: ClassVar[str] = "calibration_text"
    noun: ClassVar[str] = "calibration_text"

    texts: FilesInfo
    samples: int
    tokens: int
    seed: int
    shards: int
    platform: PlatformInfo
    requirements: ExecutionRequirements


CALIBRATION = Attribute(
    name="calibration",
    kind=AttributeKind.LABEL,
    provides=(CalibrationTextInfo.name,),
    doc="The calibration_text by which the weights are calibrated before they are quantized. Left out: they are "
    "quantized as they are.",
)


@dataclass(frozen=True, kw_only=True)
class ObserveShards:
    """Announces an Observe for each shard of the sample; the group STATISTICS has a folder of each."""

    owner: str
    shards: DiscoveredArtifacts
    parameters: DerivedArtifact
    library: DerivedArtifact
    observation: DerivedArtifact
    requirements: ExecutionRequirements

    def __call__(self, *, discovering: str, manifest: bytes) -> Discovery:
        actions = []
        folders = []
        for shard in read_manifest(manifest)["shards"]:
            number = str(shard["file"]).partition("_")[2].partition(".")[0]
            observe = stage_action(
                f"{self.owner} Observe {int(number)}",
                "Observe",
                "mlcbuild.compiler.stages.observe:run",
                owner=self.owner,
                inputs={
                    "samples": DerivedArtifact(action=discovering, path=f"out/shards/{shard['file']}"),
                    "shards": self.shards,
                    "parameters": self.parameters,
                    "library": self.library,
                    "observation": self.observation,
                },
                outputs={"statistics": f"{_STATISTICS}_{number}/"},
                parameters={},
                toolchains=("tvm",),
                requirements=self.requirements,
            )
            actions.append(observe)
            folders.append(observe.output(f"out/{_STATISTICS}_{number}/"))
        return Discovery(actions=tuple(actions), groups=((_STATISTICS, tuple(folders)),))


@dataclass(frozen=True, kw_only=True)
class Observing:
    """What a model is observed by: the `library` and its `observation`, and the folder of `samples`. `requirements` are
    those of actions that run the model."""

    sampling: Action
    library: DerivedArtifact
    observation: DerivedArtifact
    requirements: ExecutionRequirements

    @property
    def samples(self) -> DerivedArtifact:
        return self.sampling.output("out/shards/")


def prepare_observing(
    context: RuleContext,
    model: ModelInfo,
    text: CalibrationTextInfo,
    *,
    parameters: DerivedArtifact,
    shards: DiscoveredArtifacts,
) -> Observing:
    """Declare what a model is observed by on a text. `parameters` is the list of the model whose imported shards are
    given. Raises WorkspaceError for a bare shape."""
    source_of(context, model)
    assert model.tokenizer is not None  # a model with weights has a source, and a source has a tokenizer
    configured = configure(context, model, quantization=OBSERVED_SCHEME, platform=text.platform, part=_PART)
    library, observation = _observing_library(context, model, configured, text.platform)
    requirements = _to_observe(text)
    sampling = context.stage(
        "SampleTexts",
        "mlcbuild.compiler.stages.sample_texts:run",
        inputs={"texts": text.texts, "tokenizer": model.tokenizer},
        outputs={"shards": "shards/", "manifest": "manifest.json"},
        parameters={
            "samples": text.samples,
            "tokens": text.tokens,
            "seed": text.seed,
            "shard_count": text.shards,
        },
        manifest="manifest",
        discoverer=ObserveShards(
            owner=str(context.label),
            shards=shards,
            parameters=parameters,
            library=library,
            observation=observation,
            requirements=requirements,
        ),
    )
    return Observing(sampling=sampling, library=library, observation=observation, requirements=requirements)


def _to_observe(text: CalibrationTextInfo) -> ExecutionRequirements:
    """What the text asks for, and the device of its platform. A text may ask for a part of one that it shares."""
    said, needed = text.requirements, text.platform.run_requirements
    return replace(
        said,
        gpus=said.gpus or needed.gpus,
        labels=tuple(sorted({**dict(needed.labels), **dict(said.labels)}.items())),
        execution_hints=(("threads", said.cpus),),
    )


def observe_model(
    context: RuleContext,
    model: ModelInfo,
    text: CalibrationTextInfo,
    *,
    parameters: DerivedArtifact,
    shards: DiscoveredArtifacts,
) -> DerivedArtifact:
    """Declare the actions to the statistics of a model on a text: a folder. The arguments are those of
    `prepare_observing`."""
    return merge_statistics(context, prepare_observing(context, model, text, parameters=parameters, shards=shards))


def merge_statistics(context: RuleContext, observing: Observing) -> DerivedArtifact:
    """Declare the statistics of all that is observed: a folder."""
    merging = context.stage(
        "MergeStatistics",
        "mlcbuild.compiler.stages.merge_statistics:run",
        inputs={"observed": DiscoveredArtifacts(action=observing.sampling.identifier, group=_STATISTICS)},
        outputs={"statistics": f"{_STATISTICS}/"},
    )
    return merging.output(f"out/{_STATISTICS}/")


def _observing_library(
    context: RuleContext, model: ModelInfo, configured: ConfiguredModel, platform: PlatformInfo
) -> tuple[DerivedArtifact, DerivedArtifact]:
    export = context.stage(
        "ExportObserved",
        "mlcbuild.compiler.stages.export_observed:run",
        inputs={"model": model.model},
        outputs={"module": "module.json", "metadata": "metadata.json", "observation": "observation.json"},
        plugins={"models": model_plugins(), "scheme": schemes.plugin(OBSERVED_SCHEME)},
        toolchains=("tvm",),
    )
    # No step is repeated as it is: functions are given the weights of one layer after the other.
    compiled = compile_module(context, export, model, configured, platform, optimization=LEVELS["O1"], part=_PART)
    return compiled.library, export.output("out/observation.json")


@dataclass(frozen=True, kw_only=True)
class CalibrationInputs:
    """What a method may declare actions of: the model's imported `shards`, its list of `parameters`, and the folder of
    `statistics`. `precision` has the schemes, and makes stages that take them."""

    precision: TargetPrecision
    parameters: DerivedArtifact
    shards: ShardFiles
    statistics: DerivedArtifact

    def statistic(self, file: str) -> DerivedArtifact:
        """One file of the statistics."""
        return replace(self.statistics, path=f"{self.statistics.path}{file}")


class CalibrateShard(Protocol):
    """The action that calibrates the imported shard of a number: a frozen dataclass, because it is kept with the
    actions of a workspace."""

    def __call__(self, *, owner: str, index: int, shard: DerivedArtifact) -> tuple[Action, DerivedArtifact]:
        """An action of the target `owner`, whose identifier ends with the number, and its output: a shard of made
        parameters (`compiler.calibration.made_parameters`)."""


@dataclass(frozen=True, kw_only=True)
class CalibrationMethod:
    """A method: `doc` is a sentence for the reference of rules.

    `refusal` says why a scheme cannot be calibrated by it, "" where it can; `is_default` whether a scheme is, where a
    target names no method. Of a target with several schemes all have to be, but for those that quantize nothing.
    `declare` declares what is done once for a target, and returns what is done with each shard. `attributes` are those
    that only this method reads.
    """

    name: str
    doc: str
    refusal: Callable[[QuantizationScheme], str]
    is_default: Callable[[QuantizationScheme], bool]
    declare: Callable[[RuleContext, CalibrationInputs], CalibrateShard]
    attributes: tuple[Attribute, ...] = ()


@cache
def methods() -> Mapping[str, CalibrationMethod]:
    """All methods by name, sorted. Raises ValueError for a module that has none, or one of another name."""
    found = {}
    for name in plugins_in("rules/calibration_methods"):
        method = getattr(importlib.import_module(f"mlcbuild.rules.calibration_methods.{name}"), "METHOD", None)
        if not isinstance(method, CalibrationMethod) or method.name != name:
            raise ValueError(f"rules/calibration_methods/{name}.py has no METHOD called {name!r}")
        found[name] = method
    return found


def method_of(context: RuleContext, names: Sequence[str]) -> CalibrationMethod | None:
    """The method by which a target with schemes of these names is calibrated, by `calibration_method` or the default of
    the first that has one. None after reporting that there is none."""
    found = [schemes.scheme(name) for name in names]
    quantizing = [scheme for scheme in found if scheme.kind != _PLAIN] or found
    named = context.target.optional_string("calibration_method")
    fitting = [each for each in methods().values() if not any(map(each.refusal, quantizing))]
    if named is not None:
        method = methods()[named]
        if method in fitting:
            return method
        refused = next(scheme for scheme in quantizing if method.refusal(scheme))
        all_of = "+".join(names)
        advice = f"what calibrates {all_of}: {', '.join(each.name for each in fitting) or 'nothing'}"
        context.report(
            f"{named} does not calibrate {refused.name}: {method.refusal(refused)}",
            attribute="calibration_method",
            advice=(advice,),
        )
        return None
    for scheme in quantizing:
        for method in fitting:
            if method.is_default(scheme):
                return method
    quantization = next(
        (scheme.name for scheme in quantizing if not any(each.is_default(scheme) for each in methods().values())),
        "+".join(names),
    )
    if fitting:
        named_ones = " or ".join(f'"{each.name}"' for each in fitting)
        context.report(
            f"no method calibrates {quantization} unless it is named",
            attribute="calibration",
            advice=(f"write calibration_method = {named_ones}, or leave `calibration` out",),
        )
        return None
    calibrated = [
        name for name in schemes.NAMES if any(not each.refusal(schemes.scheme(name)) for each in methods().values())
    ]
    context.report(
        f"no method calibrates {quantization}",
        attribute="calibration",
        advice=(f"leave `calibration` out, or choose one of: {', '.join(calibrated)}",),
    )
    return None


def calibration_attributes() -> tuple[Attribute, ...]:
    """The attributes of targets whose weights can be calibrated; none where there is no method."""
    if not methods():
        return ()
    method = Attribute(
        name="calibration_method",
        kind=AttributeKind.CHOICE,
        allowed=tuple(methods()),
        doc="How the weights are calibrated. "
        + " ".join(f"{name}: {each.doc}" for name, each in methods().items())
        + " Left out: what the quantization asks for.",
    )
    return (CALIBRATION, method, *(attribute for each in methods().values() for attribute in each.attributes))


@dataclass(frozen=True, kw_only=True)
class ShardCalibration:
    """What happens to each shard before Quantize: the method's action, and the list by which Quantize reads what that
    wrote."""

    calibrate: CalibrateShard
    parameters: DerivedArtifact


def calibration_of(
    context: RuleContext,
    model: ModelInfo,
    *,
    precision: TargetPrecision,
    parameters: DerivedArtifact,
    shards: ShardFiles,
    statistics: DerivedArtifact | None = None,
) -> ShardCalibration | None:
    """Declare the calibration of a target with `calibration_attributes`; None where it is not calibrated. `statistics`
    are those of the target's text, where it has declared them already. Reports a method that does not fit, and what it
    would need."""
    label = context.target.optional_label(CALIBRATION.name) if methods() else None
    if label is None:
        if methods() and context.target.has("calibration_method"):
            context.report("calibration_method needs a `calibration`", attribute="calibration_method")
        return None
    method = method_of(context, precision.names)
    if method is None:
        return None
    for other in methods().values():
        for attribute in other.attributes:
            if other is not method and context.target.has(attribute.name):
                context.report(f"{attribute.name} is of {other.name}, not of {method.name}", attribute=attribute.name)
    if statistics is None:
        text = context.required(CALIBRATION.name, CalibrationTextInfo)
        statistics = observe_model(context, model, text, parameters=parameters, shards=shards.all)
    calibrate = method.declare(
        context, CalibrationInputs(precision=precision, parameters=parameters, shards=shards, statistics=statistics)
    )
    made = context.stage(
        "ListMadeParameters",
        "mlcbuild.compiler.stages.list_made_parameters:run",
        inputs={"parameters": parameters},
        outputs={"made": "parameters.json"},
    )
    return ShardCalibration(calibrate=calibrate, parameters=made.output("out/parameters.json"))
