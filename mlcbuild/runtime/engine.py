"""A built package, loaded: its model with its own weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from mlcbuild.runtime.expected_tensor import ExpectedTensor
from mlcbuild.runtime.logits import Array
from mlcbuild.runtime.model import Model
from mlcbuild.runtime.package import ModelPackage, refuse_generation
from mlcbuild.runtime.tensor_cache import TensorCache

LoadProgress = Callable[[int, int], None]  # tensors that are loaded, of how many


class Engine(Model):
    """A package's library with its weights. Raises UsageError for a package that does not fit together."""

    def __init__(self, directory: Path, *, threads: int = 0, loaded: LoadProgress = lambda _done, _total: None) -> None:
        self.package = ModelPackage.open(directory)
        refuse_generation(self.package)
        read = partial(read_weights, directory, loaded=loaded)
        super().__init__(self.package.library, read, threads=threads)


def read_weights(
    directory: Path, expected: Sequence[ExpectedTensor], *, loaded: LoadProgress = lambda _done, _total: None
) -> Iterator[Array]:
    """The arrays of a package's tensors, in the order that they are expected in; `loaded` is told of each."""
    for number, array in enumerate(TensorCache(directory).read(expected), 1):
        yield array
        loaded(number, len(expected))
