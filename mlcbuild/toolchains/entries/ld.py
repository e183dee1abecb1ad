"""The system's linker, from binutils."""

from __future__ import annotations

import re

from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.toolchains.installed_files import InstalledFiles
from mlcbuild.toolchains.toolchain import Toolchain

# The libraries that hold the linker's own code; the C library and compression do not decide what is linked.
OWN_LIBRARIES = re.compile(rb"lib(?:bfd|opcodes|ctf|sframe)[-.\w]*\.so[.\w]*")

# Links an empty library with the options that the Link stage gives.
_TRIAL = """
import json, subprocess, time
from mlcbuild.toolchains.programs import find_program
began = time.perf_counter()
linker = str(find_program("ld"))
version = subprocess.run([linker, "--version"], check=True, capture_output=True, text=True).stdout.partition("\\n")[0]
options = ["-shared", "--build-id=none", "--hash-style=gnu", "-z", "relro"]
linked = subprocess.run([linker, *options, "-o", "x.so", "-b", "binary", "/dev/null"], capture_output=True, text=True)
if linked.returncode:
    raise SystemExit(f"{version} cannot link a library: {linked.stderr.strip()}")
print(json.dumps({"done": f"linked a library with {version}", "seconds": time.perf_counter() - began}))
"""


class _Linker(Toolchain):
    def check(self, files: InstalledFiles, path: str) -> None:
        del path
        files.program(self.name, advice=self.advice)

    def contents(self, files: InstalledFiles, path: str) -> list[str]:
        del path
        program = files.program(self.name, advice=self.advice)
        libraries = files.libraries(program, OWN_LIBRARIES)
        return [
            f"{self.name} {files.content(program)}",
            *(f"{library.name} {files.content(library)}" for library in libraries),
        ]

    def version(self, files: InstalledFiles) -> str:
        """The path of its file."""
        try:
            return str(files.program(self.name))
        except LocalEnvironmentError:
            return ""


TOOLCHAIN = _Linker(name="ld", advice=("install binutils",), trial=_TRIAL, trial_seconds=20.0)
