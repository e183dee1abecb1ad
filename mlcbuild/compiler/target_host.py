"""The host of a target: the part of TVM's JSON that describes the machine that loads the library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcbuild.errors import StageError


def host_of(document: Mapping[str, object]) -> Mapping[str, Any]:
    """A CPU target is its own host; any other has one. Raises StageError where it has none."""
    if document.get("kind") == "llvm":
        return document
    host = document.get("host")
    if not isinstance(host, Mapping) or host.get("kind") != "llvm":
        raise StageError(
            f"the {document.get('kind')} target has no host",
            advice=(
                'name it, for example "host": {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "x86-64-v3"}',
            ),
        )
    return host


def host_triple(document: Mapping[str, object]) -> str:
    """The triple of the machine that loads the library. Raises StageError for a target that names none."""
    triple = host_of(document).get("mtriple")
    if not isinstance(triple, str):
        raise StageError("the target has no mtriple")
    return triple
