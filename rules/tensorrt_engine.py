"""`tensorrt_engine`: a model as TensorRT builds it for a GPU, on a GPU of that kind."""

from __future__ import annotations

import re
from dataclasses import replace

from mlcbuild.engine.action import CachePolicy
from mlcbuild.rules.environments import ENVIRONMENT, EnvironmentInfo, environment_stage
from mlcbuild.rules.onnx_model import MODEL, OnnxInfo
from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.requirements import REQUIREMENTS, requirements_of
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema

_ENGINE = "model.engine"
_ARCHITECTURE = re.compile(r"sm_\d{2,3}")
_PACKAGE = re.compile(r"(tensorrt-cu\d+)-bindings")


def implement(context: RuleContext) -> Providers:
    target = context.target
    environment = _environment(context)
    architecture = target.string("gpu")
    if not _ARCHITECTURE.fullmatch(architecture):
        context.report(
            f'"{architecture}" is no architecture of a GPU',
            attribute="gpu",
            advice=("write it as in sm_90; there is no sm_90a here",),
        )
    asked = requirements_of(target)
    labels = dict(asked.labels) | {"arch": architecture}
    built = environment_stage(
        context,
        "BuildTensorRT",
        "mlcbuild.compiler.environments.programs.build_tensorrt:run",
        environment=environment,
        inputs={"model": context.required(MODEL.name, OnnxInfo).model},
        outputs={"engine": _ENGINE},
        parameters={
            "architecture": architecture,
            "optimization": target.integer("optimization"),
            "tf32": target.boolean("tf32"),
            "workspace_bytes": target.integer("workspace_mib") << 20,
            "runs_on": target.string("runs_on"),
            "sizes": _sizes(context),
        },
        # It chooses kernels by measuring them.
        cache=CachePolicy.NON_REPRODUCIBLE,
        requirements=replace(asked, gpus=max(1.0, asked.gpus), labels=tuple(sorted(labels.items()))),
    )
    return (FilesInfo(files=((_ENGINE, built.output(f"out/{_ENGINE}")),)),)


def _environment(context: RuleContext) -> EnvironmentInfo:
    """TensorRT's packages have CUDA's version in their names. Reports what of them the environment lacks."""
    found = context.required(ENVIRONMENT.name, EnvironmentInfo)
    names = {name for name, _ in found.versions}
    label = context.target.label_of(ENVIRONMENT.name)
    packages = [each[1] for name in sorted(names) if (each := _PACKAGE.fullmatch(name))]
    if not packages:
        context.report(
            f"{label} has no TensorRT",
            attribute=ENVIRONMENT.name,
            advice=("its lock needs tensorrt-cu13, tensorrt-cu13-bindings and tensorrt-cu13-libs, or those of cu12",),
        )
    elif missing := sorted({packages[0], f"{packages[0]}-libs"} - names):
        context.report(
            f"{label} has no {' and no '.join(missing)}",
            attribute=ENVIRONMENT.name,
            advice=("its wheels are in NVIDIA's own index: let pip's extra-index-url name that",),
        )
    return found


def _sizes(context: RuleContext) -> dict[str, list[int]]:
    sizes: dict[str, list[int]] = {}
    for name, given in context.target.table("sizes").items():
        numbers = [each for each in given if type(each) is int] if isinstance(given, list | tuple) else []
        if len(numbers) != 3 or numbers != sorted(numbers) or numbers[0] < 1:
            context.report(
                f"the sizes {name} = {given!r} are not the least, the usual and the greatest", attribute="sizes"
            )
        sizes[name] = numbers
    return sizes


TENSORRT_ENGINE = Rule(
    schema=RuleSchema(
        name="tensorrt_engine",
        doc="A model built by TensorRT for a kind of GPU. It measures kernels while it builds, and so the action runs "
        "on a GPU of that kind, of this machine or of a Ray node, and its bytes differ from run to run. Numbers have "
        "the types that the model has.",
        attributes=(
            MODEL,
            ENVIRONMENT,
            Attribute(
                name="gpu",
                kind=AttributeKind.STRING,
                mandatory=True,
                nonempty=True,
                doc="The architecture of the GPU that builds, and that the engine is for: sm_80, sm_90.",
            ),
            Attribute(
                name="runs_on",
                kind=AttributeKind.CHOICE,
                allowed=("same", "same_compute_capability", "ampere_plus"),
                default="same",
                doc="same is the model of GPU that builds; the others are TensorRT's levels of compatibility, which "
                "cost speed.",
            ),
            Attribute(
                name="sizes",
                kind=AttributeKind.TABLE,
                doc="For sizes that are open in the model, the least, the usual and the greatest: "
                "{ batch = [1, 8, 32] }. It is fastest at the usual.",
            ),
            Attribute(
                name="optimization",
                kind=AttributeKind.INTEGER,
                minimum=0,
                maximum=5,
                default=3,
                doc="TensorRT's level, from 0 to 5: how long it looks for kernels.",
            ),
            Attribute(
                name="tf32",
                kind=AttributeKind.BOOLEAN,
                default=False,
                doc="Whether products of float32 may round their inputs to 10 bits. TensorRT does where nobody says "
                "otherwise.",
            ),
            Attribute(
                name="workspace_mib",
                kind=AttributeKind.INTEGER,
                minimum=0,
                default=0,
                doc="Most memory of the GPU, in MiB, that a kernel may use besides inputs and outputs; 0 for all.",
            ),
            REQUIREMENTS,
        ),
        provides=("files",),
    ),
    implementation=implement,
)
