"""Link: bytecode and objects become one shared library.

Reads `executable` and `shape_functions` (of Lower) and `objects` (of every kernel). Writes `library`, which TVM's
runtime loads. The linker is `ld` itself, without a compiler's start files and without a build identifier, so that
the library depends on nothing but its inputs.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi

from mlcbuild.compiler import target as targets
from mlcbuild.errors import InternalError, LocalEnvironmentError, StageError

_SEARCH_PATH = "/usr/local/bin:/usr/bin:/bin"
_EMULATIONS: Mapping[str, str] = {"x86_64": "elf_x86_64", "aarch64": "aarch64linux"}
_BAD_OBJECTS = ("multiple definition", "format not recognized", "incompatible with", "truncated", "cannot find")
_DIRECTORY = re.compile(r"/\S*/")
# Kernels call exp, powf, memset and the like; the library names where they are, like any other.
_NEEDED: tuple[str, ...] = ("libm.so.6", "libc.so.6")


def run(
    *,
    executable: Path,
    shape_functions: Path,
    objects: Sequence[Path],
    library: Path,
    target: dict[str, Any],
) -> None:
    """Raises StageError for an executable that is none and for objects that do not fit together, and
    LocalEnvironmentError where the linker is missing or does not know the target's machine."""
    parsed = targets.parse(target)
    triple = targets.host_triple(target)
    linker = _linker()
    emulation = _EMULATIONS.get(triple.split("-")[0])
    if emulation is None:
        raise StageError(
            f'no way to link for the triple "{triple}"', advice=(f"known: {', '.join(sorted(_EMULATIONS))}",)
        )
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        image = Path(scratch) / "image.o"
        _write_image(executable, shape_functions, image, parsed)
        needed = [_needed(linker, emulation, name, Path(scratch)) for name in _NEEDED]
        ordered = sorted(objects, key=lambda path: path.name)
        _run(
            [
                *[linker, "-m", emulation, "-shared", "--build-id=none", "--hash-style=gnu"],
                *["-z", "noexecstack", "-z", "relro"],
                *["-o", str(library), *(str(path) for path in ordered), str(shape_functions), str(image)],
                *["--no-as-needed", *(str(path) for path in needed)],
            ]
        )


def _linker() -> str:
    found = shutil.which("ld", path=_SEARCH_PATH)
    if found is None:
        raise LocalEnvironmentError("there is no linker `ld`", advice=("install binutils",))
    return found


def _write_image(executable: Path, shape_functions: Path, image: Path, target: tvm.target.Target) -> None:
    """An object file that holds the executable in the form that the runtime looks for in a library."""
    load = tvm_ffi.get_global_func("ffi.Module.load_from_file.relax.VMExecutable")
    try:
        program = load(str(executable))
    except Exception as error:
        raise StageError(f"{executable.name} is not an executable of TVM's virtual machine") from error
    # One object stands for all: it says that the rest of the library is native code.
    program.import_module(tvm.runtime.load_static_library(str(shape_functions), []))
    pack = tvm_ffi.get_global_func("runtime.ModulePackImportsToLLVM")
    pack(program, False, str(target), "").write_to_file(str(image), "o")


def _needed(linker: str, emulation: str, name: str, scratch: Path) -> Path:
    """An empty library of that name: linking with it records the name, whatever this machine has."""
    path = scratch / name
    empty = _empty_object(scratch, linker, emulation)
    options = ["-m", emulation, "-shared", "--build-id=none", "-soname", name]
    _run([linker, *options, "-o", str(path), str(empty)])
    return path


def _empty_object(scratch: Path, linker: str, emulation: str) -> Path:
    path = scratch / "empty.o"
    if not path.exists():
        source = scratch / "empty"
        source.write_bytes(b"")
        _run([linker, "-m", emulation, "-r", "-b", "binary", "-o", str(path), str(source)])
    return path


def _run(command: list[str]) -> None:
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode == 0:
        return
    message = _DIRECTORY.sub("", finished.stderr.strip()) or f"exit code {finished.returncode}"
    lines = message.splitlines()
    if "unrecognised emulation mode" in message:
        raise LocalEnvironmentError(f"the linker does not link for this target: {lines[0]}")
    for mark in _BAD_OBJECTS:
        found = next((line for line in lines if mark in line), None)
        if found is not None:
            raise StageError(f"the objects cannot be linked: {found}")
    raise InternalError(f"the linker failed: {message}")
