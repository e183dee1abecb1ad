"""Torch checkpoints in zip form (torch 1.6 and later), read without torch and without running their pickle.

Form, as `torch.save` writes it: `<name>/data.pkl` describes a dictionary of tensors, each a view (offset,
sizes, strides, in elements) of a storage, whose bytes are the entry `<name>/data/<key>`; `<name>/byteorder`
says in which order.
"""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mlcbuild.compiler.weights.pickle_values import Call, Global, Persistent, pickle_values
from mlcbuild.compiler.weights.tensor import Rows, Tensor, TensorDescription, is_readable, storage_of
from mlcbuild.errors import StageError

_STORAGES = {
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "ByteStorage": "uint8",
    "CharStorage": "int8",
    "IntStorage": "int32",
    "LongStorage": "int64",
}
_REBUILD = Global("torch._utils", "_rebuild_tensor_v2")
_REBUILD_PARAMETER = Global("torch._utils", "_rebuild_parameter")
_WRAPPERS = ("state_dict", "model", "module")  # keys under which training frameworks keep the tensors
_MAX_PICKLE_BYTES = 1 << 28
_DAMAGE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError, RuntimeError, ValueError)
"""What `zipfile` raises for an archive that is damaged: names that are no text, methods and encryption that it does not
know, …"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """A tensor as a view of a storage; offset and strides in elements."""

    description: TensorDescription
    storage: str
    offset: int
    strides: tuple[int, ...]


class TorchCheckpoint:
    """One file. Raises StageError where it is damaged or holds no dictionary of tensors."""

    has_gguf_names = False

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._archive = zipfile.ZipFile(path)
        except _DAMAGE as error:
            raise StageError(f"{path} is truncated or damaged: {error}", advice=("fetch it again",)) from error
        try:
            self._prefix = self._find_prefix()
            self._views = self._read_views()
        except BaseException:
            self._archive.close()
            raise
        self._kept: tuple[str, bytes] = ("", b"")

    @property
    def descriptions(self) -> Mapping[str, TensorDescription]:
        return {name: view.description for name, view in self._views.items()}

    def read(self, name: str, rows: Rows | None = None) -> Tensor:
        view = self._views[name]
        described = view.description
        if not is_readable(described.dtype):
            raise StageError(
                f"{self._path}: the tensor {name} is of {described.dtype}; weights are read from {', '.join(_STORAGES)}"
            )
        stored, dtype = self._storage(view.storage), storage_of(described.dtype)
        storage = np.frombuffer(stored, dtype, count=len(stored) // dtype.itemsize)
        last = view.offset + sum(
            (size - 1) * stride for size, stride in zip(described.shape, view.strides, strict=True)
        )
        if described.elements and last >= storage.size:
            raise StageError(
                f"{self._path} is damaged: the tensor {name} reaches element {last} of a storage of {storage.size}"
            )
        if not described.elements:
            return Tensor(description=described, data=np.zeros(described.shape, storage.dtype))
        strides = tuple(stride * storage.itemsize for stride in view.strides)
        seen = np.lib.stride_tricks.as_strided(storage[view.offset :], described.shape, strides)
        wanted = seen if rows is None else seen[slice(*rows)]
        return Tensor(description=described.part(rows), data=np.ascontiguousarray(wanted))

    def close(self) -> None:
        self._archive.close()

    def _find_prefix(self) -> str:
        for entry in self._archive.namelist():
            if entry.count("/") == 1 and entry.endswith("/data.pkl"):
                return entry.removesuffix("data.pkl")
        raise StageError(f"{self._path} is a zip file, and no torch checkpoint: it has no data.pkl")

    def _entry(self, name: str) -> bytes:
        """An entry's bytes, checked against the checksum that the archive keeps."""
        try:
            return self._archive.read(self._prefix + name)
        except KeyError as error:
            raise StageError(f"{self._path} is damaged: it lacks {name}") from error
        except _DAMAGE as error:
            raise StageError(f"{self._path} is damaged: {error}", advice=("fetch it again",)) from error

    def _storage(self, key: str) -> bytes:
        # Tensors that share a storage follow one another; keeping the last one reads it once.
        if self._kept[0] != key:
            self._kept = (key, self._entry(f"data/{key}"))
        return self._kept[1]

    def _read_views(self) -> dict[str, _View]:
        names = set(self._archive.namelist())
        if f"{self._prefix}byteorder" in names and self._entry("byteorder") != b"little":
            raise StageError(
                f"{self._path} is of big-endian byte order, which is not read",
                advice=("load it with torch, and save it again as safetensors",),
            )
        if self._archive.getinfo(f"{self._prefix}data.pkl").file_size > _MAX_PICKLE_BYTES:
            raise StageError(f"{self._path} is damaged: the description of its tensors is too large")
        try:
            content = pickle_values(self._entry("data.pkl"))
        except StageError as error:
            raise StageError(f"{self._path}: {error.message}", advice=error.advice) from error
        for key in _WRAPPERS:
            if isinstance(content, dict) and isinstance(content.get(key), dict):
                content = content[key]
        if not isinstance(content, dict):
            raise StageError(f"{self._path} holds no dictionary of tensors")
        views: dict[str, _View] = {}
        for name, value in content.items():
            if isinstance(value, Call):  # beside tensors there may be plain values, of no interest here
                views[str(name)] = self._view(str(name), value)
        return views

    def _view(self, name: str, call: Call) -> _View:
        if call.function == _REBUILD_PARAMETER and isinstance(call.arguments, tuple) and call.arguments:
            inner = call.arguments[0]
            if isinstance(inner, Call):
                return self._view(name, inner)
        match call:
            case Call(
                function=function,
                arguments=(
                    Persistent(identifier=("storage", Global(module="torch", name=kind), key, _, _)),
                    int(offset),
                    tuple(shape),
                    tuple(strides),
                    *_,
                ),
            ) if (
                function == _REBUILD
                and len(shape) == len(strides)
                and all(isinstance(number, int) and number >= 0 for number in (offset, *shape, *strides))
            ):
                return _View(
                    description=TensorDescription(name=name, dtype=_STORAGES.get(kind, kind), shape=shape),
                    storage=str(key),
                    offset=offset,
                    strides=strides,
                )
        what = call.function
        called = f"{what.module}.{what.name}" if isinstance(what, Global) else repr(what)
        raise StageError(
            f"{self._path}: {name} is no tensor that can be read without running code: it calls {called}",
            advice=("where you trust the file, load it with torch and save it again as safetensors",),
        )
