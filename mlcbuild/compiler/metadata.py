"""The metadata that a library carries: what a serving engine has to know to run it.

Export writes what the model's configuration says, Phase0 adds the cache, Lower the sizes that a library may override,
how many entries of the vocabulary the tokenizer has, and the memory that each function needs. Each stage writes a new
file; nothing is changed in place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlcbuild.errors import StageError

KERNELS = "kernels"  # the names of all kernels by where these come from (`kernels.scheduling.Scheduling.source`)
SHOWN_LAYERS = "shown_layers"  # the numbers of the layers that a module shows: between stages, not in a library


def read(path: Path) -> dict[str, Any]:
    """The metadata in a file. Raises StageError for a file that holds none."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise StageError(f"{path.name} is not metadata: {error}") from error
    if not isinstance(document, dict):
        raise StageError(f"{path.name} is not metadata: it does not hold a JSON object")
    return document


def canonical(document: Mapping[str, object]) -> str:
    """The one text of a document: sorted keys, no spaces."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def write(document: Mapping[str, object], path: Path) -> None:
    """Write the canonical text, with a newline at its end."""
    path.write_text(canonical(document) + "\n", encoding="utf-8")
