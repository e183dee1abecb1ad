"""The program that runs, as part of what decides an answer: its version, and the files of its modules."""

from __future__ import annotations

import os
import sys

import mlcbuild
from mlcbuild.plugins import observed_paths


def program_identity() -> list[str]:
    """What decides which modules are imported. Their content is known by their files (`program_paths`)."""
    return [mlcbuild.__version__, sys.version, sys.executable, *sys.path]


def program_paths() -> frozenset[str]:
    """The files of all loaded modules, and what was listed and looked for to find plug-ins. Without the standard
    library, for which Python's version stands.
    """
    standard = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    modules = {
        os.path.abspath(file)  # noqa: PTH100
        for file in files
        if file and (not file.startswith(standard) or "site-packages" in file or "dist-packages" in file)
    }
    return observed_paths().union(modules)
