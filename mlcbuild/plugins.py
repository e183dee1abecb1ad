"""Plug-ins of our own, found by listing a folder: a file or folder that is added there is known, and nowhere named.

Listing imports nothing. Rules name what is found to actions (`engine.action.StageCall.plugins`). What was listed and
looked for is known by path, because who remembers an answer must see what was added since (`engine.no_op_record`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

_ROOT = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  # Imported by every command: no pathlib.
_observed: set[str] = set()


def plugins_in(folder: str, *, module: str = "") -> tuple[str, ...]:
    """The names of the plug-ins in a folder of ours (`compiler/families`), sorted.

    A plug-in is a Python file, without the ending `.py`; with `module`, a folder that holds a file of that name.
    """
    path = os.path.join(_ROOT, folder)  # noqa: PTH118
    _observed.add(path)
    names = os.listdir(path)  # noqa: PTH208
    if module:
        found = [name for name in names if "." not in name and _is_file(path, name, f"{module}.py")]
    else:
        found = [name.removesuffix(".py") for name in names if name.endswith(".py") and name != "__init__.py"]
    return tuple(sorted(found))


def missing_modules(folder: str, modules: Iterable[str]) -> list[str]:
    """The files that a plug-in's folder lacks of those that it must have."""
    path = os.path.join(_ROOT, folder)  # noqa: PTH118
    files = [f"{module}.py" for module in modules]
    return [name for name in files if not _is_file(path, name)]


def load_plugin(name: str) -> Any:
    """The object that `package.module:name` names, imported: for whoever is no action, to which plug-ins are given."""
    import importlib  # Costs a millisecond, which who only lists does not pay.

    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def observed_paths() -> frozenset[str]:
    """The absolute paths of the folders that this process has listed, and of the files that it has looked for."""
    return frozenset(_observed)


def _is_file(*parts: str) -> bool:
    path = os.path.join(*parts)  # noqa: PTH118
    _observed.add(path)
    return os.path.isfile(path)  # noqa: PTH113
