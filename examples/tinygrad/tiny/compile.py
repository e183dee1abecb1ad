"""`source` → `library`: C++ as g++ compiles it for processors of a level."""

from __future__ import annotations

import subprocess
from pathlib import Path

from mlcbuild.errors import StageError
from mlcbuild.system_programs import program_path

_OPTIONS = ("-x", "c++", "-std=gnu++17", "-O3", "-fno-math-errno", "-shared", "-fPIC")
_WORDS_OF_C = ("-Drestrict=__restrict", "-D_Bool=bool")


def run(*, source: Path, library: Path, cpu: str) -> None:
    command = [program_path("g++"), *_OPTIONS, *_WORDS_OF_C, f"-march={cpu}", "-o", str(library), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise StageError(f"g++ does not compile what tinygrad wrote: {done.stderr.strip()}")
