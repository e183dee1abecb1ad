"""Finds Python modules below a folder by name, as Python itself does, without importing anything.

A folder is a package with or without `__init__.py`. Without it, it has no code, and is no module here.
"""

from __future__ import annotations

import os
from pathlib import Path

_FORMS = ("", ".py", "/__init__.py")  # of the file or folder of a top-level module


class SourceTree:
    """The modules below `root`.

    `shown_below` is a prefix of paths for people. `observed` are the absolute paths that decided any answer. Some of
    them do not exist.
    """

    def __init__(self, root: Path, *, shown_below: str = "") -> None:
        self.root = str(root)
        self.observed: set[str] = set()
        self._shown_below = shown_below
        self._folders: dict[str, frozenset[str]] = {}
        self._files: dict[str, str | None] = {}

    def file(self, module: str) -> str | None:
        """The path of a module's source below the root; None where it has none."""
        if module not in self._files:
            self._files[module] = self._find(module)
        return self._files[module]

    def _find(self, module: str) -> str | None:
        first, _, rest = module.partition(".")
        # The root itself is not observed. It may be any folder, in which other files often change.
        self.observed.update(f"{self.root}/{first}{form}" for form in _FORMS)
        if rest and first not in self.entries(""):
            return None
        folder, _, name = module.replace(".", "/").rpartition("/")
        inside = f"{folder}/{name}" if folder else name
        entries = self.entries(folder)
        if name in entries and "__init__.py" in self.entries(inside):
            return f"{inside}/__init__.py"
        return f"{inside}.py" if f"{name}.py" in entries else None

    def entries(self, folder: str) -> frozenset[str]:
        """The names in a folder below the root, "" for the root itself. Empty where there is no such folder."""
        if folder not in self._folders:
            if folder:
                self.observed.add(f"{self.root}/{folder}")
            try:
                entries = frozenset(os.listdir(f"{self.root}/{folder}"))  # noqa: PTH208
            except OSError:
                entries = frozenset()
            self._folders[folder] = entries
        return self._folders[folder]

    def has_file(self, path: str) -> bool:
        """Whether there is a file at a path below the root."""
        self.observed.add(f"{self.root}/{path}")
        return os.path.isfile(f"{self.root}/{path}")  # noqa: PTH113

    def location(self, path: str) -> Path:
        """The location of a file that will be read."""
        self.observed.add(f"{self.root}/{path}")
        return Path(self.root, path)

    def shown(self, path: str) -> str:
        """The path of a file, for people."""
        return self._shown_below + path
