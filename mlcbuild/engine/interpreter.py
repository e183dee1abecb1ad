"""Which Python runs this."""

from __future__ import annotations

import sys


def python_version() -> str:
    """Implementation and version, for example `cpython 3.11.4 final`: not its build, which differs by
    packager.
    """
    version = sys.version_info
    return f"{sys.implementation.name} {version.major}.{version.minor}.{version.micro} {version.releaselevel}"
