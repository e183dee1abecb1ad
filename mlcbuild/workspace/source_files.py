"""Lists the files of the workspace that a label means: a file, or a folder with all below it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from mlcbuild.errors import Location, WorkspaceError
from mlcbuild.regular_files import walk_through_links
from mlcbuild.workspace.observed import Observer
from mlcbuild.workspace.packages import BUILD_FILE


def source_paths(root: Path, path: str, observer: Observer) -> tuple[bool, tuple[str, ...]]:
    """Whether `path` is a folder, and the file itself, or every file below the folder: sorted, without hidden ones and
    `BUILD.toml` files. Links to folders are followed. All paths are relative to the root.

    What was listed and looked for is added to `observer`. Raises WorkspaceError for a name that is not UTF-8, for a
    folder that cannot be listed, and for a link to a folder that holds it.
    """
    if not stat.S_ISDIR(observer.kind_of(path)):
        return False, (path,)
    folder = root / path
    try:
        return True, tuple(f"{path}/{relative}" for relative in sorted(_files_below(folder, path, observer)))
    except OSError as error:
        below = os.path.relpath(error.filename or folder, root)
        raise WorkspaceError(
            f"the folder {below!r} cannot be listed: {error.strerror or error}",
            location=Location(path=path),
            advice=("all files below an input folder are inputs: take it out, or correct it",),
        ) from None


def _files_below(folder: Path, shown: str, observer: Observer) -> Iterator[str]:
    for parent, folders, files in walk_through_links(folder, refuse_loops=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        relative = Path(parent).relative_to(folder)
        observer.will_read(f"{shown}/{relative.as_posix()}")
        for name in files:
            if not name.startswith(".") and name != BUILD_FILE:
                path = (relative / name).as_posix()
                if not _is_utf8(path):
                    raise WorkspaceError(
                        f"the file {f'{shown}/{path}'!r} has a name that is not UTF-8",
                        advice=("rename it, or take it out of the folder",),
                    )
                observer.kind_of(f"{shown}/{path}")  # It may be a link, and become one to a folder.
                yield path


def _is_utf8(path: str) -> bool:
    """Whether a path as the system gives it can be said in UTF-8, as keys and outputs say paths."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
