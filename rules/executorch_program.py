"""`executorch_program`: a model of PyTorch for ExecuTorch, PyTorch's runtime for devices."""

from __future__ import annotations

from mlcbuild.rules.compiled_models import CompiledModelInfo
from mlcbuild.rules.environments import ENVIRONMENT, environment_stage, environment_with
from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.requirements import REQUIREMENTS, requirements_of
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.rules.torch_exported_program import TorchProgramInfo
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema


def implement(context: RuleContext) -> Providers:
    target = context.target
    environment = environment_with(context, "torch", "executorch")
    lowered = environment_stage(
        context,
        "LowerExecuTorch",
        "mlcbuild.compiler.environments.programs.lower_executorch:run",
        environment=environment,
        inputs={"exported": context.required("program", TorchProgramInfo).program},
        outputs={"lowered": "model.pte"},
        parameters={"backend": target.string("backend")},
        requirements=requirements_of(target),
    )
    artifact = (("model.pte", lowered.output("out/model.pte")),)
    return (
        FilesInfo(files=artifact),
        CompiledModelInfo(
            compiler="ExecuTorch",
            distribution="executorch",
            artifact=artifact,
            environment=environment,
            runtime="mlcbuild.compiler.environments.runtimes.executorch_method:load",
        ),
    )


EXECUTORCH_PROGRAM = Rule(
    schema=RuleSchema(
        name="executorch_program",
        doc="A model of PyTorch with its weights as a .pte file, which ExecuTorch of the same version loads.",
        attributes=(
            Attribute(
                name="program",
                kind=AttributeKind.LABEL,
                mandatory=True,
                provides=("torch_program",),
                doc="The torch_exported_program.",
            ),
            ENVIRONMENT,
            Attribute(
                name="backend",
                kind=AttributeKind.CHOICE,
                allowed=("xnnpack", "portable"),
                default="xnnpack",
                doc="xnnpack is for processors. portable has ExecuTorch's own kernels alone, which run everywhere, and "
                "slowly.",
            ),
            REQUIREMENTS,
        ),
        provides=("files", "compiled_model"),
    ),
    implementation=implement,
)
