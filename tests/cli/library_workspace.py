"""A workspace whose libraries have three small kernels: the stages of `model_library` from Phase2 on, and no model."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.compiler.resolving import write_configured
from tests.compiler.small_graph import write_small_graph

BUILD_FILE = """\
[workspace]
name = "example"
rules = ["//pipeline:rules.py"]

[[compiler_pass]]
name = "nothing"
function = "passes.mine:nothing"
after = "LegalizeOps"

[[small_library]]
name = "cpu"
module = "module.json"
metadata = "metadata.json"
model = "model.json"
platform = "@platforms//:x86-64-v3"
passes = [":nothing"]

[[small_library]]
name = "gpu"
module = "module.json"
metadata = "metadata.json"
model = "model.json"
platform = "@platforms//:sm_90"
"""
RULES = '''\
"""`small_library`: a module compiled into a library."""

from mlcbuild.engine.action import DiscoveredArtifacts
from mlcbuild.rules.kernels import KernelActions
from mlcbuild.rules.model_library import platform_of
from mlcbuild.rules.passes import CompilerPassInfo, PhasePasses
from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema

FILES = ("module", "metadata", "model")


def implement(context: RuleContext) -> Providers:
    platform = platform_of(context)
    module, metadata, model = (context.files(context.target.label_of(name)) for name in FILES)
    added = [context.provided(label, CompilerPassInfo) for label in context.target.labels("passes")]
    passes = PhasePasses(platform=platform, added=added)
    for phase in ("phase2", "phase3"):
        action = context.stage(
            phase.capitalize(),
            f"mlcbuild.compiler.stages.{phase}:run",
            inputs={"module": module},
            outputs={"module_out": "module.json"},
            parameters={"target": platform.target, **passes.parameters(phase)},
            plugins=passes.plugins(phase),
            toolchains=("tvm",),
        )
        module = action.output("out/module.json")
    partition = context.stage(
        "Partition",
        "mlcbuild.compiler.stages.partition:run",
        inputs={"module": module, "metadata": metadata},
        outputs={"graph": "graph.json", "kernels": "kernels/", "manifest": "manifest.json"},
        toolchains=("tvm",),
        manifest="manifest",
        discoverer=KernelActions(owner=str(context.label), platform=platform, optimized=True),
    )
    lower = context.stage(
        "Lower",
        "mlcbuild.compiler.stages.lower:run",
        inputs={
            "graph": partition.output("out/graph.json"),
            "manifest": partition.output("out/manifest.json"),
            "signatures": DiscoveredArtifacts(action=partition.identifier, group="signatures"),
            "metadata": metadata,
            "model": model,
        },
        outputs={"executable": "executable.bin", "shape_functions": "shapes.o", "metadata_out": "metadata.json"},
        parameters={"target": platform.target, "cuda_graph": False, **passes.parameters("phase5")},
        plugins=passes.plugins("phase5"),
        toolchains=("tvm",),
    )
    link = context.stage(
        "Link",
        "mlcbuild.compiler.stages.link:run",
        inputs={
            "executable": lower.output("out/executable.bin"),
            "shape_functions": lower.output("out/shapes.o"),
            **{
                group: DiscoveredArtifacts(action=partition.identifier, group=group)
                for group in platform.kernel_groups
            },
        },
        outputs={"library": "lib.so"},
        parameters={"target": platform.target},
        plugins={"backend": platform.plugin("link:LINKING")},
        toolchains=platform.link_toolchains,
    )
    return (FilesInfo(files=(("lib.so", link.output("out/lib.so")),)),)


SMALL_LIBRARY = Rule(
    schema=RuleSchema(
        name="small_library",
        doc="A module compiled into a library.",
        attributes=(
            *(
                Attribute(name=name, kind=AttributeKind.LABEL, allow_files=True, mandatory=True, doc="A file.")
                for name in FILES
            ),
            Attribute(name="platform", kind=AttributeKind.LABEL, provides=("platform",), doc="What it runs on."),
            Attribute(name="passes", kind=AttributeKind.LABEL_LIST, provides=("compiler_pass",), doc="Its passes."),
        ),
        provides=("files",),
    ),
    implementation=implement,
)
'''
PASS = """\
def nothing(module, context):
    return module
"""


def write_library_workspace(folder: Path) -> Path:
    """Write the workspace into `folder/workspace`. Returns its root."""
    root = folder / "workspace"
    made = folder / "made"
    write_small_graph(made)
    write_configured(made, "q0f32", {})
    root.mkdir()
    for name, source in (("module", "phase3"), ("metadata", "metadata.phase0"), ("model", "configured")):
        shutil.copy(made / f"{source}.json", root / f"{name}.json")
    (root / "BUILD.toml").write_text(BUILD_FILE)
    for path, text in (("pipeline/BUILD.toml", ""), ("pipeline/rules.py", RULES), ("passes/mine.py", PASS)):
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(text)
    return root


@contextmanager
def library_workspace(folder: Path, workers: Mapping[str, str]) -> Iterator[Path]:
    """Write the workspace below `folder` and make it the current directory, with a disk cache of its own beside it.
    `workers` are the variables of the fixture `warm_workers`.
    """
    with pytest.MonkeyPatch.context() as monkeypatch:
        root = write_library_workspace(folder)
        monkeypatch.chdir(root)
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "no settings"))
        for name, value in workers.items():
            monkeypatch.setenv(name, value)
        yield root
