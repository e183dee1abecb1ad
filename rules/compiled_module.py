"""From an exported module to a library: the actions that every library takes, whatever its module is for.

Phase0 … Phase3 → Partition → (ScheduleKernel → CompileKernel, one pair a distinct kernel) → Lower → Link.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlcbuild.engine.action import Action, DerivedArtifact, DiscoveredArtifacts
from mlcbuild.rules.backend import PlatformInfo
from mlcbuild.rules.configured_model import ConfiguredModel
from mlcbuild.rules.kernels import KernelActions
from mlcbuild.rules.optimization import Optimization
from mlcbuild.rules.passes import CompilerPassInfo, PhasePasses
from mlcbuild.rules.providers import LibraryInfo, ModelInfo
from mlcbuild.rules.rule import RuleContext, StageInput
from mlcbuild.rules.triton_kernels import TritonKernelInfo
from mlcbuild.tuning.choice import Choice

LATER_PHASES = ("Phase1", "Phase2", "Phase3")


def compile_module(
    context: RuleContext,
    export: Action,
    model: ModelInfo,
    configured: ConfiguredModel,
    platform: PlatformInfo,
    *,
    optimization: Optimization,
    added: Sequence[CompilerPassInfo] = (),
    triton_kernels: Sequence[TritonKernelInfo] = (),
    part: str = "",
    tuned: Mapping[str, Choice] | None = None,
) -> LibraryInfo:
    """Declare the actions from the outputs `module` and `metadata` of an action that exports to a library.

    `added` are passes of the workspace, `triton_kernels` kernels of its own; `part` is the word that tells the actions
    apart from those of the target's own library (`RuleContext.stage`). `tuned` are the shapes of kernels that
    measurements have chosen.
    """
    target = platform.target
    passes = PhasePasses(platform=platform, added=added, triton_kernels=triton_kernels)
    tvm = ("tvm",)
    module, metadata = export.output("out/module.json"), export.output("out/metadata.json")
    attach = context.stage(
        "Phase0",
        "mlcbuild.compiler.stages.phase0:run",
        # Kernels depend on the window alone: other overrides change nothing before Lower.
        inputs={"module": module, "metadata": metadata, "window": configured.window},
        outputs={"module_out": "module.json", "metadata_out": "metadata.json"},
        parameters={"target": target, **passes.parameters("phase0")},
        plugins=passes.plugins("phase0"),
        toolchains=tvm,
        part=part,
    )
    return compile_graph(
        context,
        attach.output("out/module.json"),
        attach.output("out/metadata.json"),
        platform,
        passes=passes,
        optimization=optimization,
        of_model={
            "model": configured.model,
            **({} if model.vocabulary is None else {"vocabulary": model.vocabulary}),
        },
        part=part,
        tuned=tuned,
    )


def compile_graph(
    context: RuleContext,
    module: DerivedArtifact,
    metadata: DerivedArtifact,
    platform: PlatformInfo,
    *,
    passes: PhasePasses,
    optimization: Optimization,
    of_model: Mapping[str, StageInput] | None = None,
    part: str = "",
    tuned: Mapping[str, Choice] | None = None,
) -> LibraryInfo:
    """Declare the actions behind Phase0. `of_model` is what Lower takes of a model; a graph that is of none has no
    Phase0 either."""
    target, tvm = platform.target, ("tvm",)
    for phase in LATER_PHASES:
        action = context.stage(
            phase,
            f"mlcbuild.compiler.stages.{phase.lower()}:run",
            inputs={"module": module},
            outputs={"module_out": "module.json"},
            parameters={"target": target, **passes.parameters(phase.lower())},
            plugins=passes.plugins(phase.lower()),
            toolchains=tvm,
            part=part,
        )
        module = action.output("out/module.json")
    partition = context.stage(
        "Partition",
        "mlcbuild.compiler.stages.partition:run",
        # The metadata has the names of parameters, which name kernels for people.
        inputs={"module": module, "metadata": metadata},
        outputs={"graph": "graph.json", "kernels": "kernels/", "manifest": "manifest.json"},
        toolchains=tvm,
        manifest="manifest",
        discoverer=KernelActions(
            owner=str(context.label),
            platform=platform,
            optimized=optimization.schedules,
            part=part,
            tuned=tuned or {},
        ),
        part=part,
    )
    lower = context.stage(
        "Lower",
        "mlcbuild.compiler.stages.lower:run",
        inputs={
            "graph": partition.output("out/graph.json"),
            "manifest": partition.output("out/manifest.json"),
            "signatures": DiscoveredArtifacts(action=partition.identifier, group="signatures"),
            "metadata": metadata,
            **(of_model or {}),
        },
        outputs={
            "executable": "executable.bin",
            "shape_functions": "shape_functions.o",
            "metadata_out": "metadata.json",
        },
        parameters={
            "target": target,
            "cuda_graph": optimization.cuda_graph and platform.has_cuda_graphs,
            **passes.parameters("phase5"),
        },
        plugins=passes.plugins("phase5"),
        toolchains=tvm,
        part=part,
    )
    link = context.stage(
        "Link",
        "mlcbuild.compiler.stages.link:run",
        inputs={
            "executable": lower.output("out/executable.bin"),
            "shape_functions": lower.output("out/shape_functions.o"),
            **{
                group: DiscoveredArtifacts(action=partition.identifier, group=group) for group in platform.kernel_groups
            },
        },
        outputs={"library": f"lib{platform.library_suffix}"},
        parameters={"target": target},
        plugins={"backend": platform.plugin("link:LINKING")},
        toolchains=platform.link_toolchains,
        part=part,
    )
    return LibraryInfo(library=link.output(f"out/lib{platform.library_suffix}"))
