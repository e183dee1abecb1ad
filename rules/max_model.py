"""`max_model`: a model that MAX, Modular's compiler, has compiled for the processor that builds."""

from __future__ import annotations

from mlcbuild.engine.action import CachePolicy
from mlcbuild.rules.compiled_models import CompiledModelInfo
from mlcbuild.rules.environments import ENVIRONMENT, environment_stage, environment_with
from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.python_source import source_attributes, source_of, weights_of
from mlcbuild.rules.requirements import REQUIREMENTS, requirements_of
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.rules.target_processor import PROCESSOR, processor_toolchain
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema

_MODEL, _WEIGHTS = "model.mef", "weights.npz"


def implement(context: RuleContext) -> Providers:
    environment = environment_with(context, "max", "max-core", "mojo-compiler", "numpy")
    source, called = source_of(context)
    compiled = environment_stage(
        context,
        "CompileMAX",
        "mlcbuild.compiler.environments.programs.compile_max:run",
        environment=environment,
        inputs={"source": source},
        outputs={"compiled": _MODEL, "description": "model.json"},
        parameters=called,
        toolchains=processor_toolchain(context),
        requirements=requirements_of(context.target),
        cache=CachePolicy.NON_REPRODUCIBLE,  # Two builds with empty caches differ in the order of what they hold.
    )
    checked = environment_stage(
        context,
        "CheckWeights",
        "mlcbuild.compiler.environments.programs.check_weights:run",
        environment=environment,
        inputs={"weights": weights_of(context), "description": compiled.output("out/model.json")},
        outputs={"checked": _WEIGHTS},
    )
    artifact = ((_MODEL, compiled.output(f"out/{_MODEL}")), (_WEIGHTS, checked.output(f"out/{_WEIGHTS}")))
    return (
        FilesInfo(files=artifact),
        CompiledModelInfo(
            compiler="MAX",
            distribution="max",
            artifact=artifact,
            environment=environment,
            runtime="mlcbuild.compiler.environments.runtimes.max_engine:load",
        ),
    )


MAX_MODEL = Rule(
    schema=RuleSchema(
        name="max_model",
        doc="A graph that MAX has compiled for processors, and beside it its weights, which are checked. Its bytes "
        "differ from run to run, and so it is declared to be non-reproducible. MAX is proprietary: its environment "
        "names its licence and accepts it.",
        attributes=(
            *source_attributes(
                imports="max", returns="a max.graph.Graph and a list of the Weights in it, for processors."
            ),
            Attribute(
                name="weights",
                kind=AttributeKind.LABEL,
                allow_files=True,
                mandatory=True,
                doc="Safetensors files with the weights, by their names.",
            ),
            ENVIRONMENT,
            PROCESSOR,
            REQUIREMENTS,
        ),
        provides=("files", "compiled_model"),
    ),
    implementation=implement,
)
