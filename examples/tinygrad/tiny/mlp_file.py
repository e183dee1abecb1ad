"""`mlp_file`: an ONNX file to begin with, a perceptron of two layers with random weights."""

from __future__ import annotations

from mlcbuild.rules.environments import ENVIRONMENT, environment_stage, environment_with
from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema


def implement(context: RuleContext) -> Providers:
    written = environment_stage(
        context,
        "WriteModel",
        "tiny.write_mlp:run",
        environment=environment_with(context, "onnx", "numpy"),
        inputs={},
        outputs={"model": "mlp.onnx"},
        parameters={"width": context.target.integer("width")},
    )
    return (FilesInfo(files=(("mlp.onnx", written.output("out/mlp.onnx")),)),)


MLP_FILE = Rule(
    schema=RuleSchema(
        name="mlp_file",
        doc="An ONNX file: x → relu(x·A)·B, with random weights.",
        attributes=(
            ENVIRONMENT,
            Attribute(name="width", kind=AttributeKind.INTEGER, minimum=1, default=64, doc="Numbers of an input."),
        ),
        provides=(FilesInfo.name,),
    ),
    implementation=implement,
)
