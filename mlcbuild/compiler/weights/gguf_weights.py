"""The tensors of a GGUF file by its own names, dequantized to float32, as integers (`gguf_integers`), or
in their blocks (`ggml_blocks`). What makes
Hugging Face's of them the model's parameters say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from mlcbuild.compiler.weights.block_types import KEPT_AS_BLOCKS
from mlcbuild.compiler.weights.ggml_blocks import BlockMatrix
from mlcbuild.compiler.weights.gguf_blocks import dequantize_blocks
from mlcbuild.compiler.weights.gguf_file import GGUFFile
from mlcbuild.compiler.weights.gguf_integers import GROUP, KINDS, integers_of
from mlcbuild.compiler.weights.integers import IntegerMatrix
from mlcbuild.compiler.weights.tensor import Array, Rows, Tensor, TensorDescription
from mlcbuild.errors import StageError

_PIECE_ELEMENTS = 1 << 22  # dequantized at once: what is needed in between takes several times the room of the numbers


class GGUFWeights:
    """One file, or the parts of a split one. Raises StageError for a damaged one."""

    has_gguf_names = True

    def __init__(self, *paths: Path) -> None:
        self._file = GGUFFile(*paths)

    @property
    def descriptions(self) -> Mapping[str, TensorDescription]:
        return {
            name: TensorDescription(name=name, dtype="float32", shape=tensor.shape)
            for name, tensor in self._file.tensors.items()
        }

    def read(self, name: str, rows: Rows | None = None) -> Tensor:
        """One tensor, or some of its rows, dequantized to float32, a piece at a time."""
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

        tensor = self._file.tensors[name]
        kind = GGMLQuantizationType(tensor.type_number)
        block_elements, block_bytes = GGML_QUANT_SIZES[kind]
        whole = TensorDescription(name=name, dtype="float32", shape=tensor.shape)
        described = whole.part(rows)
        # No block reaches from one row into the next.
        before = 0 if rows is None else rows[0] * (tensor.size_bytes // tensor.shape[0])
        end = before + described.elements // block_elements * block_bytes
        numbers: Array = np.empty(described.elements, "<f4")
        blocks = max(1, _PIECE_ELEMENTS // block_elements)
        for first in range(0, described.elements // block_elements, blocks):
            begin = before + first * block_bytes
            stored = self._file.stored(tensor, begin, min(begin + blocks * block_bytes, end))
            made = dequantize_blocks(np.frombuffer(stored, np.uint8).reshape(-1, block_bytes), kind)
            if made is None:
                raise StageError(f"{self._file.path}: the tensor {name} is of type {kind.name}, which holds no weights")
            numbers[first * block_elements :][: made.size] = made.reshape(-1)
        return Tensor(description=described, data=numbers.reshape(described.shape))

    def groups(self, name: str) -> int | None:
        """Groups of a row of a matrix whose blocks are integers that can be kept (`gguf_integers`); None for others."""
        shape = self._file.tensors[name].shape
        return shape[-1] // GROUP if len(shape) > 1 and self._kind(name) in KINDS else None

    def scaled(self, name: str, rows: Rows | None = None) -> IntegerMatrix:
        """A matrix with `groups`, or some of its rows."""
        shape, stored = self._stored(name, rows)
        return integers_of(stored.reshape(*shape[:-1], shape[-1] // GROUP, -1), self._kind(name))

    def block_kind(self, name: str) -> str | None:
        """The type of a matrix whose blocks can be kept (`ggml_blocks`); None for others."""
        kind = self._kind(name)
        return kind if len(self._file.tensors[name].shape) > 1 and kind in KEPT_AS_BLOCKS else None

    def blocks(self, name: str, rows: Rows | None = None) -> BlockMatrix:
        """A matrix with a `block_kind`, or some of its rows."""
        shape, stored = self._stored(name, rows)
        return BlockMatrix(kind=self._kind(name), data=stored.reshape(*shape[:-1], -1))

    def has_floats(self, name: str) -> bool:  # noqa: ARG002
        """Whether a tensor with `groups` is floats: none is."""
        return False

    def _stored(self, name: str, rows: Rows | None) -> tuple[tuple[int, ...], Array]:
        """The shape of a tensor, or of some of its rows, and its bytes."""
        tensor = self._file.tensors[name]
        row = tensor.size_bytes // tensor.shape[0]
        begin, end = rows or (0, tensor.shape[0])
        stored = np.frombuffer(self._file.stored(tensor, begin * row, end * row), np.uint8)
        return (end - begin, *tensor.shape[1:]), stored

    def _kind(self, name: str) -> str:
        from gguf.constants import GGMLQuantizationType

        return str(GGMLQuantizationType(self._file.tensors[name].type_number).name)

    def close(self) -> None:
        self._file.close()
