"""Reading the weights of a package: `tensor-cache.json` and its shards.

A tensor of format `f32-to-bf16` whose dtype is float32 is stored as bfloat16; every other one as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from mlcbuild.errors import UsageError
from mlcbuild.runtime.expected_tensor import ExpectedTensor
from mlcbuild.runtime.package import WEIGHTS_INDEX, read_object

Array = npt.NDArray[Any]

# Types that NumPy has of ml_dtypes.
_EXTENSIONS = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


@dataclass(frozen=True, kw_only=True)
class TensorRecord:
    """Where a tensor lies, and what it is."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    is_bfloat16: bool
    file: Path
    offset: int


class TensorCache:
    """The index of a package's weights. Raises UsageError for one that does not fit its shards."""

    def __init__(self, directory: Path) -> None:
        self._tensors: dict[str, TensorRecord] = {}
        index = directory / WEIGHTS_INDEX
        try:
            for record in read_object(index)["records"]:
                self._add_shard(directory, record)
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{index} is no index of weights: {error}") from error

    def _add_shard(self, directory: Path, record: dict[str, Any]) -> None:
        file = directory / Path(record["dataPath"]).name
        size = file.stat().st_size if file.is_file() else -1
        if size != record["nbytes"]:
            found = "is missing" if size < 0 else f"has {size} bytes and should have {record['nbytes']}"
            raise UsageError(f"{file} {found}", advice=("build the package again",))
        for entry in record["records"]:
            dtype = str(entry["dtype"])
            tensor = TensorRecord(
                name=str(entry["name"]),
                shape=tuple(int(extent) for extent in entry["shape"]),
                dtype=dtype,
                is_bfloat16=entry["format"] == "f32-to-bf16" and dtype == "float32",
                file=file,
                offset=int(entry["byteOffset"]),
            )
            self._tensors[tensor.name] = tensor

    def read(self, expected: Sequence[ExpectedTensor]) -> Iterator[Array]:
        """The tensors of these parameters, in order, one in memory at a time.

        Raises UsageError for one that is missing or another than expected.
        """
        for wanted in expected:
            name, shape, dtype = wanted.name, wanted.shape, wanted.dtype
            tensor = self._tensors.get(name)
            if tensor is None:
                raise UsageError(f"the weights lack {name}, which the library needs")
            if (tensor.shape, tensor.dtype) != (shape, dtype):
                raise UsageError(
                    f"the weights have {name} as {tensor.dtype} {tensor.shape}; the library needs {dtype} {shape}"
                )
            yield _numbers(tensor)


def _numbers(tensor: TensorRecord) -> Array:
    known = getattr(ml_dtypes, tensor.dtype) if tensor.dtype in _EXTENSIONS else tensor.dtype
    stored = np.dtype("<u2") if tensor.is_bfloat16 else np.dtype(known)
    count = int(np.prod(tensor.shape, dtype=np.int64))
    numbers: Array = np.fromfile(tensor.file, dtype=stored, count=count, offset=tensor.offset)
    if tensor.is_bfloat16:
        numbers = (numbers.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return numbers.reshape(tensor.shape)
