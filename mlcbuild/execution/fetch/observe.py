"""The pin of what an address serves now, which `mlcbuild fetch --update` writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcbuild.execution.fetch import http, huggingface, local, pypi, s3, verify

KINDS = ("http", "huggingface", "local", "pypi", "s3")


def observe(kind: str, hints: Mapping[str, Any]) -> str:
    """Fetch, store nothing, and return the pin (64 hexadecimal digits). Raises FetchError, ValueError for `kind`."""
    if kind == "huggingface":
        return huggingface.observe(hints)
    chunks = {"http": http.chunks, "local": local.chunks, "pypi": pypi.chunks, "s3": s3.chunks}.get(kind)
    if chunks is None:
        raise ValueError(f"unknown kind of fetch {kind!r}; known: {', '.join(KINDS)}")
    return verify.digest(chunks(hints))
