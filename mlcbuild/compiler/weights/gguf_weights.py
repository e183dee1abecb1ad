"""The tensors of a GGUF file by its own names, dequantized to float32. What makes Hugging Face's of them the model's
parameters say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from mlcbuild.compiler.weights.gguf_file import GGUFFile, GGUFTensor
from mlcbuild.compiler.weights.tensor import Array, Tensor, TensorDescription
from mlcbuild.errors import StageError


class GGUFWeights:
    """One file. Raises StageError for a damaged one."""

    has_gguf_names = True

    def __init__(self, path: Path) -> None:
        self._file = GGUFFile(path)

    @property
    def descriptions(self) -> Mapping[str, TensorDescription]:
        return {
            name: TensorDescription(name=name, dtype="float32", shape=tensor.shape)
            for name, tensor in self._file.tensors.items()
        }

    def read(self, name: str) -> Tensor:
        """One tensor, dequantized to float32."""
        tensor = self._file.tensors[name]
        numbers = _dequantized(self._file, tensor)
        described = TensorDescription(name=name, dtype="float32", shape=tensor.shape)
        return Tensor(description=described, data=np.ascontiguousarray(numbers, dtype="<f4"))

    def close(self) -> None:
        self._file.close()


def _dequantized(file: GGUFFile, tensor: GGUFTensor) -> Array:
    """A tensor's numbers, float32 but for the types that hold plain numbers of their own."""
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    kind = GGMLQuantizationType(tensor.type_number)
    # A copy: a view would keep the mapped file from being closed.
    stored = np.frombuffer(file.content[tensor.begin : tensor.begin + tensor.size_bytes], dtype=np.uint8)
    rows = stored.reshape(*tensor.shape[:-1], -1) if tensor.shape else stored
    if kind is GGMLQuantizationType.F32:
        return rows.view("<f4")
    if kind is GGMLQuantizationType.F16:
        return rows.view("<f2").astype("<f4")
    try:
        numbers: Array = dequantize(rows, kind)
    except NotImplementedError as error:
        raise StageError(
            f"{file.path}: the tensor {tensor.name} is of type {kind.name}, which holds no weights"
        ) from error
    return numbers
