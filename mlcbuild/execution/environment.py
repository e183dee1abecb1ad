"""The environment of actions and of the servers they are forked from: fixed, whatever the user's own is.

An action sees its declared variables and these, nothing else. Numeric libraries get one thread each: the
scheduler fills the machine with actions, and a sum's order must not depend on a core count.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

FIXED = {
    "PATH": "/usr/bin:/bin",
    "LC_ALL": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TVM_NUM_THREADS": "1",
}
TEMPORARY = ".tmp"  # the directory for temporary files, inside the action's own


def of_action(declared: Sequence[tuple[str, str]], directory: Path) -> dict[str, str]:
    """The variables of an action in `directory`: the fixed ones, HOME, TMPDIR, then the declared."""
    return {**FIXED, "HOME": str(directory), "TMPDIR": str(directory / TEMPORARY), **dict(declared)}


def of_network_action(declared: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The user's own variables (proxies, credentials, pip's configuration), then the declared ones."""
    return {**os.environ, **dict(declared)}


def of_server() -> dict[str, str]:
    """The variables a fork server starts with. HOME names nothing, so no library finds a user's configuration."""
    return {**FIXED, "HOME": "/nonexistent", "PYTHONNOUSERSITE": "1"}
