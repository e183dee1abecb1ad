"""`ort_model`: a model as ONNX Runtime has optimized it."""

from __future__ import annotations

from mlcbuild.engine.action import CachePolicy
from mlcbuild.rules.compiled_models import CompiledModelInfo
from mlcbuild.rules.environments import ENVIRONMENT, environment_stage, environment_with
from mlcbuild.rules.onnx_model import MODEL, OnnxInfo
from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.requirements import REQUIREMENTS, requirements_of
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.rules.target_processor import PROCESSOR, processor_toolchain
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema

# A table in ONNX Runtime's own form has the order of memory addresses, so that two runs differ in bytes.
_CACHED = {"onnx": CachePolicy.ALL, "ort": CachePolicy.NON_REPRODUCIBLE}


def implement(context: RuleContext) -> Providers:
    target = context.target
    environment = environment_with(context, "onnxruntime")
    level, form = target.string("level"), target.string("format")
    depends = level == "all"
    if not depends and target.has(PROCESSOR.name):
        context.report(f'level "{level}" does not depend on a processor', attribute=PROCESSOR.name)
    name = f"model.{form}"
    optimized = environment_stage(
        context,
        "OptimizeOnnx",
        "mlcbuild.compiler.environments.programs.optimize_onnx:run",
        environment=environment,
        inputs={"model": context.required(MODEL.name, OnnxInfo).model},
        outputs={"optimized": name},
        parameters={"level": level, "form": form},
        toolchains=processor_toolchain(context) if depends else (),
        requirements=requirements_of(target),
        cache=_CACHED[form],
    )
    artifact = ((name, optimized.output(f"out/{name}")),)
    return (
        FilesInfo(files=artifact),
        CompiledModelInfo(
            compiler="ONNX Runtime",
            distribution="onnxruntime",
            artifact=artifact,
            environment=environment,
            runtime="mlcbuild.compiler.environments.runtimes.ort:load",
        ),
    )


ORT_MODEL = Rule(
    schema=RuleSchema(
        name="ort_model",
        doc="A model for ONNX Runtime, optimized when it is built instead of each time it is loaded. The numbers keep "
        "the types that the model has.",
        attributes=(
            MODEL,
            ENVIRONMENT,
            Attribute(
                name="format",
                kind=AttributeKind.CHOICE,
                allowed=("onnx", "ort"),
                default="onnx",
                doc="ort is ONNX Runtime's own form, which its reduced builds load too. Its bytes differ from run to "
                "run, and so it is declared to be non-reproducible.",
            ),
            Attribute(
                name="level",
                kind=AttributeKind.CHOICE,
                allowed=("none", "basic", "extended", "all"),
                default="all",
                doc="How far ONNX Runtime optimizes. all also chooses layouts for the processor, so that the result is "
                "for processors of one level; the others are for all.",
            ),
            PROCESSOR,
            REQUIREMENTS,
        ),
        provides=("files", "compiled_model"),
    ),
    implementation=implement,
)
