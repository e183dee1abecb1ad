"""The same input gives the same bytes, whatever the process, its directory, its hash seed, and where TVM lies."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import tests
from tests.compiler.tiny_llama import TINY_LLAMA

_COMPILE = """
import json, sys
from pathlib import Path
from tests.compiler.pipeline import CPU_TARGET, compile_library
compile_library(json.loads(sys.argv[1]), sys.argv[2], CPU_TARGET, Path(sys.argv[3]))
import tvm.relax.frontend.nn.llm._page_kernels as kernels
print(kernels.__file__)
"""
_KERNEL_SCRIPTS = Path("tvm", "relax", "frontend", "nn", "llm")


def _compile(directory: Path, quantization: str, *, seed: int, path: list[Path]) -> Path:
    """Compile the tiny llama into `directory` in a process of its own; where it found TVM's kernel scripts."""
    root = Path(str(tests.__path__[0])).parent
    directory.parent.mkdir(parents=True)
    finished = subprocess.run(
        [sys.executable, "-c", _COMPILE, json.dumps(TINY_LLAMA), quantization, directory.name],
        cwd=directory.parent,
        env={
            **os.environ,
            "PYTHONHASHSEED": str(seed),
            "PYTHONPATH": os.pathsep.join(str(entry) for entry in [*path, root]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return Path(finished.stdout.splitlines()[-1])


def _other_installation(directory: Path) -> Path:
    """A second directory of installed packages, with lines shifted in the scripts of TVM's cache kernels."""
    installed = Path(sysconfig.get_paths()["purelib"])
    here = directory
    here.mkdir(parents=True)
    for part in (*_KERNEL_SCRIPTS.parts, None):
        source = installed / here.relative_to(directory)
        for entry in source.iterdir():
            if part is None and entry.suffix == ".py":
                (here / entry.name).write_text("# A line more.\n" * 7 + entry.read_text())
            elif entry.name != part and entry.name != "__pycache__" and entry.suffix != ".pth":
                (here / entry.name).symlink_to(entry)
        if part is not None:
            here = here / part
            here.mkdir()
    return directory


def _contents(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two directories of all files of one library, made under different circumstances."""
    root = tmp_path_factory.mktemp("determinism")
    installation = _other_installation(root / "packages")
    first, second = root / "first" / "out", root / "another" / "and" / "deeper" / "made"
    _compile(first, "q4f16_1", seed=1, path=[])
    found = _compile(second, "q4f16_1", seed=4711, path=[installation])
    assert found.is_relative_to(installation)
    return first, second


@pytest.mark.slow
def test_two_processes_and_two_installations_give_the_same_bytes_of_every_file(made: tuple[Path, Path]) -> None:
    first, second = (_contents(directory) for directory in made)
    assert {"export.json", "phase0.json", "graph.json", "executable.bin", "shape_functions.o", "lib.so"} <= set(first)
    assert {name for name, digest in first.items() if second.get(name) != digest} == set()
    assert set(second) == set(first)


@pytest.mark.slow
def test_no_file_names_a_directory_of_the_machine(made: tuple[Path, Path]) -> None:
    first, _ = made
    for path in first.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            for directory in (str(first.parent), sys.prefix, str(Path.home()) + "/"):
                assert directory.encode() not in data, f"{path.name} names {directory}"
