"""FatBinary: a kernel's machine code for several architectures → one file, of which a driver loads what fits its GPU.

Reads `cubins` (of CompileDevice), each called `<kernel>.<architecture>.cubin`; writes `fat_binary`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlcbuild.compiler.backends.cuda import architectures
from mlcbuild.compiler.backends.cuda import fat_binary as fat_binaries
from mlcbuild.errors import StageError

_ELF = b"\x7fELF"


def run(*, cubins: Sequence[Path], fat_binary: Path) -> None:
    """Raises StageError for files that are no cubins of distinct architectures."""
    by_architecture = {_architecture(cubin): cubin.read_bytes() for cubin in cubins}
    if len(by_architecture) != len(cubins):
        raise StageError(f"two of the cubins are for one architecture: {', '.join(cubin.name for cubin in cubins)}")
    for name, data in by_architecture.items():
        if not data.startswith(_ELF):
            raise StageError(f"the cubin for {name} is none: it is not an ELF file")
    fat_binary.write_bytes(fat_binaries.combine(by_architecture))


def _architecture(cubin: Path) -> str:
    name = cubin.name.removesuffix(".cubin").rpartition(".")[2]
    if architectures.problem(name) is not None:
        raise StageError(f"{cubin.name} does not name an architecture before .cubin")
    return name
