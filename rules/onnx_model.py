"""`onnx_model`: an ONNX file, checked, that other compilers than ours take."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from mlcbuild.engine.action import DerivedArtifact
from mlcbuild.rules.environments import ENVIRONMENT, EnvironmentInfo, environment_stage, environment_with
from mlcbuild.rules.exported_layer import ExportedLayerInfo
from mlcbuild.rules.providers import FilesInfo, Provider
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema


@dataclass(frozen=True, kw_only=True)
class OnnxInfo(Provider):
    """A checked ONNX file with its weights inside, always called model.onnx."""

    name: ClassVar[str] = "onnx"
    noun: ClassVar[str] = "onnx_model"

    model: DerivedArtifact


MODEL = Attribute(name="model", kind=AttributeKind.LABEL, mandatory=True, provides=("onnx",), doc="The onnx_model.")


def implement(context: RuleContext) -> Providers:
    target = context.target
    environment = environment_with(context, "onnx")
    source = _source(context, environment)
    named = [path for path, _ in source.files if path.endswith(".onnx")]
    has_folder = any(not path or path.endswith("/") for path, _ in source.files)  # What is in one is not known yet.
    if len(named) != 1 and not (has_folder and not named):
        raise context.error(
            f"source is {len(named) or 'no'} files that end in .onnx",
            attribute="source",
            advice=("name one, or a filegroup of one and the files of its weights",),
        )
    sizes: dict[str, int] = {}
    for name, size in target.table("sizes").items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            context.report(f"the size {name} = {size!r} is no whole number above 0", attribute="sizes")
        else:
            sizes[name] = size
    checked = environment_stage(
        context,
        "CheckOnnx",
        "mlcbuild.compiler.environments.programs.check_onnx:run",
        environment=environment,
        inputs={"source": source},
        outputs={"model": "model.onnx", "description": "model.json"},
        parameters={"sizes": sizes, "domains": sorted(target.strings("domains"))},
    )
    model = checked.output("out/model.onnx")
    files = (("model.json", checked.output("out/model.json")), ("model.onnx", model))
    return (FilesInfo(files=files), OnnxInfo(model=model))


def _source(context: RuleContext, environment: EnvironmentInfo) -> FilesInfo:
    """The files of `source`; of a layer of one of our models, the file that is written of it."""
    label = context.target.label_of("source")
    layer = context.provided(label, ExportedLayerInfo)
    if layer is None:
        return context.files(label)
    written = environment_stage(
        context,
        "WriteOnnx",
        "mlcbuild.compiler.environments.programs.write_onnx:run",
        environment=environment,
        inputs={"graph": layer.graph, "weights": layer.weights},
        outputs={"model": "layer.onnx"},
    )
    return FilesInfo(files=(("layer.onnx", written.output("out/layer.onnx")),))


ONNX_MODEL = Rule(
    schema=RuleSchema(
        name="onnx_model",
        doc="A model as an ONNX file, for compilers that take one. It is checked: by onnx, with its shapes, and for "
        "operators that only some runtimes have, for inputs and outputs without a type or shape, and for weights that "
        "are not finite.",
        attributes=(
            Attribute(
                name="source",
                kind=AttributeKind.LABEL,
                allow_files=True,
                mandatory=True,
                doc="The ONNX file, or a folder or target with one, whose other files hold its weights; or an "
                "exported_layer.",
            ),
            replace(ENVIRONMENT, doc="The python_environment with onnx, which checks the file."),
            Attribute(
                name="sizes",
                kind=AttributeKind.TABLE,
                doc="Sizes for dimensions that have a name in the file: { batch = 8 }. Others stay open.",
            ),
            Attribute(
                name="domains",
                kind=AttributeKind.STRING_LIST,
                doc="Domains of operators, besides ONNX's own, that the model may have, such as com.microsoft.",
            ),
        ),
        provides=("files", "onnx"),
    ),
    implementation=implement,
)
