"""The processor that runs an action, for compilers whose results depend on it: `processor:here`, or a level by name.

Levels are those of the System V ABI for x86-64 (`x86-64-v3`); other machines have one level, their name. An action that
declares `processor:here` has the level of the machine that runs it in its key, and the instructions that the level does
not name (AMX, SVE), because a compiler left alone takes those as well. With a level by name it runs only on machines of
just that level, and the compiler is to be told to keep to it.
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
# Instructions that compute, by what their names begin with. The other flags are about the kernel and virtual machines.
_COMPUTING = ("amx", "avx", "f16c", "fma", "gfni", "sha", "vaes", "vpclmul")


def instructions(cpuinfo: str, machine: str) -> list[str]:
    """What the first processor computes with, as Linux calls it, sorted."""
    if machine != "x86_64":
        return sorted(_flags(cpuinfo, "Features"))
    return sorted(flag for flag in _flags(cpuinfo, "flags") if flag.startswith(_COMPUTING))


def processor_level(cpuinfo: str, machine: str) -> str:
    """The level of a machine, by what /proc/cpuinfo says and what `uname -m` calls it."""
    if machine != "x86_64":
        return machine
    flags = _flags(cpuinfo, "flags")
    level = "x86-64"
    for name, features in _LEVELS:
        if not features <= flags:
            break
        level = name
    return level


def _flags(cpuinfo: str, field: str) -> set[str]:
    lines = [line for line in cpuinfo.splitlines() if line.startswith(field)]
    return set(lines[0].partition(":")[2].split()) if lines else set()


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
        level = _level()
        # A level of x86-64 says which instructions there are; the name of another machine does not.
        named = path != _HERE and level != platform.machine()
        return [level] if named else [level, *instructions(_cpuinfo(), platform.machine())]

    def version(self, files: InstalledFiles) -> str:
        del files
        return _level()


def _level() -> str:
    return processor_level(_cpuinfo(), platform.machine())


def _cpuinfo() -> str:
    try:
        return CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise LocalEnvironmentError(f"{CPUINFO} cannot be read: {error.strerror}") from error


TOOLCHAIN = _Processor(name="processor", takes_path=True, is_optional=True)
