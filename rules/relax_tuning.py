"""`relax_tuning`: what TVM's MetaSchedule measures of a model, for a `relax_module`."""

from __future__ import annotations

from mlcbuild.engine.action import MORE_CPUS_THAN_ANY, CachePolicy, ExecutionRequirements
from mlcbuild.rules.environments import ENVIRONMENT, environment_stage, environment_with
from mlcbuild.rules.onnx_model import MODEL, OnnxInfo
from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.relax_module import CPU, processor_target
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema

_RECORDS = "records.json"
_START_SECONDS = 600.0  # of a search, without its candidates


def implement(context: RuleContext) -> Providers:
    target = context.target
    environment = environment_with(context, "apache-tvm", "onnx", "psutil")  # the search asks it for cores
    # The search sees shapes and operators: other weights search for nothing.
    blank = environment_stage(
        context,
        "BlankOnnx",
        "mlcbuild.compiler.environments.programs.blank_onnx:run",
        environment=environment,
        inputs={"model": context.required(MODEL.name, OnnxInfo).model},
        outputs={"graph": "model.onnx"},
    )
    found = environment_stage(
        context,
        "SearchSchedules",
        "mlcbuild.compiler.environments.programs.build_relax:search",
        environment=environment,
        inputs={"graph": blank.output("out/model.onnx")},
        outputs={"records": _RECORDS},
        parameters={
            "target": {**processor_target(context), "num-cores": target.integer("threads")},
            "trials": target.integer("trials"),
            "seed": target.integer("seed"),
            "candidate_seconds": target.integer("candidate_seconds"),
        },
        toolchains=("machine:here",),
        # It is true of the machine that it was measured on.
        cache=CachePolicy.LOCAL,
        requirements=ExecutionRequirements(
            cpus=MORE_CPUS_THAN_ANY,
            timeout_seconds=_START_SECONDS + target.integer("candidate_seconds") * target.integer("trials"),
        ),
    )
    return (FilesInfo(files=((_RECORDS, found.output(f"out/{_RECORDS}")),)),)


RELAX_TUNING = Rule(
    schema=RuleSchema(
        name="relax_tuning",
        doc="A search by TVM's MetaSchedule for fast schedules of a model's kernels, by measuring candidates on the "
        "machine that builds, with nothing else running there of mlcbuild's. Its result, records.json, is never taken "
        "from another machine or sent to one. Other weights of the model search for nothing. Copied into the "
        "workspace, it is a source file as others are, and what is built with it is the same everywhere.",
        attributes=(
            Attribute(
                name="model",
                kind=AttributeKind.LABEL,
                mandatory=True,
                provides=("onnx",),
                doc="The onnx_model. All of its sizes are fixed.",
            ),
            ENVIRONMENT,
            CPU,
            Attribute(
                name="trials",
                kind=AttributeKind.INTEGER,
                minimum=1,
                mandatory=True,
                doc="How many candidates are measured in all, about a second each.",
            ),
            Attribute(
                name="threads",
                kind=AttributeKind.INTEGER,
                minimum=1,
                default=1,
                doc="How many threads a kernel is divided for.",
            ),
            Attribute(
                name="candidate_seconds",
                kind=AttributeKind.INTEGER,
                minimum=1,
                default=30,
                doc="How long a candidate may take to be compiled and measured, in a process of its own. One that "
                "takes longer, or crashes, is left out.",
            ),
            Attribute(name="seed", kind=AttributeKind.INTEGER, minimum=0, default=0, doc="Of the search."),
        ),
        provides=("files",),
    ),
    implementation=implement,
)
