"""The host of a target: the part of TVM's JSON that describes the machine that loads the library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcbuild.errors import StageError


def host_of(document: Mapping[str, object]) -> Mapping[str, Any]:
    """What a target has as `host`; a target without one is its own host. Raises StageError for what is no target."""
    host = document.get("host", document)
    if not isinstance(host, Mapping):
        raise StageError(f"the host of the {document.get('kind')} target is no target")
    return host


def host_triple(document: Mapping[str, object]) -> str:
    """The triple of the machine that loads the library. Raises StageError for a target that names none."""
    triple = host_of(document).get("mtriple")
    if not isinstance(triple, str):
        raise StageError("the target's host has no mtriple")
    return triple
