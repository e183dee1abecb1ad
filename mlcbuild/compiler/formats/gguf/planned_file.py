"""A GGUF file that is not written yet, for what reads files: so a file can be checked before there is one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from mlcbuild.compiler.weights.gguf_file import GGUFFile
from mlcbuild.compiler.weights.gguf_parts import GGUFTensor, GGUFValue

_F32 = 0  # of ggml_type


class PlannedFile(GGUFFile):
    """`metadata` as a file gives them, tensors by names and shapes, and the numbers of small tensors of `factors`."""

    def __init__(
        self,
        *,
        metadata: Mapping[str, GGUFValue],
        shapes: Iterable[tuple[str, tuple[int, ...]]],
        factors: Mapping[str, tuple[float, ...]],
    ) -> None:
        self.path = Path("the GGUF file")
        self.metadata = metadata
        self._factors = factors
        sized = (*shapes, *((name, (len(numbers),)) for name, numbers in factors.items()))
        self.tensors = {
            name: GGUFTensor(name=name, type_number=_F32, shape=shape, begin=0, size_bytes=0) for name, shape in sized
        }

    def float32_numbers(self, name: str) -> list[float]:
        return list(self._factors[name])

    def close(self) -> None:
        """Nothing is open."""
