"""`relax_module`: a model by TVM's own `relax.build`, beside this pipeline."""

from __future__ import annotations

from mlcbuild.engine.action import JsonValue
from mlcbuild.rules.compiled_models import CompiledModelInfo
from mlcbuild.rules.environments import ENVIRONMENT, environment_stage, environment_with
from mlcbuild.rules.onnx_model import MODEL, OnnxInfo
from mlcbuild.rules.processors import processor_error
from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.requirements import REQUIREMENTS, requirements_of
from mlcbuild.rules.rule import Providers, Rule, RuleContext, StageInput
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema

_TRIPLE = "x86_64-unknown-linux-gnu"
_LIBRARY = "model.so"
CPU = Attribute(
    name="cpu",
    kind=AttributeKind.STRING,
    mandatory=True,
    nonempty=True,
    doc="The processor that the library is for, as LLVM calls it: x86-64-v3.",
)


def implement(context: RuleContext) -> Providers:
    target = context.target
    environment = environment_with(context, "apache-tvm", "onnx")
    inputs: dict[str, StageInput] = {"model": context.required(MODEL.name, OnnxInfo).model}
    if label := target.optional_label("records"):
        inputs["records"] = context.files(label)
        if not context.files(label).is_single_file:
            raise context.error("records is not one file", attribute="records")
    compiled = environment_stage(
        context,
        "BuildRelax",
        "mlcbuild.compiler.environments.programs.build_relax:run",
        environment=environment,
        inputs=inputs,
        outputs={"library": _LIBRARY},
        parameters={"target": processor_target(context)},
        toolchains=("ld",),
        requirements=requirements_of(target),
    )
    artifact = ((_LIBRARY, compiled.output(f"out/{_LIBRARY}")),)
    return (
        FilesInfo(files=artifact),
        CompiledModelInfo(
            compiler="TVM MetaSchedule" if "records" in inputs else "TVM relax.build",
            distribution="apache-tvm",
            artifact=artifact,
            environment=environment,
            runtime="mlcbuild.compiler.environments.runtimes.relax_vm:load",
        ),
    )


def processor_target(context: RuleContext) -> dict[str, JsonValue]:
    """TVM's target for the processor that the attribute `cpu` names."""
    cpu = context.target.string(CPU.name)
    if (wrong := processor_error(_TRIPLE, cpu)) is not None:
        raise context.error(wrong[0], attribute=CPU.name, advice=wrong[1])
    return {"kind": "llvm", "mtriple": _TRIPLE, "mcpu": cpu}


RELAX_MODULE = Rule(
    schema=RuleSchema(
        name="relax_module",
        doc="A model as TVM alone builds it, by its ONNX frontend and relax.build with TVM's default schedules, for "
        "processors of x86-64 with Linux: what this pipeline adds to TVM can be measured against it.",
        attributes=(
            MODEL,
            ENVIRONMENT,
            CPU,
            Attribute(
                name="records",
                kind=AttributeKind.LABEL,
                allow_files=True,
                doc="What MetaSchedule measured of this model: a relax_tuning, or a records.json that it made. Its "
                "fastest schedules are taken, and nothing is measured. Left out: TVM's default schedules.",
            ),
            REQUIREMENTS,
        ),
        provides=("files", "compiled_model"),
    ),
    implementation=implement,
)
