"""A built package, loaded: its model with its own weights."""

from __future__ import annotations

from pathlib import Path

from mlcbuild.runtime.model import Model
from mlcbuild.runtime.package import ModelPackage
from mlcbuild.runtime.tensor_cache import TensorCache


class Engine(Model):
    """A package's library with its weights. Raises UsageError for a package that does not fit together."""

    def __init__(self, directory: Path, *, threads: int = 0) -> None:
        self.package = ModelPackage.open(directory)
        read = TensorCache(directory).read
        super().__init__(self.package.library, read, threads=threads)
