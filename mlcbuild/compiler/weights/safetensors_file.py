"""The safetensors format: 8 bytes of header length (little endian), a JSON header, the tensors' bytes.

Format: https://github.com/huggingface/safetensors#format. It is read here and not through its library, whose
NumPy door has no bfloat16, so that a damaged file is told by byte and tensor.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mlcbuild.compiler.models.config import parse_document
from mlcbuild.compiler.weights.file_format import MAX_SAFETENSORS_HEADER
from mlcbuild.compiler.weights.tensor import BYTES, FLOAT8, Rows, Tensor, TensorDescription, is_readable, storage_of
from mlcbuild.errors import StageError

_DTYPES = {
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "U8": BYTES,
    "I8": "int8",
    "I32": "int32",
    "I64": "int64",
    "F8_E4M3": FLOAT8,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


@dataclass(frozen=True, slots=True)
class _Entry:
    description: TensorDescription
    begin: int  # bytes in the file
    end: int


class SafetensorsFile:
    """One file.

    Raises StageError where it is damaged, and on reading a type that is no weight's.
    """

    has_gguf_names = False

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries = _entries(path)

    @property
    def descriptions(self) -> Mapping[str, TensorDescription]:
        return {name: entry.description for name, entry in self._entries.items()}

    def read(self, name: str, rows: Rows | None = None) -> Tensor:
        entry = self._entries[name]
        described = entry.description
        if not is_readable(described.dtype):
            raise StageError(
                f"{self._path}: the tensor {name} is of type {described.dtype}; weights are read in "
                f"{', '.join(_DTYPES)}"
            )
        part = described.part(rows)
        before = 0 if rows is None else rows[0] * (part.size_bytes // (rows[1] - rows[0]))
        if not part.elements:
            return Tensor(description=part, data=np.empty(part.shape, storage_of(described.dtype)))
        # Mapped, so that nothing is copied which is only written elsewhere or converted; what is changed is copied.
        data = np.memmap(self._path, storage_of(described.dtype), "c", offset=entry.begin + before, shape=part.shape)
        return Tensor(description=part, data=data.view(np.ndarray))

    def close(self) -> None:
        """Nothing stays open between reads."""


def write_safetensors(
    path: Path,
    descriptions: Sequence[TensorDescription],
    read: Callable[[TensorDescription], Tensor],
    *,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write tensors in the order given, read one at a time; the same tensors give the same bytes. `metadata` is what
    the header says of the file as a whole."""
    header: dict[str, object] = {} if metadata is None else {"__metadata__": dict(metadata)}
    begin = 0
    for described in descriptions:
        end = begin + described.size_bytes
        header[described.name] = {
            "dtype": _NAMES[described.dtype],
            "shape": list(described.shape),
            "data_offsets": [begin, end],
        }
        begin = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the format asks for data aligned to 8 bytes
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little"))
        stream.write(text)
        for described in descriptions:
            stream.write(np.ascontiguousarray(read(described).data).data)


def _entries(path: Path) -> dict[str, _Entry]:
    size = path.stat().st_size
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > MAX_SAFETENSORS_HEADER:
            raise StageError(f"{path} is no safetensors file: its header would have {length} bytes")
        if 8 + length > size:
            raise StageError(f"{path} is truncated: it ends at byte {size}, its header at {8 + length}")
        text = stream.read(length)
    header = parse_document(text, where=f"the header of {path}")
    header.pop("__metadata__", None)
    entries = {name: _entry(path, name, value, 8 + length) for name, value in header.items()}
    end = max((entry.end for entry in entries.values()), default=8 + length)
    if end > size:
        raise StageError(
            f"{path} is truncated: it ends at byte {size} and should have {end}",
            advice=("fetch it again",),
        )
    return entries


def _entry(path: Path, name: str, value: object, data_begin: int) -> _Entry:
    fields = value if isinstance(value, dict) else {}
    dtype, shape, offsets = fields.get("dtype"), _sizes(fields.get("shape")), _sizes(fields.get("data_offsets"))
    damaged = StageError(f"{path} is damaged: the entry of the tensor {name} is {value!r}")
    if not isinstance(dtype, str) or shape is None or offsets is None or len(offsets) != 2:
        raise damaged
    known = _DTYPES.get(dtype)
    # A checkpoint may hold tensors that no model reads, of types that this module does not know.
    description = TensorDescription(name=name, dtype=known or dtype, shape=shape)
    if offsets[1] < offsets[0] or (known and offsets[1] - offsets[0] != description.size_bytes):
        raise damaged
    return _Entry(description, data_begin + offsets[0], data_begin + offsets[1])


def _sizes(value: object) -> tuple[int, ...] | None:
    if isinstance(value, list) and all(type(size) is int and size >= 0 for size in value):
        return tuple(value)
    return None
