"""CompileLibrary: what calls a library of others (`backends.cuda.libraries`) → an object file for the host.

Reads nothing but the plug-in `library`; writes `object`. The library itself is needed where the model runs, not here.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from mlcbuild.compiler.backends.cuda.libraries.runtime_library import RuntimeLibrary
from mlcbuild.errors import InternalError, LocalEnvironmentError
from mlcbuild.system_programs import program_path

# Nothing of this machine's processor, and no names of files or tools: the object is the same everywhere.
_OPTIONS = ("-x", "c", "-std=gnu11", "-O2", "-fPIC", "-fno-ident", "-fno-stack-protector", "-U_FORTIFY_SOURCE", "-c")
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "TMPDIR": ".", "LC_ALL": "C"}
_SOURCE, _RESULT = "library.c", "library.o"


def run(*, object: Path, library: RuntimeLibrary) -> None:
    """Raises LocalEnvironmentError where there is no compiler, or none that runs."""
    compiler = program_path("g++")
    if not compiler:
        raise LocalEnvironmentError("there is no g++", advice=("install g++ (Debian's package g++)",))
    with tempfile.TemporaryDirectory(dir=object.parent) as scratch:
        Path(scratch, _SOURCE).write_text(library.source, encoding="utf-8")
        command = [compiler, *_OPTIONS, "-o", _RESULT, _SOURCE]
        finished = subprocess.run(command, capture_output=True, text=True, check=False, cwd=scratch, env=_ENVIRONMENT)
        if finished.returncode:
            raise InternalError(f"what calls {library.name} does not compile: {finished.stderr.strip()[:2000]}")
        object.write_bytes(Path(scratch, _RESULT).read_bytes())
