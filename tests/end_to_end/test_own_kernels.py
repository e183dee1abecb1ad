"""Kernels in Triton of a workspace's own, through the command line: the page that teaches them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mlcbuild.compiler.backends.cuda import device_functions
from tests.compiler.tiny_models import TINY, write_config
from tests.documentation.following import follow
from tests.end_to_end.kernel_cache import KernelCache
from tests.end_to_end.world import PROJECT
from tests.parity_packages import parity_package

pytestmark = pytest.mark.slow

_COMPILE = """
import importlib, json, sys
from pathlib import Path
from mlcbuild.compiler.backends.cuda.stages import compile_triton
kernel = importlib.import_module("kernels.silu").silu_multiply
compile_triton.run(
    cubin=Path(sys.argv[1]), launch=Path(sys.argv[2]), kernel=kernel, **{**json.loads(sys.argv[3]), "arch": "sm_90"}
)
"""


class Followed:
    """The workspace of the page, with all of its commands run."""

    def __init__(self, folder: Path, workers: Mapping[str, str]) -> None:
        self.root = folder / "workspace"
        self.cache = folder / "cache"
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "home"),
            "XDG_CACHE_HOME": str(self.cache),
            "PYTHONPATH": str(PROJECT),
            **workers,
        }

    def called(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "mlcbuild.cli.main", *arguments]
        return subprocess.run(
            command, cwd=self.root, env=self._environment, capture_output=True, text=True, check=False
        )

    def shown(self, *words: str) -> Any:
        done = self.called("show", "//:library", *words, "--output", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def ran(self) -> dict[str, int]:
        """How many actions of each mnemonic a build runs."""
        events = self.root.parent / "events"
        done = self.called("build", "//:library", "--events", str(events))
        assert done.returncode == 0, done.stderr
        ran: dict[str, int] = {}
        for event in map(json.loads, events.read_text().splitlines()):
            if event["event"] == "action_finished" and event["status"] == "executed_local":
                ran[event["mnemonic"]] = ran.get(event["mnemonic"], 0) + 1
        return ran

    def edit(self, path: str, old: str, new: str) -> None:
        text = (self.root / path).read_text()
        assert text.count(old) == 1, (path, old)
        (self.root / path).write_text(text.replace(old, new))


@pytest.fixture(scope="module")
def followed(
    tmp_path_factory: pytest.TempPathFactory, warm_workers: Mapping[str, str], kernel_cache: KernelCache
) -> Followed:
    parity_package("torch")
    folder = tmp_path_factory.mktemp("own_kernels")
    place = Followed(folder, warm_workers)
    place.root.mkdir()
    write_config(place.root / "config.json", TINY)
    with kernel_cache.used_by(place.root, place.cache):
        follow(PROJECT / "docs/own-kernels.md", folder, variables=warm_workers)
    return place


def test_the_kernel_stands_where_its_pattern_does(followed: Followed) -> None:
    (compiled,) = [each for each in followed.shown("CompileTriton")["actions"] if "silu_multiply" in each["action"]]
    told = compiled["stage"]["parameters"]
    assert told["constants"] == [["BLOCK", 1024]]
    assert told["signature"] == [["x", "*fp16"], ["output", "*fp16"], ["elements", "i32"], ["width", "i32"]]
    assert told["aligned"] == ["x", "output", "width"]
    kernels = followed.shown()["kernels"]
    # A pass of several tokens of a sequence, one token, and one token each of several sequences.
    own = [name for name in kernels["triton"] if name.startswith("silu_multiply ")]
    assert len(own) == 3
    assert not any("silu" in name for source, names in kernels.items() if source != "triton" for name in names)


def test_there_is_machine_code_for_sm_80_and_sm_90(followed: Followed, tmp_path: Path) -> None:
    (compiled,) = [each for each in followed.shown("CompileTriton")["actions"] if "silu_multiply" in each["action"]]
    told = compiled["stage"]["parameters"]
    (cubin,) = [each["blob"] for each in compiled["output_files"] if each["path"].endswith(".cubin")]
    assert told["arch"] == "sm_80"
    made = {80: Path(cubin), 90: tmp_path / "a.cubin"}
    subprocess.run(
        [sys.executable, "-c", _COMPILE, str(made[90]), str(tmp_path / "launch.json"), json.dumps(told)],
        cwd=followed.root,
        env={**os.environ, "PYTHONPATH": f"{PROJECT}{os.pathsep}{followed.root}"},
        check=True,
    )
    for number, path in made.items():
        data = path.read_bytes()
        assert data[:4] == b"\x7fELF"
        assert number in data[48:50], "the architecture in the ELF header's flags"
        assert told["name"].encode() in data
    (function,) = device_functions.from_json((tmp_path / "launch.json").read_text(), where="")
    assert len(function.argument_types) == len(told["signature"]) + 2


def test_edits_of_the_kernel_and_of_the_target_run_what_depends_on_them(followed: Followed) -> None:
    path = "kernels/silu.py"
    before = {name: (followed.root / name).read_text() for name in (path, "BUILD.toml")}
    try:
        followed.edit(path, "@triton.jit", "# A comment.\n\n@triton.jit")
        assert followed.ran() == {}
        followed.edit(path, "1.0 + tl.exp", "2.0 + tl.exp")
        assert followed.ran() == {"CompileTriton": 1, "Link": 1}
        followed.edit("BUILD.toml", "BLOCK = 1024", "BLOCK = 512")
        ran = followed.ran()
        assert ran.pop("CompileTriton") == 1
        assert ran == {
            **dict.fromkeys(("Phase1", "Phase2", "Phase3", "Partition", "Lower", "Link"), 1),
            "ScheduleKernel": 3,
            "CompileKernel": 3,
        }
    finally:
        for name, text in before.items():
            (followed.root / name).write_text(text)


def test_a_kernel_that_stands_for_nothing_is_told_with_what_was_nearly_its_place(followed: Followed) -> None:
    before = (followed.root / "BUILD.toml").read_text()
    try:
        followed.edit("BUILD.toml", 'x = "*fp16:16"', 'x = "*fp32"')
        done = followed.called("build", "//:library")
        assert done.returncode != 0
        assert "the kernel kernels.silu:silu_multiply stands for nothing in this model" in done.stderr
        assert "x is float16, and *fp32 is declared" in done.stderr
    finally:
        (followed.root / "BUILD.toml").write_text(before)
