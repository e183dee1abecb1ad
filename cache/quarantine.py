"""Takes out of the way what does not belong in a store: damaged files, and what has a file's name but is no file."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

FOLDER = "corrupt"


def set_aside(base: Path, path: Path) -> None:
    """Move whatever is in `path` to `corrupt/` below `base`; delete it if that is impossible. Raises nothing."""
    corrupt = base / FOLDER
    with contextlib.suppress(OSError):
        corrupt.mkdir(exist_ok=True)
    # An entry of this name may already be there, and a file and a folder cannot replace each other.
    for name in (path.name, f"{path.name}.{os.urandom(4).hex()}"):
        try:
            path.rename(corrupt / name)
        except FileNotFoundError:
            return
        except OSError:
            continue
        return
    remove(path)


def remove(path: Path) -> None:
    """Delete a file, or a folder with its contents, as far as that is possible."""
    with contextlib.suppress(OSError):
        if stat.S_ISDIR(path.lstat().st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def make_room(base: Path, path: Path) -> None:
    """Set aside what prevents a file from being renamed to `path`, which lies two folders below `base`.

    That is a folder in its place, or a file in the place of the folder that it lies in.
    """
    places: tuple[tuple[Path, Callable[[int], bool]], ...] = ((path.parent, stat.S_ISDIR), (path, stat.S_ISREG))
    for place, is_right in places:
        try:
            mode = place.stat().st_mode
        except FileNotFoundError:
            continue
        except OSError:
            mode = 0
        if not is_right(mode):
            set_aside(base, place)


def kind_of(mode: int) -> str:
    """What kind of file it is, for people. `mode` is from `stat`."""
    kinds = {
        stat.S_IFREG: "a file",
        stat.S_IFDIR: "a folder",
        stat.S_IFLNK: "a link",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")
