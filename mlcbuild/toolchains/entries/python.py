"""The Python that runs stages: its version, which with the stages' own code decides what they compute."""

from __future__ import annotations

from mlcbuild.engine.interpreter import python_version
from mlcbuild.toolchains.installed_files import InstalledFiles
from mlcbuild.toolchains.toolchain import Toolchain


class _Python(Toolchain):
    def check(self, files: InstalledFiles, path: str) -> None:
        """Nothing to check: it runs this."""

    def contents(self, files: InstalledFiles, path: str) -> list[str]:
        del files, path
        return [python_version()]

    def version(self, files: InstalledFiles) -> str:
        del files
        return python_version()


TOOLCHAIN = _Python(name="python")
