"""What the stages of tests share: a package that is loaded, and errors of it as failures of the test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mlcbuild.errors import StageError, UsageError
from mlcbuild.runtime.engine import Engine
from mlcbuild.runtime.package import ModelPackage


@contextmanager
def failing_as_stage() -> Iterator[None]:
    """What the runtime says of wrong input is a failure of the stage."""
    try:
        yield
    except UsageError as error:
        raise StageError(error.message, advice=error.advice) from error


def load(package: Path, *, threads: int, function: str = "prefill") -> Engine:
    """A package whose library has an entry function. Raises StageError for one that does not run, or has none."""
    try:
        if ModelPackage.open(package).is_embedding:
            raise StageError("the model makes embeddings: a test of what it says takes a model that generates text")
        engine = Engine(package, threads=threads)
    except UsageError as error:
        raise StageError(f"the package does not run: {error}") from error
    if not engine.has_function(function):
        raise StageError(
            f"the package cannot be tested: its library has no function {function}",
            advice=("build the library again: it was made by something else than this version of mlcbuild",),
        )
    return engine


def threads_of(hints: Mapping[str, Any] | None) -> int:
    """The threads that a test may keep busy; results do not depend on them."""
    return int((hints or {}).get("threads", 1))
