"""`torch_exported_program`: a model with its weights as one program of torch.export, which other tools load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlcbuild.engine.action import DerivedArtifact
from mlcbuild.rules.compiled_models import CompiledModelInfo
from mlcbuild.rules.environments import ENVIRONMENT, environment_stage, environment_with
from mlcbuild.rules.providers import FilesInfo, Provider
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.rules.torch_model import MODEL, PROGRAMS, TorchModelInfo
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema


@dataclass(frozen=True, kw_only=True)
class TorchProgramInfo(Provider):
    """A program of torch.export with its weights, always called model.pt2."""

    name: ClassVar[str] = "torch_program"
    noun: ClassVar[str] = "torch_exported_program"

    program: DerivedArtifact


def implement(context: RuleContext) -> Providers:
    environment = environment_with(context, "torch", "safetensors")
    model = context.required(MODEL.name, TorchModelInfo)
    bound = environment_stage(
        context,
        "BindTorchWeights",
        f"{PROGRAMS}:bind",
        environment=environment,
        inputs={"exported": model.program, "weights": model.weights},
        outputs={"bound": "model.pt2"},
        parameters={"decompose": context.target.string("operators") == "core"},
    )
    program = bound.output("out/model.pt2")
    artifact = (("model.pt2", program),)
    return (
        FilesInfo(files=artifact),
        TorchProgramInfo(program=program),
        CompiledModelInfo(
            compiler="PyTorch uncompiled",
            distribution="torch",
            artifact=artifact,
            environment=environment,
            runtime="mlcbuild.compiler.environments.runtimes.torch_program:load",
        ),
    )


TORCH_EXPORTED_PROGRAM = Rule(
    schema=RuleSchema(
        name="torch_exported_program",
        doc="A model of PyTorch with its weights as a .pt2 file, which torch.export.load reads on any machine, without "
        "the model's Python.",
        attributes=(
            MODEL,
            ENVIRONMENT,
            Attribute(
                name="operators",
                kind=AttributeKind.CHOICE,
                allowed=("aten", "core"),
                default="aten",
                doc="core has only the operators of core ATen; aten has those that the model calls.",
            ),
        ),
        provides=("files", "torch_program", "compiled_model"),
    ),
    implementation=implement,
)
