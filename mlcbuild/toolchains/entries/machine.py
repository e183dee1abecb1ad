"""The machine that runs an action, `machine:here`, for measurements: its name, its processor, and its cores.

A measurement is true of one machine. The disk cache may lie in a folder that several machines share, so their results
have keys of their own.
"""

from __future__ import annotations

import os
import platform

from mlcbuild.toolchains.entries import processor
from mlcbuild.toolchains.installed_files import InstalledFiles
from mlcbuild.toolchains.toolchain import Toolchain


class _Machine(Toolchain):
    def check(self, files: InstalledFiles, path: str) -> None:
        """Nothing to check: it runs this."""

    def contents(self, files: InstalledFiles, path: str) -> list[str]:
        del files, path
        return [platform.node(), processor_name(), f"{len(os.sched_getaffinity(0))} cores"]

    def version(self, files: InstalledFiles) -> str:
        del files
        return processor_name()


def processor_name() -> str:
    """What Linux calls the processor; the kind of machine where it does not say."""
    try:
        lines = processor.CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


TOOLCHAIN = _Machine(name="machine", takes_path=True, is_optional=True)
