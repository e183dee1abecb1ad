"""Link: a library that TVM's runtime alone loads, that depends on nothing of the machine that made it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mlcbuild.compiler import elf_library
from mlcbuild.compiler.backends.cpu.link import LINKING
from mlcbuild.compiler.stages import link
from mlcbuild.errors import LocalEnvironmentError, StageError
from tests.compiler.pipeline import CPU_TARGET, finish_library
from tests.compiler.small_graph import write_small_graph

_RUN = """
import json, sys
import numpy
import tvm
from tvm.runtime import vm
library = tvm.runtime.load_module(sys.argv[1])
machine = vm.VirtualMachine(library, tvm.cpu())
x = tvm.runtime.tensor(numpy.arange(16, dtype="float32").reshape(2, 8))
result = machine["main"](x).numpy()
assert (result == x.numpy() * 4 + 1).all(), result
print(json.dumps(json.loads(str(machine["_metadata"]()))["memory_usage"]))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a finished small library."""
    directory = tmp_path_factory.mktemp("library")
    write_small_graph(directory)
    finish_library(CPU_TARGET, directory)
    return directory


def _link(built: Path, library: Path, **changes: object) -> None:
    arguments: dict[str, object] = {
        "executable": built / "executable.bin",
        "shape_functions": built / "shape_functions.o",
        "objects": tuple((built / "objects").iterdir()),
        "library": library,
        "target": dict(CPU_TARGET),
        "backend": LINKING,
    }
    link.run(**(arguments | changes))  # type: ignore[arg-type]


def test_a_fresh_process_with_the_runtime_alone_loads_and_runs_it(built: Path) -> None:
    environment = {**os.environ, "TVM_USE_RUNTIME_LIB": "1"}
    finished = subprocess.run(
        [sys.executable, "-c", _RUN, str(built / "lib.so")],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout) == json.loads((built / "metadata.json").read_text())["memory_usage"]


def test_bytes_depend_neither_on_place_nor_on_the_order_of_objects(built: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    objects = tuple(sorted((built / "objects").iterdir(), reverse=True))
    _link(built, tmp_path / "elsewhere" / "other.so", objects=objects)
    assert (tmp_path / "elsewhere" / "other.so").read_bytes() == (built / "lib.so").read_bytes()


def test_the_library_names_no_directory_and_needs_only_the_c_library(built: Path) -> None:
    data = (built / "lib.so").read_bytes()
    assert str(built).encode() not in data
    assert sys.prefix.encode() not in data
    needed = re.findall(rb"lib[a-z_+-]+\.so[.0-9]*", data)
    assert set(needed) == {b"libm.so.6", b"libc.so.6"}


def test_linking_leaves_nothing_but_the_library(built: Path, tmp_path: Path) -> None:
    _link(built, tmp_path / "lib.so")
    assert [path.name for path in tmp_path.iterdir()] == ["lib.so"]


def test_an_executable_that_is_none_is_told(built: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.bin").write_bytes(b"nothing")
    with pytest.raises(StageError, match=r"broken\.bin is not an executable of TVM's virtual machine"):
        _link(built, tmp_path / "lib.so", executable=tmp_path / "broken.bin")


def test_the_same_symbol_twice_is_told(built: Path, tmp_path: Path) -> None:
    first = sorted((built / "objects").iterdir())[0]
    copy = tmp_path / "copy.o"
    copy.write_bytes(first.read_bytes())
    with pytest.raises(StageError, match=r"the objects cannot be linked: .*multiple definition"):
        _link(built, tmp_path / "lib.so", objects=(first, copy))


def test_an_object_that_is_none_is_told(built: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.o").write_bytes(b"nothing")
    with pytest.raises(StageError, match="the objects cannot be linked"):
        _link(built, tmp_path / "lib.so", objects=(tmp_path / "broken.o",))


def test_a_missing_linker_is_the_machines_fault(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elf_library, "program_path", lambda _name: "")
    with pytest.raises(LocalEnvironmentError, match="there is no linker `ld`\n  install binutils"):
        _link(built, tmp_path / "lib.so")
    arm = {"kind": "llvm", "mcpu": "cortex-a76", "mtriple": "aarch64-linux-gnu"}
    with pytest.raises(LocalEnvironmentError, match="install aarch64-linux-gnu-ld"):
        _link(built, tmp_path / "lib.so", target=arm)


def test_a_machine_that_nothing_links_for_is_told(built: Path, tmp_path: Path) -> None:
    target = {"kind": "llvm", "mcpu": "generic-rv64", "mtriple": "riscv64-linux-gnu"}
    with pytest.raises(StageError, match='no way to link for the triple "riscv64-linux-gnu"'):
        _link(built, tmp_path / "lib.so", target=target)
