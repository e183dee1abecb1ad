"""CompileDevice by the nvcc of a CUDA toolkit, which a platform asked for.

Reads `source` (of CompileKernel); writes `cubin`, an ELF file for one architecture. nvcc has the host's C++ compiler
preprocess the text.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from mlcbuild.compiler.backends.cuda import architectures
from mlcbuild.errors import LocalEnvironmentError, StageError

_OPTIONS = ("--use_fast_math", "--disable-warnings")
_SEARCH_PATH = "/usr/local/bin:/usr/bin:/bin"
_NAME = "kernel.cu"
_RESULT = "kernel.cubin"
_LOG_CHARACTERS = 3000


def run(*, source: Path, cubin: Path, arch: str, toolkit: str) -> None:
    """Raises StageError for an unknown architecture and for a text that does not compile, LocalEnvironmentError where
    the toolkit has no nvcc that runs."""
    if (wrong := architectures.problem(arch)) is not None:
        raise StageError(wrong[0], advice=wrong[1])
    command = [str(Path(toolkit, "bin", "nvcc")), "--cubin", f"--gpu-architecture={arch}", *_OPTIONS]
    # A name without a directory, because nvcc remembers the path that it was given.
    with tempfile.TemporaryDirectory(dir=cubin.parent) as scratch:
        Path(scratch, _NAME).write_bytes(source.read_bytes())
        _run([*command, f"--output-file={_RESULT}", _NAME], Path(scratch), arch)
        cubin.write_bytes(Path(scratch, _RESULT).read_bytes())


def _run(command: list[str], directory: Path, arch: str) -> None:
    environment = {"PATH": _SEARCH_PATH, "TMPDIR": "."}
    try:
        finished = subprocess.run(command, capture_output=True, text=True, check=False, cwd=directory, env=environment)
    except OSError as error:
        advice = "correct the platform's toolkit, or leave it out"
        raise LocalEnvironmentError(f"{command[0]} cannot be run: {error.strerror}", advice=(advice,)) from error
    if finished.returncode == 0:
        return
    log = (finished.stderr or finished.stdout).strip()
    first = next((line for line in log.splitlines() if "error" in line), log.partition("\n")[0])
    raise StageError(f"the kernel's CUDA text does not compile for {arch}: {first}", advice=(log[:_LOG_CHARACTERS],))
