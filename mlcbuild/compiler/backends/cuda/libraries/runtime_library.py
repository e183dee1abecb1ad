"""A library of somebody else's that kernels call where a model runs, and that is not there where it is built."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RuntimeLibrary:
    """`name` is what platforms and metadata call it. `files` are the names that it is loaded by, the first that is
    there; each has the same functions in the form that `source` declares.

    `source` is C that is linked into every library of such a platform: it defines `functions` in TVM's packed calling
    convention, and loads the library when one of these is called first.
    """

    name: str
    files: tuple[str, ...]
    functions: tuple[str, ...]
    source: str
