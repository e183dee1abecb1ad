"""A shared library in the ELF format, made by `ld`.

The linker is called without a compiler's start files and without a build identifier, so that the library depends on
nothing but its inputs.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlcbuild.compiler import elf_object, library_image
from mlcbuild.compiler.target_host import host_triple
from mlcbuild.errors import InternalError, LocalEnvironmentError, StageError
from mlcbuild.system_programs import linker_advice, linker_name, program_path

_EMULATIONS: Mapping[str, str] = {"x86_64": "elf_x86_64", "aarch64": "aarch64linux"}
_BAD_OBJECTS = ("multiple definition", "format not recognized", "incompatible with", "truncated", "cannot find")
_DIRECTORY = re.compile(r"/\S*/")
# Kernels call exp, powf, memset and the like; the library names where they are, like any other.
_NEEDED: tuple[str, ...] = ("libm.so.6", "libc.so.6")


def write_elf_library(
    *, objects: Sequence[Path], image: bytes, library: Path, target: Mapping[str, Any], scratch: Path
) -> None:
    """The library of objects, in the order given, and an image, for the host of `target`: a `linking.WriteLibrary`."""
    triple = host_triple(target)
    machine = triple.split("-")[0]
    emulation = _EMULATIONS.get(machine)
    if emulation is None:
        raise StageError(
            f'no way to link for the triple "{triple}"', advice=(f"known: {', '.join(sorted(_EMULATIONS))}",)
        )
    linker = _linker(machine)
    image_object = scratch / "image.o"
    image_object.write_bytes(elf_object.read_only_data(library_image.SYMBOL, image, machine))
    needed = [_needed(linker, emulation, name, scratch) for name in _NEEDED]
    _run(
        [
            *[linker, "-m", emulation, "-shared", "--build-id=none", "--hash-style=gnu"],
            *["-z", "noexecstack", "-z", "relro"],
            *["-o", str(library), *(str(path) for path in objects), str(image_object)],
            *["--no-as-needed", *(str(path) for path in needed)],
        ]
    )


def _linker(machine: str) -> str:
    found = program_path(linker_name(machine))
    if not found:
        raise LocalEnvironmentError(f"there is no linker `{linker_name(machine)}`", advice=(linker_advice(machine),))
    return found


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
