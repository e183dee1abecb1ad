"""Versions of installed distributions, read from their metadata without importing them."""

from __future__ import annotations


def installed_version(distribution: str) -> str:
    """The version as its metadata says; "" where it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""
