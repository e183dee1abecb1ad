"""`torch_aoti_library`: a model that PyTorch's AOTInductor has compiled for processors of one level."""

from __future__ import annotations

from mlcbuild.rules.compiled_models import CompiledModelInfo
from mlcbuild.rules.environments import ENVIRONMENT, environment_stage, environment_with
from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.requirements import REQUIREMENTS, requirements_of
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.rules.torch_model import MODEL, TorchModelInfo
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema


def implement(context: RuleContext) -> Providers:
    target = context.target
    environment = environment_with(context, "torch", "safetensors")
    if (threads := target.integer("threads")) < 0:
        context.report(f"threads = {threads} is no number of threads", attribute="threads")
    model = context.required(MODEL.name, TorchModelInfo)
    compiled = environment_stage(
        context,
        "CompileAOTI",
        "mlcbuild.compiler.environments.programs.compile_aoti:run",
        environment=environment,
        inputs={"exported": model.program},
        outputs={"library": "model.pt2", "constants": "constants.safetensors"},
        parameters={"level": target.string("cpu"), "threads": threads},
        toolchains=("gxx",),
        requirements=requirements_of(target),
    )
    made = tuple((name, compiled.output(f"out/{name}")) for name in ("constants.safetensors", "model.pt2"))
    artifact = (*made, ("weights.safetensors", model.weights))
    return (
        FilesInfo(files=artifact),
        CompiledModelInfo(
            compiler="AOTInductor",
            distribution="torch",
            artifact=artifact,
            environment=environment,
            runtime="mlcbuild.compiler.environments.runtimes.torch_aoti:load",
        ),
    )


TORCH_AOTI_LIBRARY = Rule(
    schema=RuleSchema(
        name="torch_aoti_library",
        doc="A model of PyTorch compiled by AOTInductor, and beside it its weights and other "
        "constants. g++ must be installed where it is built, but no processor of that level.",
        attributes=(
            MODEL,
            ENVIRONMENT,
            Attribute(
                name="cpu",
                kind=AttributeKind.CHOICE,
                allowed=("x86-64-v2", "x86-64-v3", "x86-64-v4"),
                mandatory=True,
                doc="The level of the processors that it is for: v3 has AVX2, v4 AVX-512.",
            ),
            Attribute(
                name="threads",
                kind=AttributeKind.INTEGER,
                default=0,
                doc="How many threads its own loops take. 0: as many as the process that runs it has.",
            ),
            REQUIREMENTS,
        ),
        provides=("files", "compiled_model"),
    ),
    implementation=implement,
)
