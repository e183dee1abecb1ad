"""An object file that holds one piece of read-only data under one global name.

The layout is that of the System V ABI, chapters 4 and 5: header, data, symbols, names, section headers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

MACHINES = {"x86_64": 62, "aarch64": 183}
_HEADER_BYTES = 64
_SECTION_BYTES = 64
_SYMBOL_BYTES = 24
_RELOCATABLE, _VERSION = 1, 1
_PROGBITS, _SYMTAB, _STRTAB = 1, 2, 3
_ALLOCATED = 2
_GLOBAL_OBJECT = 1 << 4 | 1
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    name: str
    kind: int
    data: bytes
    flags: int = 0
    link: int = 0
    information: int = 0
    alignment: int = 1
    entry_bytes: int = 0


def read_only_data(name: str, data: bytes, machine: str) -> bytes:
    """The object file of `data`, for a machine of `MACHINES`."""
    symbols = bytes(_SYMBOL_BYTES) + struct.pack("<IBBHQQ", 1, _GLOBAL_OBJECT, 0, 1, 0, len(data))
    sections = [
        _Section(name=".rodata", kind=_PROGBITS, data=data, flags=_ALLOCATED, alignment=_ALIGNMENT),
        _Section(
            name=".symtab", kind=_SYMTAB, data=symbols, link=3, information=1, alignment=8, entry_bytes=_SYMBOL_BYTES
        ),
        _Section(name=".strtab", kind=_STRTAB, data=b"\0" + name.encode() + b"\0"),
        # Without it the linker would make the whole library's stack executable.
        _Section(name=".note.GNU-stack", kind=_PROGBITS, data=b""),
    ]
    names = b"\0"
    starts = []
    for section_name in (*(section.name for section in sections), ".shstrtab"):
        starts.append(len(names))
        names += section_name.encode() + b"\0"
    sections.append(_Section(name=".shstrtab", kind=_STRTAB, data=names))
    body, headers = bytearray(_HEADER_BYTES), bytearray(_SECTION_BYTES)
    for start, section in zip(starts, sections, strict=True):
        _align(body, section.alignment)
        headers += struct.pack(
            "<IIQQQQIIQQ",
            *(start, section.kind, section.flags, 0, len(body), len(section.data)),
            *(section.link, section.information, section.alignment, section.entry_bytes),
        )
        body += section.data
    _align(body, 8)
    struct.pack_into(
        "<16sHHIQQQIHHHHHH",
        body,
        0,
        *(b"\x7fELF\x02\x01\x01", _RELOCATABLE, MACHINES[machine], _VERSION, 0, 0, len(body), 0),
        *(_HEADER_BYTES, 0, 0, _SECTION_BYTES, len(sections) + 1, len(sections)),
    )
    return bytes(body + headers)


def _align(body: bytearray, alignment: int) -> None:
    body += bytes(-len(body) % alignment)
