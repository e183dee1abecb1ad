"""`layer_error`: how far an exported layer, as a compiler has built it, is from what transformers computes."""

from dataclasses import replace

from mlcbuild.engine.action import CachePolicy
from mlcbuild.rules.compiled_models import CompiledModelInfo
from mlcbuild.rules.environments import ENVIRONMENT, EnvironmentInfo, environment_stage
from mlcbuild.rules.onnx_model import OnnxInfo
from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema


def implement(context: RuleContext) -> Providers:
    built = context.required("build", CompiledModelInfo)
    told = context.stage(
        "LayerError",
        "layers.error:run",
        inputs={
            "cases": context.files(context.target.label_of("cases")),
            "artifact": built.files,
            "environment": built.environment.folder,
        },
        outputs={"report": "error.json"},
        parameters={"options": dict(built.options)},
        plugins={"runtime": built.runtime},
        toolchains=("python",),
        cache=CachePolicy.LOCAL,
    )
    return (FilesInfo(files=(("error.json", told.output("out/error.json")),)),)


def call(context: RuleContext) -> Providers:
    """What jax's own form of a layer computes."""
    called = environment_stage(
        context,
        "CallExported",
        "layers.call:run",
        environment=context.required("environment", EnvironmentInfo),
        inputs={
            "module": ending(context, "module", ".jaxexp"),
            "weights": ending(context, "weights", ".safetensors"),
            "cases": context.files(context.target.label_of("cases")),
        },
        outputs={"report": "error.json"},
    )
    return (FilesInfo(files=(("error.json", called.output("out/error.json")),)),)


def ending(context: RuleContext, attribute: str, suffix: str) -> FilesInfo:
    files = context.files(context.target.label_of(attribute)).files
    return FilesInfo(files=tuple(each for each in files if each[0].endswith(suffix)))


def label(name: str, *, files: bool = False, provides: tuple[str, ...] = ()) -> Attribute:
    return Attribute(
        name=name, kind=AttributeKind.LABEL, mandatory=True, allow_files=files, provides=provides, doc="A target."
    )


def cases(context: RuleContext) -> Providers:
    """What a comparison of a layer as ONNX is measured with."""
    made = environment_stage(
        context,
        "ReferenceOutputs",
        "mlcbuild.compiler.environments.programs.reference_onnx:run",
        environment=context.required("environment", EnvironmentInfo),
        inputs={"model": context.required("model", OnnxInfo).model},
        outputs={"cases": "cases/"},
        parameters={"dimension": "", "sizes": [], "seed": 0},
    )
    return (FilesInfo(files=(("cases/", made.output("out/cases/")),)),)


LAYER_CASES = Rule(
    schema=RuleSchema(
        name="layer_cases",
        doc="Inputs.",
        attributes=(label("model", provides=("onnx",)), replace(ENVIRONMENT, doc="With onnx.")),
        provides=("files",),
    ),
    implementation=cases,
)
LAYER_ERROR = Rule(
    schema=RuleSchema(
        name="layer_error",
        doc="An error.",
        attributes=(label("build", provides=("compiled_model",)), label("cases", files=True)),
        provides=("files",),
    ),
    implementation=implement,
)
CALLED = Rule(
    schema=RuleSchema(
        name="called",
        doc="An error of jax's form.",
        attributes=(ENVIRONMENT, label("module"), label("weights"), label("cases", files=True)),
        provides=("files",),
    ),
    implementation=call,
)
