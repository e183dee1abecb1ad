"""A linker for another machine than this one, from binutils: `cross_ld:aarch64`."""

from __future__ import annotations

from mlcbuild.system_programs import linker_advice, linker_name
from mlcbuild.toolchains.entries.ld import OWN_LIBRARIES
from mlcbuild.toolchains.installed_files import InstalledFiles
from mlcbuild.toolchains.toolchain import Toolchain


class _CrossLinker(Toolchain):
    """Its path is the machine."""

    def check(self, files: InstalledFiles, path: str) -> None:
        files.program(linker_name(path), advice=(linker_advice(path),))

    def contents(self, files: InstalledFiles, path: str) -> list[str]:
        name = linker_name(path)
        program = files.program(name, advice=(linker_advice(path),))
        libraries = files.libraries(program, OWN_LIBRARIES)
        return [f"{name} {files.content(program)}", *(f"{item.name} {files.content(item)}" for item in libraries)]


TOOLCHAIN = _CrossLinker(name="cross_ld", takes_path=True, is_optional=True)
