"""Optimization levels, by MLC-LLM's names."""

from __future__ import annotations

from mlcbuild.errors import StageError

LEVELS: tuple[str, ...] = ("O0", "O1", "O2", "O3")
WITH_CUDA_GRAPH: frozenset[str] = frozenset(("O2", "O3"))


def check(level: str) -> None:
    """Raises StageError for an unknown level."""
    if level not in LEVELS:
        raise StageError(f'unknown optimization level "{level}"', advice=(f"known: {', '.join(LEVELS)}",))
