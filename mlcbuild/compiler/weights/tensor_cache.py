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
    path: Path, *, data_path: str, tensors: Iterable[tuple[StoredTensor, Array]], encode: str
) -> dict[str, object]:
    """Write tensors one after another to `path`; return the shard's record, whose `dataPath` is
    `data_path`."""
    checksum = hashlib.md5(usedforsecurity=False)
    records: list[dict[str, object]] = []
    offset = 0
    with path.open("wb") as stream:
        for stored, numbers in tensors:
            if numbers.shape != stored.shape or numbers.dtype != dtype_of(stored.dtype):
                raise ValueError(f"{stored} is not {numbers.dtype} {numbers.shape}")
            lossy = encode == "f32-to-bf16" and stored.dtype == "float32"
            data = (bfloat16_bits(numbers) if lossy else numbers).tobytes()
            stream.write(data)
            checksum.update(data)
            records.append(
                {
                    "name": stored.name,
                    "shape": list(stored.shape),
                    "dtype": stored.dtype,
                    "format": encode,
                    "nbytes": len(data),
                    "byteOffset": offset,
                }
            )
            offset += len(data)
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
