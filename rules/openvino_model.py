"""`openvino_model`: a model in OpenVINO's form, or compiled by it."""

from __future__ import annotations

from mlcbuild.engine.action import DerivedArtifact
from mlcbuild.rules.compiled_models import CompiledModelInfo
from mlcbuild.rules.environments import ENVIRONMENT, EnvironmentInfo, environment_stage, environment_with
from mlcbuild.rules.onnx_model import MODEL, OnnxInfo
from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.requirements import REQUIREMENTS, requirements_of
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.rules.target_processor import PROCESSOR, processor_toolchain
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema

_PROGRAMS = "mlcbuild.compiler.environments.programs.convert_openvino"


def implement(context: RuleContext) -> Providers:
    target = context.target
    environment = environment_with(context, "openvino")
    model = context.required(MODEL.name, OnnxInfo).model
    if target.string("form") == "blob":
        if target.has("weights"):
            context.report("a blob has the weights that it computes with", attribute="weights")
        precision = target.optional_string("precision") or "f32"
        compiled = environment_stage(
            context,
            "CompileOpenVINO",
            f"{_PROGRAMS}:compile_model",
            environment=environment,
            inputs={"model": model},
            outputs={"blob": "model.blob"},
            parameters={"precision": precision},
            toolchains=processor_toolchain(context),
            requirements=requirements_of(target),
        )
        return _provided((("model.blob", compiled.output("out/model.blob")),), environment, precision)
    for name in ("precision", PROCESSOR.name):
        if target.has(name):
            context.report(f"{name} is for a blob: whoever loads an ir decides it", attribute=name)
    converted = environment_stage(
        context,
        "ConvertOpenVINO",
        f"{_PROGRAMS}:convert",
        environment=environment,
        inputs={"model": model},
        outputs={"network": "model.xml", "weights": "model.bin"},
        parameters={"half": target.optional_string("weights") == "f16"},
        requirements=requirements_of(target),
    )
    return _provided(
        tuple((name, converted.output(f"out/{name}")) for name in ("model.bin", "model.xml")), environment, "f32"
    )


def _provided(
    artifact: tuple[tuple[str, DerivedArtifact], ...], environment: EnvironmentInfo, precision: str
) -> Providers:
    """Whoever loads it says what to compute in."""
    return (
        FilesInfo(files=artifact),
        CompiledModelInfo(
            compiler="OpenVINO",
            distribution="openvino",
            artifact=artifact,
            environment=environment,
            runtime="mlcbuild.compiler.environments.runtimes.open_vino:load",
            options=(("precision", precision),),
        ),
    )


OPENVINO_MODEL = Rule(
    schema=RuleSchema(
        name="openvino_model",
        doc="A model for OpenVINO: model.xml and model.bin for all devices, or compiled for processors of one level.",
        attributes=(
            MODEL,
            ENVIRONMENT,
            Attribute(
                name="form",
                kind=AttributeKind.CHOICE,
                allowed=("ir", "blob"),
                default="ir",
                doc="ir is compiled when it is loaded; blob is compiled already, for CPUs.",
            ),
            Attribute(
                name="weights",
                kind=AttributeKind.CHOICE,
                allowed=("f32", "f16"),
                doc="How an ir stores float32 weights. Left out: f32.",
            ),
            Attribute(
                name="precision",
                kind=AttributeKind.CHOICE,
                allowed=("f32", "f16", "bf16"),
                doc="What a blob is compiled to compute in. Left out: f32, whatever the processor has. OpenVINO "
                "asks for it again when it loads the blob: INFERENCE_PRECISION_HINT.",
            ),
            PROCESSOR,
            REQUIREMENTS,
        ),
        provides=("files", "compiled_model"),
    ),
    implementation=implement,
)
