"""Programs of the system that rules use, from the folders in which rules look for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlcbuild.doctor.check import Check
from mlcbuild.doctor.children import run
from mlcbuild.doctor.finding import Finding, ok, problem, skipped
from mlcbuild.engine.toolchains import PROGRAM_FOLDERS, find_program
from mlcbuild.errors import LocalEnvironmentError

_LINK_SECONDS = 20.0


def program_checks(folders: Sequence[str] = PROGRAM_FOLDERS) -> Sequence[Check]:
    return (
        Check(name="ld", examine=lambda: linker(folders), seconds=2 * _LINK_SECONDS + 5),
        Check(name="gcc", examine=lambda: gcc(folders), seconds=_LINK_SECONDS + 5),
    )


def linker(folders: Sequence[str] = PROGRAM_FOLDERS) -> Finding:
    """Links a library of nothing, with the options that the Link stage gives."""
    program = find_program("ld", folders)
    version = run([str(program), "--version"], seconds=_LINK_SECONDS)
    told = f"{version.first or program.name}, {program}"
    options = ["-shared", "--build-id=none", "--hash-style=gnu", "-z", "relro"]
    made = run([str(program), *options, "-o", "x.so", "-b", "binary", "/dev/null"], seconds=_LINK_SECONDS)
    if made.ended:
        return problem(f"{told}: linking a library {made.ended}", "install binutils again")
    return ok(told, path=str(program))


def gcc(folders: Sequence[str] = PROGRAM_FOLDERS) -> Finding:
    """Only platforms that name a CUDA toolkit need it."""
    try:
        program = find_program("gcc", folders)
    except LocalEnvironmentError:
        return skipped("not installed; only platforms that name a CUDA toolkit need it")
    version = run([str(program), "--version"], seconds=_LINK_SECONDS)
    if version.ended:
        return problem(f"{program} {version.ended}", "install gcc again")
    return ok(f"{version.first}, {program}", path=str(Path(program)))
