"""Link: bytecode, objects and device code become one shared library.

Reads `executable` and `shape_functions` (of Lower) and `objects` (of every kernel), for a GPU also `device_code` (a
cubin or fat binary of every kernel) and `launches` (what launches them). Writes `library`, which TVM's runtime loads.
The linker is `ld` itself, without a compiler's start files and without a build identifier, and the image that the
runtime looks for is written here, so that the library depends on nothing but its inputs.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlcbuild.compiler import elf_object, library_image
from mlcbuild.compiler.backends.cuda import device_functions
from mlcbuild.compiler.library_image import ImageModule
from mlcbuild.compiler.target_host import host_triple
from mlcbuild.errors import InternalError, LocalEnvironmentError, StageError

_SEARCH_PATH = "/usr/local/bin:/usr/bin:/bin"
_EMULATIONS: Mapping[str, str] = {"x86_64": "elf_x86_64", "aarch64": "aarch64linux"}
_BAD_OBJECTS = ("multiple definition", "format not recognized", "incompatible with", "truncated", "cannot find")
_DIRECTORY = re.compile(r"/\S*/")
# Kernels call exp, powf, memset and the like; the library names where they are, like any other.
_NEEDED: tuple[str, ...] = ("libm.so.6", "libc.so.6")
_EXECUTABLE_MAGIC = (0xD225DE2F4214151E).to_bytes(8, "little")


def run(
    *,
    executable: Path,
    shape_functions: Path,
    objects: Sequence[Path],
    library: Path,
    target: dict[str, Any],
    device_code: Sequence[Path] = (),
    launches: Sequence[Path] = (),
) -> None:
    """Device code and launches belong together by the kernel's name, what their files' names begin with.

    Raises StageError for an executable that is none, for objects that do not fit together, and for device code
    without a launch or the other way round; LocalEnvironmentError where the linker is missing or does not know the
    target's machine.
    """
    triple = host_triple(target)
    machine = triple.split("-")[0]
    emulation = _EMULATIONS.get(machine)
    if emulation is None:
        raise StageError(
            f'no way to link for the triple "{triple}"', advice=(f"known: {', '.join(sorted(_EMULATIONS))}",)
        )
    linker = _linker()
    image = _image(executable, device_code, launches)
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        image_object = Path(scratch) / "image.o"
        image_object.write_bytes(elf_object.read_only_data(library_image.SYMBOL, image, machine))
        needed = [_needed(linker, emulation, name, Path(scratch)) for name in _NEEDED]
        ordered = sorted(objects, key=lambda path: path.name)
        _run(
            [
                *[linker, "-m", emulation, "-shared", "--build-id=none", "--hash-style=gnu"],
                *["-z", "noexecstack", "-z", "relro"],
                *["-o", str(library), *(str(path) for path in ordered), str(shape_functions), str(image_object)],
                *["--no-as-needed", *(str(path) for path in needed)],
            ]
        )


def _image(executable: Path, device_code: Sequence[Path], launches: Sequence[Path]) -> bytes:
    """The executable imports the native code, and that the device code: a module a kernel.

    A module's code goes to the GPU when a function of it is called first, so that a process pays for the kernels that
    it uses; and nothing has to be linked anew on a device when one kernel changes.
    """
    program = executable.read_bytes()
    if not program.startswith(_EXECUTABLE_MAGIC):
        raise StageError(f"{executable.name} is not an executable of TVM's virtual machine")
    modules = [ImageModule(kind=library_image.CUDA, data=data) for data in _device_modules(device_code, launches)]
    imported = tuple(range(2, 2 + len(modules)))
    return library_image.write(
        [
            ImageModule(kind=library_image.EXECUTABLE, data=program, imports=(1,)),
            ImageModule(kind=library_image.NATIVE_CODE, imports=imported),
            *modules,
        ]
    )


def _device_modules(device_code: Sequence[Path], launches: Sequence[Path]) -> list[bytes]:
    code, launch = _by_kernel(device_code), _by_kernel(launches)
    for name in sorted(code.keys() ^ launch.keys()):
        raise StageError(f"{name} has {'no launch' if name in code else 'no device code'}")
    return [
        device_functions.to_module(
            device_functions.from_json(launch[name].read_text(encoding="utf-8"), where=launch[name].name),
            path.read_bytes(),
        )
        for name, path in sorted(code.items())
    ]


def _by_kernel(paths: Sequence[Path]) -> dict[str, Path]:
    return {path.name.partition(".")[0]: path for path in paths}


def _linker() -> str:
    found = shutil.which("ld", path=_SEARCH_PATH)
    if found is None:
        raise LocalEnvironmentError("there is no linker `ld`", advice=("install binutils",))
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
