"""`stablehlo_module`: a function of JAX as StableHLO, which XLA and other compilers take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlcbuild.engine.action import DerivedArtifact
from mlcbuild.rules.environments import ENVIRONMENT, environment_stage, environment_with
from mlcbuild.rules.providers import FilesInfo, Provider
from mlcbuild.rules.python_source import source_attributes, source_of
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema

PLATFORMS = tuple("cpu cuda rocm tpu".split())  # noqa: SIM905  # JAX's words, whatever ours are
PROCESSORS, NVIDIA_GPUS = PLATFORMS[:2]


@dataclass(frozen=True, kw_only=True)
class StableHloInfo(Provider):
    """A function in jax.export's form, for these platforms, and its StableHLO; weights are arguments of it."""

    name: ClassVar[str] = "stablehlo"
    noun: ClassVar[str] = "stablehlo_module"

    exported: DerivedArtifact
    module: DerivedArtifact
    platforms: tuple[str, ...]


def implement(context: RuleContext) -> Providers:
    target = context.target
    environment = environment_with(context, "jax", "jaxlib", "flatbuffers")
    source, called = source_of(context)
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
    return (
        FilesInfo(
            files=(
                ("model.jaxexp", exported),
                ("model.json", made.output("out/model.json")),
                ("model.mlirbc", module),
            )
        ),
        StableHloInfo(exported=exported, module=module, platforms=platforms),
    )


STABLEHLO_MODULE = Rule(
    schema=RuleSchema(
        name="stablehlo_module",
        doc="A function of JAX as StableHLO. Its weights are arguments, so that no weight compiles anything again.",
        attributes=(
            *source_attributes(
                imports="jax",
                returns="what computes, its weights as a dictionary of shapes and types (jax.ShapeDtypeStruct), which "
                "are its first argument, and its other arguments' shapes, as a tuple.",
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
