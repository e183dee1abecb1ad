"""The system's C++ compiler, g++, for compilers that write C++: by its programs, its headers, and the C library's."""

from __future__ import annotations

import platform
import re
from pathlib import Path

from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.toolchains.entries.ld import OWN_LIBRARIES
from mlcbuild.toolchains.installed_files import InstalledFiles
from mlcbuild.toolchains.toolchain import Toolchain

# Each is what GCC and distributions call it; a folder that a machine lacks counts as nothing. Debian and Ubuntu install
# several versions side by side, and g++ is a link to one of them, whose name tells which.
_NAME = re.compile(r"(?P<triple>.+)-g\+\+-(?P<version>\d+)")
_OF_COMPILERS = ("/usr/lib/gcc/{triple}/{version}", "/usr/libexec/gcc/{triple}/{version}")
_OF_LIBRARIES = ("/usr/include/c++/{version}", "/usr/include/{triple}/c++/{version}")
_OF_ALL = ("/usr/lib/gcc", "/usr/libexec/gcc", "/usr/include/c++", "/usr/include/{machine}-linux-gnu/c++")
_OF_C = (
    "/usr/include/{machine}-linux-gnu/bits",
    "/usr/include/{machine}-linux-gnu/sys",
    "/usr/include/bits",
    "/usr/include/sys",
)
_ASSEMBLER_AND_LINKER = ("as", "ld")

_TRIAL = """
import json, subprocess
from pathlib import Path
from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.toolchains.programs import find_program
try:
    compiler = str(find_program("g++"))
except LocalEnvironmentError:
    told = {"skipped": "there is no g++; torch_aoti_library and platforms with libraries need it"}
else:
    Path("x.cpp").write_text("#include <vector>\\nint main() { return static_cast<int>(std::vector<int>(0).size()); }")
    ran = subprocess.run([compiler, "-O2", "x.cpp", "-o", "x"], capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(f"{compiler} cannot compile a program: {ran.stderr.strip()}")
    told = {"done": f"compiled a program with {compiler}"}
print(json.dumps(told))
"""


class _Compiler(Toolchain):
    def check(self, files: InstalledFiles, path: str) -> None:
        del path
        files.program("g++", advice=self.advice)

    def contents(self, files: InstalledFiles, path: str) -> list[str]:
        del path
        compiler = files.program("g++", advice=self.advice)
        programs = [files.program(name, advice=self.advice) for name in _ASSEMBLER_AND_LINKER]
        libraries = {library for program in programs for library in files.libraries(program, OWN_LIBRARIES)}
        return [
            f"g++ {files.content(compiler)}",
            *(f"{program.name} {files.content(program)}" for program in programs),
            *(f"{library.name} {files.content(library)}" for library in sorted(libraries)),
            *(f"{folder} {files.tree(Path(folder))}" for folder in folders_of(compiler)),
        ]

    def version(self, files: InstalledFiles) -> str:
        """The path of its file."""
        try:
            return str(files.program("g++"))
        except LocalEnvironmentError:
            return ""


def folders_of(compiler: Path) -> list[str]:
    """What a compiler reads: of the GCCs on the machine its own, or all where the name of its file tells no version."""
    found = _NAME.fullmatch(compiler.name)
    own = (*_OF_COMPILERS, *_OF_LIBRARIES) if found else _OF_ALL
    named = found.groupdict() if found else {}
    return [folder.format(machine=platform.machine(), **named) for folder in (*own, *_OF_C)]


TOOLCHAIN = _Compiler(
    name="gxx",
    is_optional=True,
    advice=("install g++ (Debian's package g++)",),
    trial=_TRIAL,
    trial_seconds=30.0,
)
