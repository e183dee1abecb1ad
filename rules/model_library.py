"""`model_library`: a model compiled for a platform.

ConfigureModel → Export → Phase0 … Phase3 → Partition → (ScheduleKernel → CompileKernel, one pair a distinct kernel)
→ Lower → Link.
What is a backend's own is in `rules/backends/`; for a GPU each kernel goes on after CompileKernel.
"""

from __future__ import annotations

from mlcbuild.compiler.models.sizes import OVERRIDE_RANGES
from mlcbuild.rules.backend import PlatformInfo
from mlcbuild.rules.compiled_module import compile_module
from mlcbuild.rules.configured_model import ConfiguredModel, configure
from mlcbuild.rules.families import model_plugins
from mlcbuild.rules.optimization import LEVELS
from mlcbuild.rules.passes import CompilerPassInfo
from mlcbuild.rules.precision import QUANTIZATION, TargetPrecision
from mlcbuild.rules.providers import FilesInfo, LibraryInfo, ModelInfo
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.rules.triton_kernels import TRITON_KERNELS, kernels_of
from mlcbuild.rules.tuning import TUNING, chosen_shapes
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema

OPTIMIZATION = Attribute(
    name="opt",
    kind=AttributeKind.CHOICE,
    allowed=tuple(LEVELS),
    default="O2",
    doc="How much is optimized. O0 leaves kernels unscheduled, O1 schedules them; at O2 and O3 a GPU replays decoding "
    "as a CUDA graph.",
)
_OVERRIDE_DOCS = {
    "context_window_size": "Tokens of one sequence; -1 for no limit, with a sliding window.",
    "prefill_chunk_size": "The most tokens that one prefill step takes.",
    "max_batch_size": "The most sequences at a time.",
    "sliding_window_size": "Tokens that attention looks back; -1 for all.",
    "attention_sink_size": "Tokens at the beginning that a sliding window keeps.",
    "tensor_parallel_shards": "Into how many parts the model is split; only 1 is supported.",
}
OVERRIDES = Attribute(
    name="overrides",
    kind=AttributeKind.TABLE,
    fields=tuple(
        Attribute(name=name, kind=AttributeKind.INTEGER, minimum=low, maximum=high, doc=_OVERRIDE_DOCS[name])
        for name, (low, high) in OVERRIDE_RANGES.items()
    ),
    doc="Values that replace those of the model's configuration.",
)
LIBRARY_ATTRIBUTES = (
    Attribute(name="model", kind=AttributeKind.LABEL, mandatory=True, provides=("model",), doc="The model."),
    QUANTIZATION,
    Attribute(
        name="platform",
        kind=AttributeKind.LABEL,
        provides=("platform",),
        doc="What the library runs on. Left out: the configuration's platform, then the workspace's.",
    ),
    OPTIMIZATION,
    TUNING,
    OVERRIDES,
    Attribute(
        name="hidden_states",
        kind=AttributeKind.BOOLEAN,
        default=False,
        doc="Adds the functions that return or take hidden states, which engines call for speculative decoding with "
        "EAGLE or Medusa.",
    ),
    Attribute(
        name="passes",
        kind=AttributeKind.LABEL_LIST,
        provides=("compiler_pass",),
        doc="Passes of the workspace's own. Those at the same place run in this order.",
    ),
    TRITON_KERNELS,
)


def platform_of(context: RuleContext) -> PlatformInfo:
    """The target's platform, its own or the default. Raises WorkspaceError where there is none."""
    label = context.target.platform
    platform = context.provided(label, PlatformInfo) if label is not None else None
    if platform is None:
        raise context.error(
            "no platform" if label is None else f"{label} is no platform",
            advice=("set `platform`, or default_platform in [workspace]",),
        )
    return platform


def configure_library(
    context: RuleContext, model: ModelInfo, platform: PlatformInfo, *, precision: TargetPrecision | None = None
) -> ConfiguredModel:
    """Declare the check of a target with `LIBRARY_ATTRIBUTES`, and what applies its overrides. `precision` is what was
    chosen for the target, if it was."""
    return configure(
        context,
        model,
        quantization=precision,
        overrides=dict(context.target.table("overrides")),
        platform=platform,
    )


def compile_library(
    context: RuleContext, model: ModelInfo, configured: ConfiguredModel, platform: PlatformInfo
) -> LibraryInfo:
    """Declare the actions from a model to its library, in the order data flows."""
    stage = configured.precision.stage("mlcbuild.compiler.stages.export:run", "reader")
    export = context.stage(
        "Export",
        stage.function,
        # Without the target's sizes: overrides do not export again.
        inputs={"model": configured.precision.model, "parameters": configured.parameters, **stage.inputs},
        outputs={"module": "module.json", "metadata": "metadata.json"},
        parameters={"hidden_states": context.target.boolean("hidden_states")},
        plugins={"models": model_plugins(), **stage.plugins},
        toolchains=("tvm",),
    )
    return compile_module(
        context,
        export,
        model,
        configured,
        platform,
        optimization=LEVELS[context.target.string("opt")],
        added=_added_passes(context),
        triton_kernels=kernels_of(context, platform, configured.precision.names),
        tuned=chosen_shapes(context, platform),
    )


def _added_passes(context: RuleContext) -> list[CompilerPassInfo]:
    found = [context.provided(label, CompilerPassInfo) for label in context.target.labels("passes")]
    return [one for one in found if one is not None]


def implement(context: RuleContext) -> Providers:
    platform = platform_of(context)
    model = context.required("model", ModelInfo)
    compiled = compile_library(context, model, configure_library(context, model, platform), platform)
    name = f"{context.label.name.rpartition('/')[2]}{platform.library_suffix}"
    return (compiled, FilesInfo(files=((name, compiled.library),)))


MODEL_LIBRARY = Rule(
    schema=RuleSchema(
        name="model_library",
        doc="A model compiled into a shared library, without weights.",
        attributes=LIBRARY_ATTRIBUTES,
        provides=("library", "files"),
    ),
    implementation=implement,
)
