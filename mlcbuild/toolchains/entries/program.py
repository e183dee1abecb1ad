"""A program that a target names by its path, by the content of its file: `program:/usr/bin/strip`."""

from __future__ import annotations

from pathlib import Path

from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.toolchains.installed_files import InstalledFiles
from mlcbuild.toolchains.toolchain import Toolchain


class _Program(Toolchain):
    def check(self, files: InstalledFiles, path: str) -> None:
        """Nothing is checked before a build: targets that do not need the program can be built without it."""

    def contents(self, files: InstalledFiles, path: str) -> list[str]:
        program = Path(path)
        if not files.is_file(program):
            raise LocalEnvironmentError(f"there is no program {program}", advice=self.advice)
        return [files.content(program)]


TOOLCHAIN = _Program(name="program", takes_path=True, advice=("install it, or correct its path",))
