"""The GGUF container: metadata by key, and where each tensor lies, in one file or in the parts of a split one.

Format: ggml-org/ggml, docs/gguf.md (versions 2 and 3, little endian). The header is parsed here, every read
checked against the file's end, so that a truncated file is told by byte; the quantized types themselves are
left to the `gguf` library (`gguf_weights`). Which files are the parts of one is checked in `gguf_parts`.
"""

from __future__ import annotations

import mmap
import struct
from collections import Counter
from pathlib import Path

from mlcbuild.compiler.placeholder_files import HEAD_BYTES, refuse_placeholder
from mlcbuild.compiler.weights.gguf_parts import GGUFPart, GGUFTensor, GGUFValue, in_order, joined_tensors
from mlcbuild.errors import StageError

_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING = 8
_ARRAY = 9
_VERSIONS = (2, 3)
_NO_TOKEN = (-1, (1 << 32) - 1)  # -1, also where the file has it without a sign
_MAX_DIMENSIONS = 4
_F32 = 0  # of ggml_type


class GGUFFile:
    """The parsed header of one file, or of all parts of a split one, given in any order.

    `path` is the first part, which has the metadata.

    Raises StageError for a file that is truncated, damaged or too new, and for parts that are not those of one file.
    """

    def __init__(self, *paths: Path) -> None:
        self._parts: list[GGUFPart] = []
        try:
            for path in paths:
                self._parts.append(_open(path))
            self._parts = in_order(self._parts)
            self.tensors = joined_tensors(self._parts)
        except BaseException:
            self.close()
            raise
        self.path, self.metadata = self._parts[0].path, self._parts[0].metadata

    def close(self) -> None:
        for part in self._parts:
            part.content.close()

    def stored(self, tensor: GGUFTensor, begin: int = 0, end: int | None = None) -> bytes:
        """Bytes of a tensor from `begin` to `end`, or to its last. A copy: a view would keep the file from being
        closed."""
        end = tensor.size_bytes if end is None else end
        content: bytes = self._parts[tensor.part].content[tensor.begin + begin : tensor.begin + end]
        return content

    def float32_numbers(self, name: str) -> list[float]:
        """The numbers of a small tensor, such as factors. Raises StageError for one that is not stored as float32."""
        tensor = self.tensors[name]
        if tensor.type_number != _F32 or tensor.size_bytes == 0:
            raise StageError(f"{self.path}: the tensor {name} holds no float32 numbers")
        return list(struct.unpack(f"<{tensor.size_bytes // 4}f", self.stored(tensor)))

    def integer(self, key: str, default: int | None = None) -> int:
        value = self.metadata.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._bad(key, "an integer")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self.metadata.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._bad(key, "a number")
        return float(value)

    def string(self, key: str, default: str | None = None) -> str:
        value = self.metadata.get(key, default)
        if not isinstance(value, str):
            raise self._bad(key, "a string")
        return value

    def boolean(self, key: str, *, default: bool) -> bool:
        value = self.metadata.get(key, default)
        if not isinstance(value, bool):
            raise self._bad(key, "true or false")
        return value

    def strings(self, key: str) -> list[str]:
        value = self.metadata.get(key)
        if not isinstance(value, list):
            raise self._bad(key, "an array of strings")
        texts = [item for item in value if isinstance(item, str)]
        if len(texts) != len(value):
            raise self._bad(key, "an array of strings")
        return texts

    def integers(self, key: str) -> list[int]:
        value = self.metadata.get(key)
        if not isinstance(value, list):
            raise self._bad(key, "an array of integers")
        numbers = [item for item in value if isinstance(item, int) and not isinstance(item, bool)]
        if len(numbers) != len(value):
            raise self._bad(key, "an array of integers")
        return numbers

    def floats(self, key: str) -> list[float]:
        value = self.metadata.get(key)
        if not isinstance(value, list):
            raise self._bad(key, "an array of numbers")
        numbers = [float(item) for item in value if isinstance(item, int | float)]
        if len(numbers) != len(value):
            raise self._bad(key, "an array of numbers")
        return numbers

    def token_id(self, name: str, default: int | None = None) -> int | None:
        """The number of the special token `name`, such as `eos`; None for a file without one. It may say so by -1.
        `default` is what a file means that does not say anything."""
        key = f"tokenizer.ggml.{name}_token_id"
        if key not in self.metadata:
            return default
        number = self.integer(key)
        return None if number in _NO_TOKEN else number

    def _bad(self, key: str, wanted: str) -> StageError:
        if key not in self.metadata:
            return StageError(f'{self.path}: the metadata "{key}" is missing; it has to be {wanted}')
        text = repr(self.metadata[key])
        shown = text if len(text) <= 60 else text[:57] + "…"
        return StageError(f'{self.path}: the metadata "{key}" is {shown}; it has to be {wanted}')


class _Cursor:
    """A position in the file, moved by reads that never pass its end."""

    def __init__(self, name: str, content: mmap.mmap) -> None:
        self.name = name
        self.content = content
        self.size = len(content)
        self.position = 0
        self.reading = "the header"

    def need(self, count: int) -> None:
        if count > self.size - self.position:
            raise StageError(
                f"{self.name} is truncated or damaged: it ends at byte {self.size}, inside {self.reading} "
                f"(at byte {self.position}, which needs {count} more)",
                advice=("fetch it again",),
            )

    def scalar(self, form: str) -> bool | int | float:
        self.need(struct.calcsize(form))
        value: bool | int | float = struct.unpack_from(form, self.content, self.position)[0]
        self.position += struct.calcsize(form)
        return value

    def unsigned(self, form: str) -> int:
        return int(self.scalar(form))

    def string(self) -> str:
        length = self.unsigned("<Q")
        self.need(length)
        text = self.content[self.position : self.position + length].decode("utf-8", errors="replace")
        self.position += length
        return text

    def value(self, kind: int, *, inside_array: bool = False) -> GGUFValue:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY and not inside_array:
            item_kind, count = self.unsigned("<I"), self.unsigned("<Q")
            form = _SCALARS.get(item_kind)
            if form is None:
                self.need(count * 8)  # a string takes at least its length field
                return [self.value(item_kind, inside_array=True) for _ in range(count)]
            self.need(count * struct.calcsize(form))
            items = struct.unpack_from(f"<{count}{form[1]}", self.content, self.position)
            self.position += count * struct.calcsize(form)
            return list(items)
        if kind in _SCALARS:
            return self.scalar(_SCALARS[kind])
        raise StageError(f"{self.name} is damaged: {self.reading} has a value of the unknown type {kind}")


def _open(path: Path) -> GGUFPart:
    with path.open("rb") as stream:
        size = path.stat().st_size
        if size < 24:
            raise StageError(f"{path} is truncated: {size} bytes hold no GGUF header")
        content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        metadata, tensors = _parse(_Cursor(str(path), content))
    except BaseException:
        content.close()
        raise
    return GGUFPart(path=path, content=content, metadata=metadata, tensors=tensors)


def _parse(cursor: _Cursor) -> tuple[dict[str, GGUFValue], dict[str, GGUFTensor]]:
    magic, version = cursor.content[:4], int.from_bytes(cursor.content[4:8], "little")
    if magic != b"GGUF":
        refuse_placeholder(cursor.content[:HEAD_BYTES], cursor.name)
        raise StageError(f"{cursor.name} is not a GGUF file: it begins with {magic!r}")
    if version not in _VERSIONS and int.from_bytes(cursor.content[4:8], "big") in _VERSIONS:
        raise StageError(
            f"{cursor.name} is of big-endian byte order, which is not read",
            advice=("convert it with the gguf package: `gguf-convert-endian FILE little`",),
        )
    if version not in _VERSIONS:
        raise StageError(f"{cursor.name} is GGUF of version {version}; versions 2 and 3 are read")
    cursor.position = 8
    tensor_count, key_count = cursor.unsigned("<Q"), cursor.unsigned("<Q")
    metadata: dict[str, GGUFValue] = {}
    for _ in range(key_count):
        cursor.reading = "the metadata"
        key = cursor.string()
        if key in metadata:
            raise StageError(f'{cursor.name} is damaged: it has the metadata "{key}" twice')
        cursor.reading = f'the metadata "{key}"'
        metadata[key] = cursor.value(cursor.unsigned("<I"))
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1:
        raise StageError(f"{cursor.name} is damaged: its alignment is {alignment!r}")
    entries = [_entry(cursor) for _ in range(tensor_count)]
    for name, count in Counter(name for name, *_ in entries).items():
        if count > 1:
            raise StageError(f"{cursor.name} is damaged: it has the tensor {name} twice")
    begin = -(-cursor.position // alignment) * alignment
    tensors = {
        name: GGUFTensor(
            name=name,
            type_number=number,
            shape=shape,
            begin=begin + offset,
            size_bytes=_size(cursor, name, number, shape),
        )
        for name, number, shape, offset in entries
    }
    end = max((tensor.begin + tensor.size_bytes for tensor in tensors.values()), default=begin)
    if end > cursor.size:
        raise StageError(
            f"{cursor.name} is truncated: it ends at byte {cursor.size} and should have {end}",
            advice=("fetch it again",),
        )
    return metadata, tensors


def _entry(cursor: _Cursor) -> tuple[str, int, tuple[int, ...], int]:
    cursor.reading = "the list of tensors"
    name = cursor.string()
    dimensions = cursor.unsigned("<I")
    if dimensions > _MAX_DIMENSIONS:
        raise StageError(f"{cursor.name} is damaged: the tensor {name} has {dimensions} axes")
    shape = tuple(cursor.unsigned("<Q") for _ in range(dimensions))
    return name, cursor.unsigned("<I"), shape[::-1], cursor.unsigned("<Q")


def _size(cursor: _Cursor, name: str, number: int, shape: tuple[int, ...]) -> int:
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        block_elements, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(number)]
    except (ValueError, KeyError) as error:
        raise StageError(f"{cursor.name}: the tensor {name} is of the unknown type {number}") from error
    row = shape[-1] if shape else 1
    if row % block_elements:
        raise StageError(
            f"{cursor.name} is damaged: the tensor {name} has rows of {row} elements, in blocks of {block_elements}"
        )
    count = 1
    for size in shape:
        count *= size
    return int(count // block_elements * block_bytes)
