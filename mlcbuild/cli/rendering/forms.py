"""What a file holds, by its first bytes."""

from __future__ import annotations

import enum

_ELF = b"\x7fELF"
_MACHINE = 18  # the offset of e_machine, two bytes in little-endian order (System V ABI, chapter 4)
_CUDA_MACHINE = 190  # EM_CUDA
# The first eight bytes of each; the third is what nvFatbin writes, in little-endian order.
_EXECUTABLE = (0xD225DE2F4214151E).to_bytes(8, "little")
_FAT_BINARY = (0xBA55ED50).to_bytes(4, "little")
_IR_MARK = b'"nodes":[{"type":'
FIRST_BYTES = 4096


class Form(enum.Enum):
    """`suffix` is the ending of a file with the text."""

    MODULE = ("TVMScript", ".py")  # IR in TVM's JSON form
    EXECUTABLE = ("bytecode of TVM's virtual machine", ".vm.txt")
    NATIVE = ("assembly", ".s")  # ELF for a CPU
    CUBIN = ("SASS", ".sass")  # ELF for a GPU
    FAT_BINARY = ("SASS for several architectures", ".sass")
    JSON = ("JSON", ".json")
    TEXT = ("text", "")  # such as CUDA C++, which keeps its name
    BINARY = ("", "")  # such as weights: there is no text

    def __init__(self, title: str, suffix: str) -> None:
        self.title = title
        self.suffix = suffix


def form_of(head: bytes) -> Form:
    """The form of a file that begins with these bytes, `FIRST_BYTES` of them or all."""
    if head.startswith(_ELF):
        machine = int.from_bytes(head[_MACHINE : _MACHINE + 2], "little")
        return Form.CUBIN if machine == _CUDA_MACHINE else Form.NATIVE
    if head.startswith(_EXECUTABLE):
        return Form.EXECUTABLE
    if head.startswith(_FAT_BINARY):
        return Form.FAT_BINARY
    if head[:1] == b"{" and _IR_MARK in head[:64]:
        return Form.MODULE
    if b"\0" in head or not _is_utf8(head):
        return Form.BINARY
    return Form.JSON if head.lstrip()[:1] in (b"{", b"[") else Form.TEXT


def _is_utf8(head: bytes) -> bool:
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return error.start > len(head) - 4 >= 0  # A character was cut at the end.
    return True
