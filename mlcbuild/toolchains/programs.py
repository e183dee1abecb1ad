"""Programs of the system: their files, and which libraries they load."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.system_programs import PROGRAM_FOLDERS, program_path

LIBRARY_FOLDERS = (
    "/usr/local/lib",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
)

_PROGRAM_HEADER_LOAD = 1
_PROGRAM_HEADER_DYNAMIC = 2
_DYNAMIC_NEEDED = 1
_DYNAMIC_STRINGS = 5


def find_program(name: str, folders: Sequence[str] = PROGRAM_FOLDERS, *, advice: tuple[str, ...] = ()) -> Path:
    """The file of a system program, links resolved, from the first folder that has it.

    Raises LocalEnvironmentError with `advice` if no folder has it.
    """
    if path := program_path(name, folders):
        return Path(path).resolve()
    raise LocalEnvironmentError(f"there is no program {name!r} in {', '.join(folders)}", advice=advice)


def needed_libraries(program: bytes) -> tuple[bytes, ...]:
    """The DT_NEEDED names of a 64-bit little-endian ELF file, in its order; () for any other file.

    The layout is that of the System V ABI, chapters 4 and 5.
    """
    try:
        return _needed_libraries(program)
    except (struct.error, OverflowError, ValueError):
        return ()


def _needed_libraries(program: bytes) -> tuple[bytes, ...]:
    if program[:6] != b"\x7fELF\x02\x01":
        return ()
    (table,) = struct.unpack_from("<Q", program, 32)
    entry_bytes, count = struct.unpack_from("<HH", program, 54)
    headers = [struct.unpack_from("<IIQQQQ", program, table + index * entry_bytes) for index in range(count)]
    dynamic: list[tuple[int, int]] = []
    for kind, _, offset, _, _, size in headers:
        if kind == _PROGRAM_HEADER_DYNAMIC:
            dynamic = [struct.unpack_from("<qQ", program, offset + at) for at in range(0, size, 16)]
    addresses = [value for tag, value in dynamic if tag == _DYNAMIC_STRINGS]
    strings = [
        offset + addresses[0] - address
        for kind, _, offset, address, _, size in headers
        if kind == _PROGRAM_HEADER_LOAD and addresses and address <= addresses[0] < address + size
    ]
    if not strings:
        return ()
    starts = [strings[0] + value for tag, value in dynamic if tag == _DYNAMIC_NEEDED]
    return tuple(program[start : program.index(b"\0", start)] for start in starts if start < len(program))
