"""The processor that runs an action, for compilers whose results depend on it: `processor:here`, or a level by name.

Levels are those of the System V ABI for x86-64 (`x86-64-v3`); other machines have one level, their name. An action that
declares `processor:here` has the level of the machine that runs it in its key. With a level by name it runs only on
machines of just that level, because such compilers take all that they find.
"""

from __future__ import annotations

import platform
from pathlib import Path

from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.toolchains.installed_files import InstalledFiles
from mlcbuild.toolchains.toolchain import Toolchain

CPUINFO = Path("/proc/cpuinfo")
_HERE = "here"
# What Linux calls the features that a level adds, those of the levels below it aside.
_LEVELS = (
    ("x86-64-v2", frozenset(["cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"])),
    ("x86-64-v3", frozenset(["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"])),
    ("x86-64-v4", frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"])),
)


def processor_level(cpuinfo: str, machine: str) -> str:
    """The level of a machine, by what /proc/cpuinfo says and what `uname -m` calls it."""
    if machine != "x86_64":
        return machine
    lines = [line for line in cpuinfo.splitlines() if line.startswith("flags")]
    flags = set(lines[0].partition(":")[2].split()) if lines else set()
    level = "x86-64"
    for name, features in _LEVELS:
        if not features <= flags:
            break
        level = name
    return level


class _Processor(Toolchain):
    def check(self, files: InstalledFiles, path: str) -> None:
        del files
        if path != _HERE and path != (level := _level()):
            raise LocalEnvironmentError(
                f"an action is for processors of the level {path}, and this machine has {level}",
                advice=(f"build it on a machine of the level {path}, or for {level}",),
            )

    def contents(self, files: InstalledFiles, path: str) -> list[str]:
        self.check(files, path)
        return [_level()]

    def version(self, files: InstalledFiles) -> str:
        del files
        return _level()


def _level() -> str:
    try:
        return processor_level(CPUINFO.read_text(encoding="utf-8", errors="replace"), platform.machine())
    except OSError as error:
        raise LocalEnvironmentError(f"{CPUINFO} cannot be read: {error.strerror}") from error


TOOLCHAIN = _Processor(name="processor", takes_path=True, is_optional=True)
