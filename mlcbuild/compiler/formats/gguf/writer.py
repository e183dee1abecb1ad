"""Writes a GGUF file: its header, and its tensors one after another, by the `gguf` library."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mlcbuild.compiler.formats.gguf.header import GGUFHeader, KeyType
from mlcbuild.compiler.formats.gguf.tensor_plan import PlannedTensor
from mlcbuild.compiler.weights.block_types import BLOCK_TYPES
from mlcbuild.compiler.weights.tensor import Array

# llama.cpp's numbers of `enum llama_ftype`, by the type of most matrices.
_FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 7, "Q4_K": 14, "Q5_K": 16, "Q6_K": 18, "BF16": 32}


def write_gguf(
    path: Path, header: GGUFHeader, tensors: Iterable[PlannedTensor], read: Callable[[PlannedTensor], Array]
) -> None:
    """Write a file whose tensors are read one at a time, in their order; the same input gives the same bytes."""
    import gguf

    listed = tuple(tensors)
    writer = gguf.GGUFWriter(path, header.architecture)
    for one in header.keys:
        kind, inner = _library_types(gguf)[one.kind]
        writer.add_key_value(one.name, one.value, kind, inner)
    writer.add_uint32("general.file_type", _FILE_TYPES[_most_common(listed)])
    for tensor in listed:
        number = gguf.GGMLQuantizationType[tensor.kind]
        writer.add_tensor_info(tensor.name, tensor.shape, np.dtype("f4"), size_of(tensor), raw_dtype=number)
    for factor in header.factors:
        writer.add_tensor_info(factor.name, (len(factor.numbers),), np.dtype("f4"), 4 * len(factor.numbers))
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor in listed:
            writer.write_tensor_data(np.ascontiguousarray(read(tensor)))
        for factor in header.factors:
            writer.write_tensor_data(np.array(factor.numbers, "<f4"))
    finally:
        writer.close()


def size_of(tensor: PlannedTensor) -> int:
    """How many bytes a tensor has."""
    count = int(np.prod(tensor.shape, dtype=np.int64))
    if tensor.kind in BLOCK_TYPES:
        return BLOCK_TYPES[tensor.kind].row_bytes(count)
    return count * (4 if tensor.kind == "F32" else 2)


def _most_common(tensors: Iterable[PlannedTensor]) -> str:
    sizes: dict[str, int] = {}
    for tensor in tensors:
        sizes[tensor.kind] = sizes.get(tensor.kind, 0) + size_of(tensor)
    return max(sizes, key=lambda kind: (sizes[kind], kind))


def _library_types(gguf: Any) -> Mapping[KeyType, tuple[Any, Any]]:
    types = gguf.GGUFValueType
    return {
        KeyType.UINT32: (types.UINT32, None),
        KeyType.FLOAT32: (types.FLOAT32, None),
        KeyType.BOOL: (types.BOOL, None),
        KeyType.STRING: (types.STRING, None),
        KeyType.INT8S: (types.ARRAY, types.INT8),
        KeyType.INT32S: (types.ARRAY, types.INT32),
        KeyType.FLOAT32S: (types.ARRAY, types.FLOAT32),
        KeyType.BOOLS: (types.ARRAY, types.BOOL),
        KeyType.STRINGS: (types.ARRAY, types.STRING),
    }
