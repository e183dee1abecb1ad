"""The weights of a package: shards of raw bytes and `tensor-cache.json`, which TVM's and MLC-LLM's runtimes
load.

A shard's record names its file, size, MD5 (integrity alone: the file's own content address is the build's)
and the tensors in it. Under `f32-to-bf16` float32 tensors are stored as bfloat16, and every record carries
that label.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from mlcbuild.compiler.quantization.scheme import StoredTensor
from mlcbuild.compiler.weights.tensor import Array, bfloat16_bits, dtype_of
from mlcbuild.errors import StageError

ENCODINGS: tuple[str, ...] = ("raw", "f32-to-bf16")


def check_encoding(encode: str) -> None:
    """Raises StageError for an encoding that is not one of `ENCODINGS`."""
    if encode not in ENCODINGS:
        raise StageError(f'unknown encoding "{encode}"', advice=(f"known: {', '.join(ENCODINGS)}",))


def shard_name(index: int) -> str:
    """The file of shard `index` in a package."""
    return f"params_shard_{index}.bin"


def write_shard(
    path: Path, *, data_path: str, tensors: Iterable[tuple[StoredTensor, Iterable[Array]]], encode: str
) -> dict[str, object]:
    """Write tensors one after another to `path`, each in parts along its first axis; return the shard's record, whose
    `dataPath` is `data_path`."""
    checksum = hashlib.md5(usedforsecurity=False)
    records: list[dict[str, object]] = []
    offset = 0
    with path.open("wb") as stream:
        for stored, parts in tensors:
            lossy = encode == "f32-to-bf16" and stored.dtype == "float32"
            rows = size = 0
            for numbers in parts:
                if numbers.shape[1:] != stored.shape[1:] or numbers.dtype != dtype_of(stored.dtype):
                    raise ValueError(f"{stored} does not have {numbers.dtype} {numbers.shape}")
                data = np.ascontiguousarray(bfloat16_bits(numbers) if lossy else numbers).reshape(-1).view(np.uint8)
                stream.write(data.data)
                checksum.update(data.data)
                rows, size = rows + numbers.shape[0], size + data.nbytes
            if rows != stored.shape[0]:
                raise ValueError(f"{stored} does not have {rows} rows")
            records.append(
                {
                    "name": stored.name,
                    "shape": list(stored.shape),
                    "dtype": stored.dtype,
                    "format": encode,
                    "nbytes": size,
                    "byteOffset": offset,
                }
            )
            offset += size
    return {
        "dataPath": data_path,
        "format": "raw-shard",
        "nbytes": offset,
        "records": records,
        "md5sum": checksum.hexdigest(),
    }


def write_index(path: Path, *, metadata: Mapping[str, object], records: Sequence[object]) -> None:
    """Write `tensor-cache.json`."""
    text = json.dumps({"metadata": metadata, "records": list(records)}, indent=2)
    path.write_text(text + "\n", encoding="utf-8")


class StoredWeights:
    """The tensors of shards that an index lists, read one at a time; all are stored raw."""

    def __init__(self, index: Path, shards: Sequence[Path]) -> None:
        files = {path.name: path for path in shards}
        self._entries = {
            entry["name"]: (files[record["dataPath"]], entry)
            for record in json.loads(index.read_bytes())["records"]
            for entry in record["records"]
        }

    def read(self, stored: StoredTensor) -> Array:
        """The numbers of a tensor, mapped and not yet in memory."""
        path, entry = self._entries[stored.name]
        numbers: Array = np.memmap(
            path, dtype=dtype_of(stored.dtype), mode="r", offset=entry["byteOffset"], shape=stored.shape
        )
        return numbers
