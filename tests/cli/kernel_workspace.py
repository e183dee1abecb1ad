"""A workspace whose actions stand for those of a model: a stage announces an action for each distinct kernel."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.cli.main import main

BUILD_FILE = """\
[workspace]
name = "example"
rules = ["//pipeline:rules.py"]

[[tool]]
name = "join"
path = "{tool}"

[[kernels]]
name = "model"
text = "model.txt"
level = 2
note = "short"

[[command]]
name = "package"
tool = ":join"
inputs = [":model"]
arguments = ["{{inputs}}", "{{outputs}}"]
outputs = ["package.txt"]
"""
RULES = """\
import json
from dataclasses import dataclass

from mlcbuild.engine.action import ActionDescription, DerivedArtifact, DiscoveredArtifacts, Discovery
from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.rule import Providers, Rule, RuleContext, stage_action
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema


@dataclass(frozen=True, kw_only=True)
class Kernels:
    owner: str

    def __call__(self, *, discovering: str, manifest: bytes) -> Discovery:
        actions = []
        for name, (operation, functions) in json.loads(manifest).items():
            actions.append(
                stage_action(
                    f"{self.owner} CompileKernel {name}",
                    "CompileKernel",
                    "pipeline.stages.compile_kernel:run",
                    owner=self.owner,
                    inputs={"kernel": DerivedArtifact(action=discovering, path=f"out/kernels/{name}.txt")},
                    outputs={"compiled": f"{name}.o"},
                    parameters={},
                )
            )
            object.__setattr__(
                actions[-1],
                "description",
                ActionDescription(
                    text=f"{operation} ({name[:8]})",
                    details=(("kernel", name), ("operation", operation), ("functions", functions)),
                ),
            )
        objects = tuple(action.output(action.outputs[0]) for action in actions)
        return Discovery(actions=tuple(actions), groups=(("objects", objects),))


def implement(context: RuleContext) -> Providers:
    target = context.target
    split = context.stage(
        "Partition",
        "pipeline.stages.split:run",
        inputs={"text": context.files(target.label_of("text"))},
        parameters={"target": {"kind": "llvm", "level": target.integer("level")}, "note": target.string("note")},
        outputs={"manifest": "manifest.json", "kernels": "kernels/"},
        manifest="manifest",
        discoverer=Kernels(owner=str(context.label)),
    )
    link = context.stage(
        "Link",
        "pipeline.stages.link:run",
        inputs={"objects": DiscoveredArtifacts(action=split.identifier, group="objects")},
        parameters={},
        outputs={"library": "lib.txt"},
    )
    return (FilesInfo(files=(("lib.txt", link.output("out/lib.txt")),)),)


KERNELS = Rule(
    schema=RuleSchema(
        name="kernels",
        doc="Kernels of a text: `operation function,function body` a line.",
        attributes=(
            Attribute(name="text", kind=AttributeKind.LABEL, allow_files=True, mandatory=True, doc="The text."),
            Attribute(name="level", kind=AttributeKind.INTEGER, default=1, doc="A level."),
            Attribute(name="note", kind=AttributeKind.STRING, default="", doc="A note."),
        ),
    ),
    implementation=implement,
)
"""
SPLIT = """\
import hashlib
import json
from pathlib import Path

from pipeline.stages.lines import fields


def run(*, text: Path, manifest: Path, kernels: Path, target: dict, note: str) -> None:
    kernels.mkdir(exist_ok=True)
    found = {}
    for operation, functions, body in fields(text.read_text()):
        name = hashlib.sha256(f"{operation} {body}".encode()).hexdigest()[:16]
        found[name] = [operation, functions.split(",")]
        (kernels / f"{name}.txt").write_text(body)
    manifest.write_text(json.dumps(found, sort_keys=True))
"""
LINES = """\
def fields(text):
    return [strip(line) for line in text.splitlines() if line]


def strip(line):
    return line.split(" ", 2)


def unused():
    return 1
"""
COMPILE = """\
from pathlib import Path


def run(*, kernel: Path, compiled: Path) -> None:
    compiled.write_text(optimize(kernel.read_text()))


def optimize(text: str) -> str:
    return text.upper()
"""
LINK = """\
from pathlib import Path


def run(*, objects: tuple[Path, ...], library: Path) -> None:
    library.write_text("".join(each.read_text() for each in objects))
"""
MODEL = "matmul decode,prefill first body\nadd decode second body\nrms_norm prefill third body\n"
JOIN = '#!/bin/sh\ncat "$1" > "$2"\n'


def write_kernel_workspace(folder: Path) -> Path:
    """Write the workspace into `folder/workspace`, beside the tool `folder/join.sh`. Returns its root."""
    tool = folder / "join.sh"
    tool.write_text(JOIN)
    tool.chmod(0o755)
    root = folder / "workspace"
    stages = root / "pipeline" / "stages"
    stages.mkdir(parents=True)
    (root / "BUILD.toml").write_text(BUILD_FILE.format(tool=tool))
    (root / "model.txt").write_text(MODEL)
    (root / "pipeline" / "BUILD.toml").write_text("")
    (root / "pipeline" / "rules.py").write_text(RULES)
    for name, text in (("split", SPLIT), ("lines", LINES), ("compile_kernel", COMPILE), ("link", LINK)):
        (stages / f"{name}.py").write_text(text)
    return root


def enter_kernel_workspace(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the workspace below `folder` and make it the current directory, with a disk cache of its own beside it."""
    root = write_kernel_workspace(folder)
    monkeypatch.chdir(root)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    return root


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The workspace of kernels, which one stands in. A module about another one has a fixture of its own."""
    return enter_kernel_workspace(tmp_path, monkeypatch)


@pytest.fixture
def built(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The workspace of kernels, whose package is built."""
    build(capsys)
    return workspace


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Returns the JSON that `explain //:package` prints."""

    def asked(*arguments: str) -> Any:
        capsys.readouterr()
        assert main(["explain", "//:package", *arguments, "--output", "json"]) == 0
        return json.loads(capsys.readouterr().out)

    return asked


def build(capsys: pytest.CaptureFixture[str], *arguments: str) -> None:
    assert main(["build", "//:package", *arguments]) == 0
    capsys.readouterr()


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def of(document: Any, mnemonic: str) -> Any:
    """The only explanation of that mnemonic."""
    (found,) = [action for action in document["actions"] if action["mnemonic"] == mnemonic]
    return found
