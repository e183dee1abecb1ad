"""`stablehlo_module`: a function of JAX as StableHLO, which XLA and other compilers take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlcbuild.engine.action import DerivedArtifact
from mlcbuild.rules.environments import ENVIRONMENT, EnvironmentInfo, environment_stage, environment_with
from mlcbuild.rules.exported_layer import JAX_SOURCE
from mlcbuild.rules.providers import FilesInfo, Provider
from mlcbuild.rules.python_source import source_attributes, source_of, weights_of
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema

PLATFORMS = tuple("cpu cuda rocm tpu".split())  # noqa: SIM905  # JAX's words, whatever ours are
PROCESSORS, NVIDIA_GPUS = PLATFORMS[:2]
WEIGHTS = "weights.npz"


@dataclass(frozen=True, kw_only=True)
class StableHloInfo(Provider):
    """A function in jax.export's form, for these platforms, and its StableHLO; weights are arguments of it."""

    name: ClassVar[str] = "stablehlo"
    noun: ClassVar[str] = "stablehlo_module"

    exported: DerivedArtifact
    module: DerivedArtifact
    platforms: tuple[str, ...]
    weights: DerivedArtifact | None = None  # weights.npz, for those who run it


def implement(context: RuleContext) -> Providers:
    target = context.target
    environment = environment_with(context, "jax", "jaxlib", "flatbuffers")
    source, called = source_of(context, JAX_SOURCE)
    platforms = tuple(sorted(set(target.strings("platforms") or (PROCESSORS,))))
    for unknown in sorted(set(platforms).difference(PLATFORMS)):
        context.report(
            f'"{unknown}" is no platform of JAX', attribute="platforms", advice=(f"known: {', '.join(PLATFORMS)}",)
        )
    made = environment_stage(
        context,
        "ExportStableHLO",
        "mlcbuild.compiler.environments.programs.export_stablehlo:run",
        environment=environment,
        inputs={"source": source},
        outputs={"exported": "model.jaxexp", "module": "model.mlirbc", "description": "model.json"},
        parameters={**called, "platforms": list(platforms)},
    )
    exported, module = made.output("out/model.jaxexp"), made.output("out/model.mlirbc")
    description = made.output("out/model.json")
    files = (("model.jaxexp", exported), ("model.json", description), ("model.mlirbc", module))
    weights = _checked_weights(context, environment, description) if target.has("weights") else None
    return (
        FilesInfo(files=files if weights is None else (*files, (WEIGHTS, weights))),
        StableHloInfo(exported=exported, module=module, platforms=platforms, weights=weights),
    )


def _checked_weights(
    context: RuleContext, environment: EnvironmentInfo, description: DerivedArtifact
) -> DerivedArtifact:
    checked = environment_stage(
        context,
        "CheckWeights",
        "mlcbuild.compiler.environments.programs.check_weights:run",
        environment=environment,
        inputs={"weights": weights_of(context), "description": description},
        outputs={"checked": WEIGHTS},
    )
    return checked.output(f"out/{WEIGHTS}")


STABLEHLO_MODULE = Rule(
    schema=RuleSchema(
        name="stablehlo_module",
        doc="A function of JAX as StableHLO. Its weights are arguments, so that no weight compiles anything again.",
        attributes=(
            *source_attributes(
                takes_layers=True,
                imports="jax",
                returns="what computes, its weights as a dictionary of shapes and types (jax.ShapeDtypeStruct), which "
                "are its first argument, and its other arguments' shapes, as a tuple.",
            ),
            Attribute(
                name="weights",
                kind=AttributeKind.LABEL,
                allow_files=True,
                doc="Safetensors files with the weights, by their names, for those who run what is compiled of it. "
                "They are checked, and written beside it as weights.npz. Left out: there are none, and no comparison "
                "runs it.",
            ),
            ENVIRONMENT,
            Attribute(
                name="platforms",
                kind=AttributeKind.STRING_LIST,
                doc="What it can be compiled for: cpu, cuda, rocm, tpu. Left out: cpu.",
            ),
        ),
        provides=("files", "stablehlo"),
    ),
    implementation=implement,
)
