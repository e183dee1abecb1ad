"""The libraries of the extra `release`, which not everybody has installed."""

from __future__ import annotations


def package_of(error: ImportError) -> str:
    """The package whose import failed."""
    return (error.name or "").partition(".")[0]
