"""`written`: a small model as ONNX, and cases for it. `compared`: how far an artifact is from float64 in these."""

from mlcbuild.engine.action import DerivedArtifact
from mlcbuild.rules.environments import ENVIRONMENT, EnvironmentInfo, environment_stage
from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema


def write(context: RuleContext) -> Providers:
    target = context.target
    made = environment_stage(
        context,
        "WriteModel",
        "checks.write:run",
        environment=context.required("environment", EnvironmentInfo),
        inputs={},
        outputs={"model": f"{target.string('kind')}.onnx", "cases": "cases/", "weights": "weights.safetensors"},
        parameters={"kind": target.string("kind"), "seed": target.integer("seed")},
    )
    return (FilesInfo(files=tuple((path.removeprefix("out/"), made.output(path)) for path in made.outputs)),)


def change(context: RuleContext) -> Providers:
    target = context.target
    (model,) = (each for each in context.files(target.label_of("model")).files if each[0].endswith(".onnx"))
    made = environment_stage(
        context,
        "ChangeModel",
        "checks.write:run_changed",
        environment=context.required("environment", EnvironmentInfo),
        inputs={"model": FilesInfo(files=(model,))},
        outputs={"folder": "changed/"},
        parameters={"change": target.string("change")},
    )
    return (FilesInfo(files=(("", made.output("out/changed/")),)),)


def compare(context: RuleContext) -> Providers:
    target = context.target

    def only(attribute: str, ending: str) -> FilesInfo:
        files = context.files(target.label_of(attribute)).files
        return FilesInfo(files=tuple(each for each in files if each[0].endswith(ending)))

    (cases,) = (artifact for _, artifact in only("cases", "/").files)
    assert isinstance(cases, DerivedArtifact)
    made = environment_stage(
        context,
        "Compare",
        "checks.compare:run",
        environment=context.required("environment", EnvironmentInfo),
        inputs={"artifact": only("artifact", target.string("ending")), "cases": cases},
        outputs={"report": "error.json"},
        parameters={"runtime": target.string("runtime")},
    )
    return (FilesInfo(files=(("error.json", made.output("out/error.json")),)),)


def ask(context: RuleContext) -> Providers:
    made = environment_stage(
        context,
        "Ask",
        "checks.compare:run_program",
        environment=context.required("environment", EnvironmentInfo),
        inputs={"artifact": context.files(context.target.label_of("artifact"))},
        outputs={"printed": "printed.txt"},
    )
    return (FilesInfo(files=(("printed.txt", made.output("out/printed.txt")),)),)


def label(name: str) -> Attribute:
    return Attribute(name=name, kind=AttributeKind.LABEL, mandatory=True, doc="A target.")


def text(name: str) -> Attribute:
    return Attribute(name=name, kind=AttributeKind.STRING, mandatory=True, doc="A word.")


WRITTEN = Rule(
    schema=RuleSchema(
        name="written",
        doc="A small model.",
        attributes=(
            ENVIRONMENT,
            text("kind"),
            Attribute(name="seed", kind=AttributeKind.INTEGER, default=1, doc="Of its weights."),
        ),
        provides=("files",),
    ),
    implementation=write,
)
CHANGED = Rule(
    schema=RuleSchema(
        name="changed",
        doc="Another form of a model.",
        attributes=(ENVIRONMENT, label("model"), text("change")),
        provides=("files",),
    ),
    implementation=change,
)
COMPARED = Rule(
    schema=RuleSchema(
        name="compared",
        doc="An error.",
        attributes=(ENVIRONMENT, label("artifact"), label("cases"), text("runtime"), text("ending")),
        provides=("files",),
    ),
    implementation=compare,
)
PRINTED = Rule(
    schema=RuleSchema(
        name="printed",
        doc="What a program of Mojo prints.",
        attributes=(ENVIRONMENT, label("artifact")),
        provides=("files",),
    ),
    implementation=ask,
)
