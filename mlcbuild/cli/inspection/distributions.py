"""Versions of installed distributions, from their metadata, without importing them."""

from __future__ import annotations


def installed_version(distribution: str) -> str:
    """The version in the metadata; "" if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""
