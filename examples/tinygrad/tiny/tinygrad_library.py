"""`tinygrad_library`: an ONNX model as a shared library, by tinygrad and g++."""

from __future__ import annotations

from mlcbuild.rules.compiled_models import CompiledModelInfo
from mlcbuild.rules.environments import ENVIRONMENT, environment_stage, environment_with
from mlcbuild.rules.onnx_model import MODEL, OnnxInfo
from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema


def implement(context: RuleContext) -> Providers:
    environment = environment_with(context, "tinygrad", "onnx", "numpy")
    split = environment_stage(
        context,
        "SplitWeights",
        "tiny.split:run",
        environment=environment,
        inputs={"model": context.required(MODEL.name, OnnxInfo).model},
        outputs={"graph": "graph.onnx", "weights": "weights.bin"},
    )
    lowered = environment_stage(
        context,
        "Lower",
        "tiny.lower:run",
        environment=environment,
        inputs={"graph": split.output("out/graph.onnx")},
        outputs={"source": "model.cpp", "description": "model.json"},
        parameters={"optimize": context.target.boolean("optimize")},
    )
    compiled = context.stage(
        "CompileLibrary",
        "tiny.compile:run",
        inputs={"source": lowered.output("out/model.cpp")},
        outputs={"library": "model.so"},
        parameters={"cpu": context.target.string("cpu")},
        toolchains=("gxx",),
    )
    files = (
        ("model.so", compiled.output("out/model.so")),
        ("model.json", lowered.output("out/model.json")),
        ("weights.bin", split.output("out/weights.bin")),
    )
    compared = CompiledModelInfo(
        compiler="tinygrad",
        distribution="tinygrad",
        artifact=files,
        environment=environment,
        runtime="tiny.runtime:load",
    )
    return (FilesInfo(files=files), compared)


TINYGRAD_LIBRARY = Rule(
    schema=RuleSchema(
        name="tinygrad_library",
        doc="A model as a shared library, compiled by tinygrad through C++.",
        attributes=(
            MODEL,
            ENVIRONMENT,
            Attribute(
                name="cpu",
                kind=AttributeKind.CHOICE,
                allowed=("x86-64-v2", "x86-64-v3", "x86-64-v4"),
                mandatory=True,
                doc="The level of the processors that the library is for: g++'s -march.",
            ),
            Attribute(
                name="optimize",
                kind=AttributeKind.BOOLEAN,
                default=True,
                doc="Whether tinygrad chooses vectors, unrolling and the like for its kernels.",
            ),
        ),
        provides=("files", "compiled_model"),
    ),
    implementation=implement,
)
