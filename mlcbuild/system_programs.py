"""Programs of the system that actions run: where they are looked for, and which one links for a machine.

A program is looked for in a fixed list of folders, never by the user's PATH: a shim that somebody put first there would
otherwise link the libraries of everybody who shares the cache.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence

PROGRAM_FOLDERS = ("/usr/local/bin", "/usr/bin", "/bin")


def program_path(name: str, folders: Sequence[str] = PROGRAM_FOLDERS) -> str:
    """The file of a program in the first folder that has it; "" where none has."""
    paths = (f"{folder}/{name}" for folder in folders)
    return next((path for path in paths if os.path.isfile(path)), "")  # noqa: PTH113  # Rules import no pathlib for it.


def linker_name(machine: str) -> str:
    """The linker for a machine's ELF files (`aarch64`): this machine's own, or binutils' cross linker."""
    return "ld" if machine == platform.machine() else f"{machine}-linux-gnu-ld"


def linker_advice(machine: str) -> str:
    """What to install where that linker is missing, by the names of Debian's packages."""
    name = linker_name(machine)
    return (
        "install binutils"
        if name == "ld"
        else f"install {name} (Debian's package binutils-{machine.replace('_', '-')}-linux-gnu)"
    )
