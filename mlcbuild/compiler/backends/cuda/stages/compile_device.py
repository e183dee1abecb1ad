"""CompileDevice: the CUDA C++ text of a kernel → its machine code for one GPU architecture.

Reads `source` (of CompileKernel); writes `cubin`, an ELF file. The compiler is NVRTC, in this process; TVM is not
needed.
"""

from __future__ import annotations

from pathlib import Path

from mlcbuild.compiler.backends.cuda import architectures, nvrtc
from mlcbuild.errors import StageError

# Fast mathematics is TVM's own default for CUDA. Warnings are about variables that TVM's text declares and does not
# use.
OPTIONS = ("--use_fast_math", "--disable-warnings")


def run(*, source: Path, cubin: Path, arch: str) -> None:
    """Raises StageError for an unknown architecture, and for a text that does not compile, with the compiler's log."""
    if (wrong := architectures.problem(arch)) is not None:
        raise StageError(wrong[0], advice=wrong[1])
    cubin.write_bytes(nvrtc.compile_text(source.read_text(encoding="utf-8"), arch, OPTIONS))
