"""`onnx_library`: an ONNX model by this pipeline, kernel by kernel.

ImportOnnx → ReadGraph → Phase1 … Phase3 → Partition → (ScheduleKernel → CompileKernel, one pair a distinct kernel)
→ Lower → Link.
"""

from __future__ import annotations

from mlcbuild.rules.backend import PlatformInfo
from mlcbuild.rules.compiled_models import CompiledModelInfo
from mlcbuild.rules.compiled_module import compile_graph
from mlcbuild.rules.environments import ENVIRONMENT, environment_stage, environment_with
from mlcbuild.rules.model_library import platform_of
from mlcbuild.rules.onnx_model import MODEL, OnnxInfo
from mlcbuild.rules.optimization import LEVELS
from mlcbuild.rules.passes import PhasePasses
from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema

_WEIGHTS = "weights.npz"


def implement(context: RuleContext) -> Providers:
    platform = platform_of(context)
    environment = environment_with(context, "apache-tvm", "onnx")
    imported = environment_stage(
        context,
        "ImportOnnx",
        "mlcbuild.compiler.environments.programs.import_onnx:run",
        environment=environment,
        inputs={"model": context.required(MODEL.name, OnnxInfo).model},
        outputs={"graph": "graph.json", "description": "model.json", "weights": _WEIGHTS},
    )
    read = context.stage(
        "ReadGraph",
        "mlcbuild.compiler.stages.read_graph:run",
        inputs={"graph": imported.output("out/graph.json"), "description": imported.output("out/model.json")},
        outputs={"module": "module.json", "metadata": "metadata.json"},
        toolchains=("tvm",),
    )
    compiled = compile_graph(
        context,
        read.output("out/module.json"),
        read.output("out/metadata.json"),
        platform,
        passes=PhasePasses(platform=platform, added=()),
        optimization=LEVELS[context.target.string("opt")],
    )
    artifact = (
        (f"model{platform.library_suffix}", compiled.library),
        (_WEIGHTS, imported.output(f"out/{_WEIGHTS}")),
    )
    if type(platform) is not PlatformInfo:
        return (FilesInfo(files=artifact),)  # Comparisons run what runs on the host.
    return (
        FilesInfo(files=artifact),
        CompiledModelInfo(
            compiler="mlcbuild on TVM",
            distribution="apache-tvm",
            artifact=artifact,
            environment=environment,
            runtime="mlcbuild.compiler.environments.runtimes.relax_vm:load",
        ),
    )


ONNX_LIBRARY = Rule(
    schema=RuleSchema(
        name="onnx_library",
        doc="An ONNX model compiled by this pipeline: TVM's frontend reads it, and what follows are the stages of a "
        "model_library from Phase1 on, with the same schedules and an action for each distinct kernel. Beside the "
        "library lie its weights, weights.npz, in the order in which its function takes them.",
        attributes=(
            MODEL,
            ENVIRONMENT,
            Attribute(
                name="platform",
                kind=AttributeKind.LABEL,
                provides=("platform",),
                doc="What the library runs on. Left out: the configuration's platform, then the workspace's.",
            ),
            Attribute(
                name="opt",
                kind=AttributeKind.CHOICE,
                allowed=("O0", "O1"),
                default="O1",
                doc="O0 leaves kernels unscheduled, O1 schedules them.",
            ),
        ),
        provides=("files", "compiled_model"),
    ),
    implementation=implement,
)
