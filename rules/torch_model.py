"""`torch_model`: a model of PyTorch, as a Python file makes it, for compilers that take a program of torch.export."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlcbuild.engine.action import DerivedArtifact
from mlcbuild.rules.environments import ENVIRONMENT, environment_stage, environment_with
from mlcbuild.rules.exported_layer import TORCH_SOURCE
from mlcbuild.rules.providers import FilesInfo, Provider
from mlcbuild.rules.python_source import source_attributes, source_of, weights_of
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema

PROGRAMS = "mlcbuild.compiler.environments.programs.torch_models"


@dataclass(frozen=True, kw_only=True)
class TorchModelInfo(Provider):
    """A program of torch.export with zeros as its weights, and the weights, as safetensors."""

    name: ClassVar[str] = "torch_model"
    noun: ClassVar[str] = "torch_model"

    program: DerivedArtifact
    weights: DerivedArtifact


MODEL = Attribute(
    name="model", kind=AttributeKind.LABEL, mandatory=True, provides=("torch_model",), doc="The torch_model."
)


def implement(context: RuleContext) -> Providers:
    environment = environment_with(context, "torch", "safetensors")
    source, called = source_of(context, TORCH_SOURCE)
    exported = environment_stage(
        context,
        "ExportTorch",
        f"{PROGRAMS}:export",
        environment=environment,
        inputs={"source": source},
        outputs={"exported": "program.pt2", "description": "model.json"},
        parameters=called,
    )
    description = exported.output("out/model.json")
    checked = environment_stage(
        context,
        "CheckTorchWeights",
        f"{PROGRAMS}:check_weights",
        environment=environment,
        inputs={"weights": weights_of(context), "description": description},
        outputs={"checked": "weights.safetensors"},
    )
    weights = checked.output("out/weights.safetensors")
    return (
        FilesInfo(files=(("model.json", description), ("weights.safetensors", weights))),
        TorchModelInfo(program=exported.output("out/program.pt2"), weights=weights),
    )


TORCH_MODEL = Rule(
    schema=RuleSchema(
        name="torch_model",
        doc="A model of PyTorch. torch.export reads it without its weights, so that other weights compile nothing "
        "again. The weights are checked: that they are all that the model has, of its types and shapes, and finite.",
        attributes=(
            *source_attributes(
                takes_layers=True,
                imports="torch",
                returns="a torch.nn.Module and a tuple of example inputs, and, where sizes are to stay open, the "
                "dynamic_shapes of torch.export as a third.",
            ),
            Attribute(
                name="weights",
                kind=AttributeKind.LABEL,
                allow_files=True,
                mandatory=True,
                doc="Safetensors files with what the module's state_dict() has, by its names.",
            ),
            ENVIRONMENT,
        ),
        provides=("files", "torch_model"),
    ),
    implementation=implement,
)
