"""A built package, loaded: its model with its own weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from mlcbuild.runtime.expected_tensor import ExpectedTensor
from mlcbuild.runtime.model import Array, Model
from mlcbuild.runtime.package import ModelPackage
from mlcbuild.runtime.tensor_cache import TensorCache

LoadProgress = Callable[[int, int], None]  # tensors that are loaded, of how many


class Engine(Model):
    """A package's library with its weights. Raises UsageError for a package that does not fit together."""

    def __init__(self, directory: Path, *, threads: int = 0, loaded: LoadProgress = lambda _done, _total: None) -> None:
        self.package = ModelPackage.open(directory)
        cache = TensorCache(directory)

        def read(expected: Sequence[ExpectedTensor]) -> Iterator[Array]:
            for number, array in enumerate(cache.read(expected), 1):
                yield array
                loaded(number, len(expected))

        super().__init__(self.package.library, read, threads=threads)
