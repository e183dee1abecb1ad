"""Plug-ins of our own, found by listing a folder: a file or folder that is added there is known, and nowhere named.

Listing imports nothing. Rules name what is found to actions (`engine.action.StageCall.plugins`). What was listed is
known by path, because a build that has nothing to do must see what was added since (`engine.no_op_record`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

_ROOT = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  # Imported by every command: no pathlib.
_listed: set[str] = set()


def plugins_in(folder: str, *, module: str = "") -> tuple[str, ...]:
    """The names of the plug-ins in a folder of ours (`compiler/families`), sorted.

    A plug-in is a Python file, without the ending `.py`; with `module`, a folder that holds a file of that name.
    """
    path = os.path.join(_ROOT, folder)  # noqa: PTH118
    _listed.add(path)
    names = os.listdir(path)  # noqa: PTH208
    if module:
        found = [name for name in names if os.path.isfile(os.path.join(path, name, f"{module}.py"))]  # noqa: PTH113, PTH118
    else:
        found = [name.removesuffix(".py") for name in names if name.endswith(".py") and name != "__init__.py"]
    return tuple(sorted(found))


def missing_modules(folder: str, modules: Iterable[str]) -> list[str]:
    """The files that a plug-in's folder lacks of those that it must have."""
    path = os.path.join(_ROOT, folder)  # noqa: PTH118
    files = [f"{module}.py" for module in modules]
    return [name for name in files if not os.path.isfile(os.path.join(path, name))]  # noqa: PTH113, PTH118


def load_plugin(name: str) -> Any:
    """The object that `package.module:name` names, imported: for whoever is no action, to which plug-ins are given."""
    import importlib  # Costs a millisecond, which who only lists does not pay.

    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def listed_folders() -> frozenset[str]:
    """The absolute paths of the folders that this process has listed."""
    return frozenset(_listed)
