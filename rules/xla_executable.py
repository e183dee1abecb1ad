"""`xla_executable`: a function that XLA has compiled, for processors of one level, or for a GPU."""

from __future__ import annotations

from mlcbuild.engine.action import CachePolicy
from mlcbuild.rules.compiled_models import CompiledModelInfo
from mlcbuild.rules.environments import ENVIRONMENT, environment_stage, environment_with
from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.requirements import REQUIREMENTS, requirements_of
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.rules.stablehlo_module import NVIDIA_GPUS, PROCESSORS, WEIGHTS, StableHloInfo
from mlcbuild.rules.target_processor import PROCESSOR, processor_toolchain
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema

_PROGRAM = "mlcbuild.compiler.environments.programs.compile_xla"
_CUDA = ("jax-cuda13-plugin", "jax-cuda13-pjrt")


def implement(context: RuleContext) -> Providers:
    target = context.target
    gpu = target.optional_label("gpu")
    environment = environment_with(context, "jax", "jaxlib", "flatbuffers", *(_CUDA if gpu else ()))
    model = context.required("model", StableHloInfo)
    platform = NVIDIA_GPUS if gpu else PROCESSORS
    if platform not in model.platforms:
        context.report(
            f"{target.label_of('model')} is not for {platform}",
            attribute="model",
            advice=(f'add "{platform}" to its platforms',),
        )
    if gpu is None:
        if (threads := target.integer("threads")) < 1:
            context.report(f"threads = {threads} is no number of threads", attribute="threads")
        # XLA compiles in parallel, and writes its object files in the order in which they are done.
        compiled = environment_stage(
            context,
            "CompileXLA",
            f"{_PROGRAM}:for_processor",
            environment=environment,
            inputs={"exported": model.exported},
            outputs={"executable": "model.xla"},
            parameters={"level": target.optional_string(PROCESSOR.name) or "", "threads": threads},
            toolchains=processor_toolchain(context),
            requirements=requirements_of(target),
            cache=CachePolicy.NON_REPRODUCIBLE,
        )
    else:
        for name in (PROCESSOR.name, "threads"):
            if target.has(name):
                context.report(f"{name} is for a processor, and a gpu is named", attribute=name)
        described = context.files(gpu)
        if not described.is_single_file:
            raise context.error("gpu is not one file", attribute="gpu")
        compiled = environment_stage(
            context,
            "CompileXLA",
            f"{_PROGRAM}:for_gpu",
            environment=environment,
            inputs={"exported": model.exported, "gpu": described},
            outputs={"executable": "model.xla"},
            parameters={"platform": platform},
            requirements=requirements_of(target),
            cache=CachePolicy.NON_REPRODUCIBLE,  # It names the folder of jax's own files.
        )
    executable = ("model.xla", compiled.output("out/model.xla"))
    if gpu is not None or model.weights is None:
        return (FilesInfo(files=(executable,)),)
    artifact = (executable, (WEIGHTS, model.weights))
    return (
        FilesInfo(files=artifact),
        CompiledModelInfo(
            compiler="XLA",
            distribution="jaxlib",
            artifact=artifact,
            environment=environment,
            runtime="mlcbuild.compiler.environments.runtimes.xla:load",
        ),
    )


XLA_EXECUTABLE = Rule(
    schema=RuleSchema(
        name="xla_executable",
        doc="A function compiled by XLA, and beside it the weights that its module names. jax of the same version "
        "loads it. Its bytes differ from run to run, and so it is declared to be non-reproducible. No GPU need be "
        "there.",
        attributes=(
            Attribute(
                name="model",
                kind=AttributeKind.LABEL,
                mandatory=True,
                provides=("stablehlo",),
                doc="The stablehlo_module.",
            ),
            ENVIRONMENT,
            PROCESSOR,
            Attribute(
                name="threads",
                kind=AttributeKind.INTEGER,
                default=1,
                doc="How many threads of a processor the work is divided for.",
            ),
            Attribute(
                name="gpu",
                kind=AttributeKind.LABEL,
                allow_files=True,
                doc="XLA's description of an NVIDIA GPU, a GpuTargetConfig in protobuf's text form. Left out: it is "
                "for a processor.",
            ),
            REQUIREMENTS,
        ),
        provides=("files", "compiled_model"),
    ),
    implementation=implement,
)
