"""A small model, built from nothing in two places that share only the machine: every byte of every action is the same.

Every key is the same too, so what one user built is a hit for all others. That holds for all actions of the pipeline:
neither the folder, user, home, virtual environment, clock, host name, locale nor load is in any key. What is in them,
and so may make two people's keys differ, is the content of what they installed (tvm, NVRTC, ld) and Python's version,
which two environments made from one lock file share.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compiler.tiny_models import checkpoint, write_gguf
from tests.end_to_end.comparing import BuiltActions, first_other_key, first_other_output
from tests.end_to_end.surroundings import CLOCK_SECONDS, HAS_COMPILER, Surroundings, foreign, usual
from tests.end_to_end.tiny_packages import MATRIX, PACKAGES

pytestmark = pytest.mark.slow

PATIENCE_SECONDS = 900
TARGETS = (":package-cpu", ":package-cuda", ":library-cpu", ":library-cuda")
BUILD_FILE = f"""\
[workspace]
name = "tiny"
rules = ["//looking:rule.py"]
{PACKAGES}
[[model_library]]
name = "library-{{platform}}"
{MATRIX}
[[platform]]
name = "triton"
kind = "cuda"
arch = ["sm_80"]
kernels = "triton"

[[model_library]]
name = "library-triton"
model = ":model"
quantization = "q4f16_1"
platform = ":triton"
overrides = {{ context_window_size = 64, prefill_chunk_size = 16 }}

[[look]]
name = "look"
text = "text.txt"
"""
RULE = '''\
"""`look`: what an action can see of its surroundings, all of which is in no key."""

from mlcbuild.rules.providers import FilesInfo
from mlcbuild.rules.rule import Providers, Rule, RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema


def implement(context: RuleContext) -> Providers:
    text = context.files(context.target.label_of("text"))
    action = context.stage(
        "Look", "looking.stage:run", inputs={"text": text}, outputs={"seen": "seen.json"}, toolchains=["tvm"]
    )
    return (FilesInfo(files=(("seen.json", action.output("out/seen.json")),)),)


LOOK = Rule(
    schema=RuleSchema(
        name="look",
        doc="Looks around.",
        attributes=(Attribute(name="text", kind=AttributeKind.LABEL, allow_files=True, mandatory=True, doc="A file."),),
        provides=("files",),
    ),
    implementation=implement,
)
'''
STAGE = """\
import json
import os
import sys
import time
from pathlib import Path

import numpy
import tvm

import mlcbuild.errors


def run(*, text: Path, seen: Path) -> None:
    umask = os.umask(0)
    os.umask(umask)
    here = str(Path.cwd())
    told = {
        "directory": here,
        "store": str(text.resolve()),
        "modified": text.stat().st_mtime_ns,
        "user": os.getuid(),
        "group": os.getgid(),
        "interpreter": sys.executable,
        "environment": sys.prefix,
        "python": os.__file__,
        "numpy": numpy.__file__,
        "tvm": tvm.__file__,
        "mlcbuild": mlcbuild.errors.__file__,
        "process": os.getpid(),
        "clock": time.time(),
        "host": os.uname().nodename,
        "umask": umask,
        "variables": {name: value.replace(here, "HERE") for name, value in sorted(os.environ.items())},
    }
    seen.write_text(json.dumps(told))
"""
DIFFERENT = [
    "directory",
    "store",
    "modified",
    "user",
    "group",
    "interpreter",
    "environment",
    "python",
    "numpy",
    "tvm",
    "mlcbuild",
    "process",
    "clock",
    "host",
]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Surroundings, Surroundings]]:
    """Two workspaces of equal files; the second is another user's, who cannot reach pytest's own folders."""
    folder = Path(tempfile.mkdtemp(prefix="mlcbuild-"))
    folder.chmod(0o755)
    try:
        both = (usual(tmp_path_factory.mktemp("usual")), foreign(folder))
        model = write_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", checkpoint()).read_bytes()
        for place, modified in zip(both, (None, 1), strict=True):
            place.write("BUILD.toml", BUILD_FILE.encode())
            place.write("looking/BUILD.toml", b"")
            place.write("looking/rule.py", RULE.encode())
            place.write("looking/stage.py", STAGE.encode())
            place.write("text.txt", b"text\n")
            place.write("tiny.gguf", model)
            if modified is not None:
                os.utime(place.root / "tiny.gguf", (modified, modified))
        yield both
    finally:
        shutil.rmtree(folder)


def _build(places: tuple[Surroundings, Surroundings], *targets: str) -> tuple[BuiltActions, BuiltActions]:
    """Both at once, so that each is the other's load; a third process takes most of what they leave, and some more."""
    busy = subprocess.Popen([sys.executable, "-c", "import os\nos.nice(10)\nwhile True: pass"])
    try:
        running = [place.start(*targets, events=f"{targets[0][1:]}.json") for place in places]
        try:
            codes = [process.wait(PATIENCE_SECONDS) for process in running]
        finally:
            for process in running:
                process.kill()
                process.wait()
    finally:
        busy.kill()
        busy.wait()
    for code, place in zip(codes, places, strict=True):
        assert code == 0, place.printed.read_text(encoding="utf-8")
    first, second = (BuiltActions.read(place.root / f"{targets[0][1:]}.json", place.cache) for place in places)
    return first, second


@pytest.fixture(scope="module")
def built(places: tuple[Surroundings, Surroundings]) -> tuple[BuiltActions, BuiltActions]:
    return _build(places, *TARGETS)


@pytest.fixture(scope="module")
def with_triton(
    places: tuple[Surroundings, Surroundings], built: tuple[BuiltActions, BuiltActions]
) -> tuple[BuiltActions, BuiltActions]:
    """What else was built came from one place that has Triton and one that has not."""
    assert [place.has_module("triton") for place in places] == [True, False]
    for place in places:
        place.install("triton")
    assert [place.has_module("triton") for place in places] == [True, True]
    return _build(places, ":library-triton")


@pytest.fixture(scope="module")
def looked(
    places: tuple[Surroundings, Surroundings], built: tuple[BuiltActions, BuiltActions]
) -> tuple[BuiltActions, BuiltActions]:
    return _build(places, ":look")


@pytest.fixture(scope="module")
def seen(looked: tuple[BuiltActions, BuiltActions]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What an action saw in each place."""
    first, second = (
        json.loads(build.store.read(build.actions["//:look Look"].outputs["out/seen.json"].digest)) for build in looked
    )
    return first, second


@pytest.mark.parametrize("name", DIFFERENT)
def test_actions_of_the_two_places_see_another(
    name: str, places: tuple[Surroundings, Surroundings], seen: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    if name in ("user", "group") and places[1].user is None:
        pytest.skip("only root can build as another user, who must reach what is installed")
    if name in ("clock", "host") and not HAS_COMPILER:
        pytest.skip("gcc makes the library that tells another time and host name")
    first, second = (told[name] for told in seen)
    assert first != second
    if name == "clock":
        assert second - first > CLOCK_SECONDS / 2
    if name in ("directory", "environment", "tvm"):
        assert len(first) != len(second)
        assert " " in second
        assert not second.isascii()


@pytest.mark.parametrize("name", ["umask", "variables"])
def test_what_users_set_reaches_no_action(name: str, seen: tuple[dict[str, Any], dict[str, Any]]) -> None:
    assert seen[0][name] == seen[1][name]


def test_an_action_that_tells_of_its_surroundings_is_found(looked: tuple[BuiltActions, BuiltActions]) -> None:
    assert first_other_key(*looked) == ""
    assert first_other_output(*looked).startswith("//:look Look: out/seen.json, /directory: ")


def test_every_output_of_every_action_is_identical(built: tuple[BuiltActions, BuiltActions]) -> None:
    assert first_other_output(*built) == ""


def test_every_key_is_equal_so_users_share_one_cache(built: tuple[BuiltActions, BuiltActions]) -> None:
    assert first_other_key(*built) == ""


def test_kernels_in_triton_have_the_same_keys_and_bytes(with_triton: tuple[BuiltActions, BuiltActions]) -> None:
    assert first_other_key(*with_triton) == ""
    assert first_other_output(*with_triton) == ""
    compiled = [made for name, made in with_triton[0].actions.items() if " CompileTriton " in name]
    assert [len(made.outputs) for made in compiled] == [2, 2]


def test_all_that_is_placed_is_identical(
    places: tuple[Surroundings, Surroundings], built: tuple[BuiltActions, BuiltActions]
) -> None:
    first, second = (
        {
            path.relative_to(place.root).as_posix(): (path.read_bytes(), bool(path.stat().st_mode & 0o100))
            for target in TARGETS
            for path in (place.root / "mlcbuild-out/default" / target[1:]).rglob("*")
            if path.is_file()
        }
        for place in places
    )
    assert {name for name, content in first.items() if second.get(name) != content} == set()
    assert set(first) == set(second)
    libraries = {name.removeprefix("mlcbuild-out/default/") for name in first if name.endswith(".so")}
    assert libraries == {
        "library-cpu/library-cpu.so",
        "library-cuda/library-cuda.so",
        "package-cpu/lib.so",
        "package-cuda/lib.so",
    }


def test_the_model_goes_through_every_stage(built: tuple[BuiltActions, BuiltActions]) -> None:
    mnemonics = {identifier.split(" ")[1] for identifier in built[0].actions}
    assert mnemonics == {
        "CompileDevice",
        "CompileKernel",
        "ConfigureModel",
        "Export",
        "FatBinary",
        "GenConfig",
        "ImportConfig",
        "ImportWeights",
        "IndexWeights",
        "Link",
        "Lower",
        "Partition",
        "Phase0",
        "Phase1",
        "Phase2",
        "Phase3",
        "Quantize",
        "ResolveModel",
        "ScheduleKernel",
    }
