"""The environment variables of actions and of the servers that they are forked from. The user's own do not count.

An action sees its declared variables and these, and nothing else. Numeric libraries get one thread each: the
scheduler fills the machine with actions, and the order of a sum must not depend on the number of cores.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

FIXED = {
    "PATH": "/usr/bin:/bin",
    "LC_ALL": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TVM_NUM_THREADS": "1",
}
TEMPORARY = ".tmp"  # the directory for temporary files, in the action's own

# They replace the fixed ones to find out whether a result depends on them.
OTHER: Mapping[str, str] = {"PYTHONHASHSEED": "1", "TZ": "<+14>-14", "LC_ALL": "C"}


def of_action(
    declared: Sequence[tuple[str, str]], directory: Path, changed: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """The variables of an action in `directory`: the fixed ones, HOME, TMPDIR, `changed`, then the declared ones."""
    own = {"HOME": str(directory), "TMPDIR": str(directory / TEMPORARY)}
    return {**FIXED, **own, **changed, **dict(declared)}


def of_network_action(declared: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The user's own variables (proxies, credentials, pip's configuration), then the declared ones."""
    return {**os.environ, **dict(declared)}


def of_server(changed: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """The variables that a fork server starts with. HOME does not exist, so no library finds a user's configuration."""
    return {**FIXED, "HOME": "/nonexistent", "PYTHONNOUSERSITE": "1", **changed}
