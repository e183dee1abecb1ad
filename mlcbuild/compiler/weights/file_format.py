"""Which format a file of weights has, by its first bytes.

A safetensors file begins with the length of its header, any number up to 100,000,000 (in little endian), then `{`. So
its first bytes may be those of another format: one in 32 such files begins with 0x80, as pickles do. No other format
has such a number and `{` in the ninth byte, so safetensors is tried first.
"""

from __future__ import annotations

import enum
from pathlib import Path

from mlcbuild.compiler.placeholder_files import HEAD_BYTES, refuse_placeholder
from mlcbuild.errors import StageError

MAX_SAFETENSORS_HEADER = 100_000_000  # the limit of the format's own library
_PICKLE_PROTOCOLS = range(2, 6)


class WeightFormat(enum.Enum):
    """The formats that are read."""

    SAFETENSORS = "safetensors"
    TORCH = "torch checkpoint (zip)"
    GGUF = "GGUF"


def weight_format(path: Path) -> WeightFormat:
    """The format of a file. Raises StageError for a file of none."""
    with path.open("rb") as stream:
        head = stream.read(HEAD_BYTES)
    if is_safetensors(head):
        return WeightFormat.SAFETENSORS
    if head[:4] == b"GGUF":
        return WeightFormat.GGUF
    if head[:4] == b"PK\x03\x04":
        return WeightFormat.TORCH
    refuse_placeholder(head, path)
    if not head:
        raise StageError(f"{path} is empty", advice=("fetch it again",))
    if head[:1] == b"\x80" and head[1] in _PICKLE_PROTOCOLS:
        raise StageError(
            f"{path} is a torch checkpoint of the form before torch 1.6, which only pickle can read",
            advice=("load it with torch where you trust it, and save it again as safetensors",),
        )
    if head[:4] in (b"tjgg", b"fmgg", b"lmgg"):
        raise StageError(
            f"{path} is of a format that llama.cpp had before GGUF",
            advice=("convert it with a llama.cpp of before 2024, or take the model's GGUF file",),
        )
    if path.suffix == ".safetensors":
        raise StageError(
            f"{path} is not a safetensors file: it begins with {head[:9]!r}, which is no header's length and {{",
            advice=("fetch it again",),
        )
    raise StageError(
        f"{path} is not a checkpoint: it begins with {head[:8]!r}",
        advice=("known: " + ", ".join(known.value for known in WeightFormat),),
    )


def is_safetensors(head: bytes) -> bool:
    """Whether a file that begins so is a safetensors file: a header's length, and where the header begins."""
    return int.from_bytes(head[:8], "little") <= MAX_SAFETENSORS_HEADER and head[8:9] == b"{"
