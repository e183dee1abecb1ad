"""FatBinary: a kernel's machine code for several architectures → one file, of which a driver loads what fits its GPU.

Reads `cubins` (of CompileDevice), each called `<kernel>.<architecture>.cubin`; writes `fat_binary`. The program is
CUDA's own `fatbinary`.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from mlcbuild.compiler.cuda import architectures, wheels
from mlcbuild.errors import LocalEnvironmentError, StageError

_PROGRAM = "bin/fatbinary"
_ELF = b"\x7fELF"


def run(*, cubins: Sequence[Path], fat_binary: Path) -> None:
    """Raises StageError for files that are no cubins of distinct architectures, and LocalEnvironmentError where the
    program is missing."""
    by_architecture = {_architecture(cubin): cubin for cubin in cubins}
    if len(by_architecture) != len(cubins):
        raise StageError(f"two of the cubins are for one architecture: {', '.join(cubin.name for cubin in cubins)}")
    images = [
        f"--image3=kind=elf,sm={name.removeprefix('sm_')},file={by_architecture[name]}"
        for name in architectures.in_order(by_architecture)
    ]
    command = [str(wheels.find(_PROGRAM)), f"--create={fat_binary}", "-64", *images]
    try:
        finished = subprocess.run(command, capture_output=True, text=True, check=False, env={})
    except OSError as error:
        raise LocalEnvironmentError(
            f"fatbinary cannot be run: {error.strerror}",
            advice=('run: python -m pip install --force-reinstall "mlcbuild[cuda]"',),
        ) from error
    if finished.returncode != 0 or not fat_binary.exists():
        raise StageError(f"fatbinary failed: {(finished.stderr or finished.stdout).strip() or finished.returncode}")


def _architecture(cubin: Path) -> str:
    name = cubin.name.removesuffix(".cubin").rpartition(".")[2]
    if architectures.problem(name) is not None or not cubin.read_bytes().startswith(_ELF):
        raise StageError(f"{cubin.name} is not the cubin of an architecture")
    return name
