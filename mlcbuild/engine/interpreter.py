"""The version of the running Python."""

from __future__ import annotations

import sys


def python_version() -> str:
    """Implementation and version, for example `cpython 3.11.4 final`. Builds by different packagers count as equal."""
    version = sys.version_info
    return f"{sys.implementation.name} {version.major}.{version.minor}.{version.micro} {version.releaselevel}"
