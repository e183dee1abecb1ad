"""For each compiler: which targets an edit builds anew, and that a machine with nothing takes all of it from a remote.

A row's columns are edits. A target that is named runs an action; what is not named is up to date, or was cut off early
because what it needs came out the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.toolchains.entries import processor
from tests.end_to_end.compilers.compiler_world import HERE_LEVEL, CompilerWorld, ran
from tests.end_to_end.compilers.every_compiler import every_compiler_world
from tests.remote.http_server import Cache, running
from tests.small_wheels import write_wheel

OTHER_LEVEL = "x86-64-v2" if HERE_LEVEL != "x86-64-v2" else "x86-64-v3"
WEAK_PROCESSOR = "flags\t\t: fpu cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3\n"


@dataclass(frozen=True, kw_only=True)
class Row:
    """`lock` is that of the compiler's environment; `model` the target that its model is, which `edit` changes;
    `flag` another value of an attribute of the build itself. The columns are sets of targets, without "mlp-"."""

    compiler: str
    lock: str
    model: str = "mlp"
    edit: dict[str, Any] = field(default_factory=lambda: {"sizes": {"batch": 4}})
    flag: dict[str, Any]
    weights_run: set[str]
    edit_run: set[str]
    version_run: set[str]
    is_reproducible: bool = True
    level_run: set[str] = field(default_factory=set)

    @property
    def wanted(self) -> dict[str, str]:
        """Target → its name in the columns; all that a build of this compiler is made of."""
        names = {"mlp-source": "source", self.model: "model", f"mlp-{self.compiler}": "built"}
        return names | ({"mlp-exported": "program"} if self.compiler == "executorch" else {})


ARGUMENTS = {"arguments": {"batch": 4}}
ONNX_RUN = {"model", "built"}
ROWS = (
    # The level of the machine is in the key, because "all" depends on it; onnx is in the same environment.
    Row(
        compiler="onnxruntime",
        lock="onnxruntime",
        flag={"level": "basic"},
        weights_run={"source", *ONNX_RUN},
        edit_run=ONNX_RUN,
        version_run={"source", *ONNX_RUN},
        level_run={"built"},
    ),
    Row(
        compiler="openvino",
        lock="openvino",
        flag={"weights": "f16"},
        weights_run={"source", *ONNX_RUN},
        edit_run=ONNX_RUN,
        version_run={"built"},
    ),
    Row(
        compiler="iree",
        lock="iree",
        flag={"cpu": OTHER_LEVEL},
        weights_run={"source", *ONNX_RUN},
        edit_run=ONNX_RUN,
        version_run={"built"},
    ),
    Row(
        compiler="tvm",
        lock="tvm",
        flag={"cpu": OTHER_LEVEL},
        weights_run={"source", *ONNX_RUN},
        edit_run=ONNX_RUN,
        version_run={"built"},
    ),
    # By our own pipeline: weights are no part of what it compiles, but TVM's frontend reads them with the model.
    Row(
        compiler="mlcbuild",
        lock="tvm",
        flag={"opt": "O0"},
        weights_run={"source", *ONNX_RUN},
        edit_run=ONNX_RUN,
        version_run={"built"},
    ),
    Row(
        compiler="torch",
        lock="torch",
        model="mlp-of-torch",
        edit=ARGUMENTS,
        flag={"operators": "core"},
        weights_run={"source", "model", "built"},
        edit_run={"model", "built"},
        version_run={"model", "built"},
    ),
    # Its model is compiled without weights.
    Row(
        compiler="aoti",
        lock="torch",
        model="mlp-of-torch",
        edit=ARGUMENTS,
        flag={"threads": 1},
        weights_run={"source", "model"},
        edit_run={"model", "built"},
        version_run={"model", "built"},
    ),
    Row(
        compiler="executorch",
        lock="executorch",
        model="mlp-of-executorch",
        edit=ARGUMENTS,
        flag={"backend": "portable"},
        weights_run={"source", "model", "program", "built"},
        edit_run={"model", "program", "built"},
        version_run={"model", "program", "built"},
    ),
    Row(
        compiler="xla",
        lock="jax",
        model="mlp-stablehlo",
        is_reproducible=False,
        edit=ARGUMENTS,
        flag={"threads": 2},
        weights_run={"source", "model"},
        edit_run={"model", "built"},
        version_run={"model", "built"},
        level_run={"built"},
    ),
    Row(
        compiler="iree-of-stablehlo",
        lock="iree",
        model="mlp-stablehlo",
        edit=ARGUMENTS,
        flag={"cpu": OTHER_LEVEL},
        weights_run={"source", "model"},
        edit_run={"model", "built"},
        version_run={"built"},
    ),
)
IN_CI = ("onnxruntime",)
LICENSE = "License-Expression: Apache-2.0\n"
VERSIONS = ("1.0", "2.0")
MARKER = "mlcbuild-version-marker"  # A name that no index has.


@pytest.fixture
def cache() -> Iterator[Cache]:
    with running() as found:
        yield found


def world_with(folder: Path, row: Row, wheels: Path, cache: Cache | None, *, version: str = "1.0") -> CompilerWorld:
    """The compiler's environment also has a small package, of which there are two versions."""
    world = every_compiler_world(folder, row.compiler)
    lock = (world.root / f"{row.lock}.txt").read_text()
    lines = {each: write_wheel(wheels, MARKER, each, {"marker.py": each}, metadata=LICENSE)[1] for each in VERSIONS}
    world.write(f"{row.lock}.txt", lock + lines[version])
    found = world.environment.get("PIP_FIND_LINKS", "")
    world.environment["PIP_FIND_LINKS"] = f"{found} {wheels}".strip()
    if cache is not None:
        world.environment |= {"MLCBUILD_REMOTE": cache.address, "MLCBUILD_REMOTE_ROLE": "read-write"}
    return world


def made(world: CompilerWorld, row: Row) -> dict[str, bytes]:
    """What the compiler made, by its files' names."""
    return {path.name: path.read_bytes() for path in sorted(world.output(f"mlp-{row.compiler}").glob("*"))}


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=row.compiler, marks=() if row.compiler in IN_CI else pytest.mark.exhaustive) for row in ROWS],
)
def test_what_an_edit_runs(row: Row, tmp_path: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels, labels = tmp_path / "wheels", [f"//:{name}" for name in row.wanted]
    world = world_with(tmp_path / "one", row, wheels, cache)

    def runs() -> set[str]:
        return {row.wanted[name] for name in ran(world.build(*labels)) if name in row.wanted}

    assert runs() == set(row.wanted.values())
    assert runs() == set(), "nothing was edited"

    other = world_with(tmp_path / "other", row, wheels, cache)
    done = other.build(*labels)
    assert done.code == 0, done.err
    # What two of its actions share is found on the disk the second time.
    assert done.actions.keys() - {"disk_hits"} == {"remote_hits"}, "no wheel is fetched, and nothing runs"
    place = next((other.output(f"mlp-{row.compiler}")).glob("model.*")).relative_to(other.root)
    assert (other.root / place).read_bytes() == (world.root / place).read_bytes()

    for name, edited, expected in (
        (f"mlp-{row.compiler}", row.flag, {"built"}),
        (row.model, row.edit, row.edit_run),
        ("mlp-source", {"seed": 2}, row.weights_run),
    ):
        rule, attributes = world.targets[name]
        world.edit(name, **edited)
        assert runs() == expected, f"{name} with {edited}"
        world.table(rule, name, **attributes)
        assert runs() == set(), f"{name} as it was"

    if row.level_run:
        weaker = tmp_path / "cpuinfo"
        weaker.write_text(WEAK_PROCESSOR)
        with monkeypatch.context() as patched:
            patched.setattr(processor, "CPUINFO", weaker)
            # What a machine is does not change under a workspace, and so is not looked at where nothing has changed.
            next(world.output(f"mlp-{row.compiler}").glob("model.*")).unlink()
            assert runs() == row.level_run, "a processor of another level"

    world_with(tmp_path / "one", row, wheels, cache, version="2.0")
    assert runs() == row.version_run, "another version in its environment"


@pytest.mark.exhaustive
@pytest.mark.parametrize("row", [pytest.param(row, id=row.compiler) for row in ROWS])
def test_two_folders_and_empty_caches_make_equal_bytes(row: Row, tmp_path: Path) -> None:
    """Or the rule says that they need not: its result is non-reproducible."""
    found = []
    for folder in (tmp_path / "one", tmp_path / "a longer folder" / "two"):
        world = world_with(folder, row, tmp_path / "wheels", None)
        done = world.build(f"//:mlp-{row.compiler}")
        assert done.code == 0, done.err
        # What two of its actions share is found on the disk the second time.
        assert done.actions.keys() - {"disk_hits"} == {"executed_local"}, "nothing was there"
        found.append(made(world, row))
    one, two = found
    assert one.keys() == two.keys() != set()
    if row.is_reproducible:
        assert one == two
