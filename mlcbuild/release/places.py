"""Where a release lies: a folder here, or a prefix in a bucket (`bucket.py`). Both are read in the same way."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The files of a place by path, with their sizes in bytes, and what is neither file nor folder, with its kind."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    irregular: Mapping[str, str] = field(default_factory=dict)


class Place(Protocol):
    """Paths are relative, with `/`. Nothing outside the place is read, and no symbolic link is followed."""

    @property
    def address(self) -> str: ...

    def listing(self) -> Listing:
        """Raises LocalEnvironmentError or FileNotFoundError."""
        ...

    def read(self, path: str) -> bytes:
        """The content of a small file. Raises OSError."""
        ...

    def sha256(self, path: str, told: Callable[[int], object]) -> str:
        """The digest of a file; `told` is called with the number of bytes of each piece. Raises OSError."""
        ...


class Folder:
    """A release in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def address(self) -> str:
        return str(self._folder)

    def listing(self) -> Listing:
        sizes: dict[str, int] = {}
        irregular: dict[str, str] = {}
        waiting = [""]
        while waiting:
            above = waiting.pop()
            with os.scandir(self._folder / above) as entries:
                for entry in entries:
                    path = f"{above}{entry.name}"
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode):
                        waiting.append(f"{path}/")
                    elif stat.S_ISREG(status.st_mode):
                        sizes[path] = status.st_size
                    else:
                        irregular[path] = "a symbolic link" if entry.is_symlink() else "no regular file"
        return Listing(sizes=sizes, irregular=irregular)

    def read(self, path: str) -> bytes:
        descriptor = self._opened(path)
        with os.fdopen(descriptor, "rb") as stream:
            return stream.read()

    def sha256(self, path: str, told: Callable[[int], object] = lambda _: None) -> str:
        digest = hashlib.sha256()
        with os.fdopen(self._opened(path), "rb") as stream:
            while piece := stream.read(_PIECE_BYTES):
                digest.update(piece)
                told(len(piece))
        return digest.hexdigest()

    def _opened(self, path: str) -> int:
        return os.open(self._folder / path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
