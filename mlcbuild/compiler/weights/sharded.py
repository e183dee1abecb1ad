"""A checkpoint of several files with an index: `{"weight_map": {tensor: file}}`, as Hugging Face writes
it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mlcbuild.compiler.models.config import read_document
from mlcbuild.compiler.weights.tensor import Rows, Tensor, TensorDescription
from mlcbuild.errors import StageError

if TYPE_CHECKING:
    from mlcbuild.compiler.weights.source import WeightSource


class ShardedCheckpoint:
    """Files of one format read as one checkpoint.

    Raises StageError where the index and the files disagree.
    """

    has_gguf_names = False

    def __init__(self, index: Path, *, open_file: Callable[[Path], WeightSource]) -> None:
        weight_map = _weight_map(index)
        self._files: dict[str, WeightSource] = {}
        self._place: dict[str, str] = {}
        found: dict[str, TensorDescription] = {}
        for file_name in sorted(set(weight_map.values())):
            path = index.parent / file_name
            if Path(file_name).name != file_name or not path.is_file():
                raise StageError(f"{index} names the file {file_name!r}, which is not there")
            source = open_file(path)
            self._files[file_name] = source
            for name, description in source.descriptions.items():
                if name in found:
                    raise StageError(f"the tensor {name} is both in {self._place[name]} and in {file_name}")
                found[name] = description
                self._place[name] = file_name
        for name, file_name in weight_map.items():
            if self._place.get(name) != file_name:
                raise StageError(f"{index} places the tensor {name} in {file_name}, which lacks it")
        self._descriptions = found

    @property
    def descriptions(self) -> Mapping[str, TensorDescription]:
        return self._descriptions

    def read(self, name: str, rows: Rows | None = None) -> Tensor:
        return self._files[self._place[name]].read(name, rows)

    def close(self) -> None:
        for source in self._files.values():
            source.close()


def _weight_map(index: Path) -> dict[str, str]:
    weight_map = read_document(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(value, str) for value in weight_map.values()):
        raise StageError(f'{index} is not an index: it has no "weight_map" from tensors to file names')
    return weight_map
