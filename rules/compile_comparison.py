"""`compile_comparison`: one model as several compilers have built it, measured side by side on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mlcbuild.engine.action import MORE_CPUS_THAN_ANY, CachePolicy, DerivedArtifact, JsonValue
from mlcbuild.rules.compiled_models import CompiledModelInfo
from mlcbuild.rules.environments import ENVIRONMENT, environment_stage, environment_with
from mlcbuild.rules.onnx_model import MODEL, OnnxInfo
from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.requirements import REQUIREMENTS, requirements_of
from mlcbuild.rules.rule import Providers, Rule, RuleContext, StageInput
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema


def implement(context: RuleContext) -> Providers:
    target = context.target
    environment = environment_with(context, "onnx", "numpy")
    dimension, sizes = _sizes(context)
    reference = environment_stage(
        context,
        "ReferenceOutputs",
        "mlcbuild.compiler.environments.programs.reference_onnx:run",
        environment=environment,
        inputs={"model": context.required(MODEL.name, OnnxInfo).model},
        outputs={"cases": "cases/"},
        parameters={"dimension": dimension, "sizes": list(sizes), "seed": target.integer("seed")},
    )
    inputs: dict[str, StageInput] = {"cases": reference.output("out/cases/")}
    plugins: dict[str, str] = {}
    models: list[Mapping[str, JsonValue]] = []
    folders: dict[DerivedArtifact, int] = {}
    for label in target.labels("builds"):
        built = context.provided(label, CompiledModelInfo)
        if built is None:
            context.report(
                f"{label} is for a device whose runtime is not measured, or of a model without weights",
                attribute="builds",
            )
            continue
        if not built.version:
            context.report(
                f"the environment of {label} has no {built.distribution}, which runs it",
                attribute="builds",
                advice=("add it to the environment's lock",),
            )
        number, folder = len(models), folders.setdefault(built.environment.folder, len(folders))
        inputs |= {f"artifact_{number}": built.files, f"environment_{folder}": built.environment.folder}
        plugins[f"runtime_{number}"] = built.runtime
        models.append(
            {
                "label": str(label),
                "compiler": built.compiler,
                "version": built.version,
                "environment": folder,
                "options": dict(built.options),
            }
        )
    needed = requirements_of(target)
    is_elsewhere = bool(needed.labels or needed.gpus)
    measured = context.stage(
        "MeasureModels",
        "mlcbuild.compiler.stages.measure_models:run",
        inputs=inputs,
        outputs={"measured": "measured.json"},
        parameters={
            "models": models,
            "rounds": target.integer("rounds"),
            "seconds": target.number("seconds"),
            "threads": target.integer("threads"),
        },
        plugins=plugins,
        # It is true of the machine that it was measured on. Which node that will be no key knows.
        toolchains=("python",) if is_elsewhere else ("machine:here", "python"),
        cache=CachePolicy.NONE if is_elsewhere else CachePolicy.LOCAL,
        requirements=replace(needed, cpus=MORE_CPUS_THAN_ANY),
    )
    return (FilesInfo(files=(("measured.json", measured.output("out/measured.json")),)),)


def _sizes(context: RuleContext) -> tuple[str, tuple[int, ...]]:
    """The dimension that is open, and the sizes to measure at; "" and none for a model without one."""
    table = context.target.table("sizes")
    if len(table) > 1:
        context.report(f"sizes names {len(table)} dimensions", attribute="sizes", advice=("name one, such as batch",))
    for name, given in table.items():
        sizes = tuple(size for size in given if isinstance(size, int)) if isinstance(given, list | tuple) else ()
        if not sizes or len(sizes) != len(given) or min(sizes) < 1 or len(set(sizes)) != len(sizes):  # type: ignore[arg-type]
            context.report(
                f"the sizes {name} = {given!r} are no list of different whole numbers above 0", attribute="sizes"
            )
        return name, sizes
    return "", ()


COMPILE_COMPARISON = Rule(
    schema=RuleSchema(
        name="compile_comparison",
        doc="One model as several compilers have built it: how long each takes to load and to run, how much memory it "
        "needs, and how far it is from float64. It is measured on the machine that builds, or on a Ray node that has "
        "what `requirements` names, with nothing else running there of mlcbuild's, and its result is never taken from "
        "another machine or sent to one.",
        attributes=(
            Attribute(
                name="model",
                kind=AttributeKind.LABEL,
                mandatory=True,
                provides=("onnx",),
                doc="The onnx_model that they are builds of; float64 is computed by onnx's reference. A build of a "
                "model that another file declares has to take and give the same, in the same order: its error tells.",
            ),
            Attribute(
                name="builds",
                kind=AttributeKind.LABEL_LIST,
                mandatory=True,
                nonempty=True,
                provides=("compiled_model",),
                doc="Targets of compilers' rules. A model built twice with other attributes is two of them.",
            ),
            replace(ENVIRONMENT, doc="The python_environment with onnx, for float64. Each build runs in its own."),
            Attribute(
                name="sizes",
                kind=AttributeKind.TABLE,
                doc="For a model with an open dimension, the sizes of it to measure at: { batch = [1, 8] }.",
            ),
            Attribute(
                name="rounds",
                kind=AttributeKind.INTEGER,
                minimum=1,
                default=5,
                doc="How often each is loaded and measured, in turn; the median counts.",
            ),
            Attribute(
                name="seconds",
                kind=AttributeKind.NUMBER,
                default=1.0,
                doc="How long one size is called in one round; five calls at the least.",
            ),
            Attribute(
                name="threads",
                kind=AttributeKind.INTEGER,
                minimum=0,
                default=0,
                doc="Threads of each runtime. 0: one for each core of the machine.",
            ),
            Attribute(name="seed", kind=AttributeKind.INTEGER, default=0, doc="Of the random inputs."),
            replace(
                REQUIREMENTS,
                doc="What the machine that measures must have. Where labels or gpus are among it, a Ray node that has "
                "them measures, and in each build, as no key knows which node it will be. It always runs alone.",
            ),
        ),
        provides=("files",),
    ),
    implementation=implement,
)
