"""`mlcbuild clean`: removes what builds have left in a workspace."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from mlcbuild.cli.arguments.options import LOG_DIRECTORY, RECORD_DIRECTORY, STATE_DIRECTORY
from mlcbuild.engine.workspace_lock import LOCK_FILE, WorkspaceLock
from mlcbuild.errors import LocalEnvironmentError, WorkspaceError
from mlcbuild.workspace.packages import BUILD_FILE
from mlcbuild.workspace.settings import WORKSPACE_TABLE, WorkspaceSettings, find_root, load_settings
from mlcbuild.workspace.toml import read

_CRASH_FILES = "crash-"


def clean_workspace(directory: Path, *, expunge: bool) -> None:
    """Remove outputs and state.

    Raises WorkspaceError for an output folder that is not safe to remove, WorkspaceLockedError while a build runs.
    """
    settings = _settings(find_root(directory))
    root = settings.root.resolve()
    output = root / settings.output
    if root not in output.resolve().parents and not output.is_symlink():
        raise WorkspaceError(f"the output folder {settings.output} is not below the workspace; nothing was removed")
    state = root / STATE_DIRECTORY
    with WorkspaceLock(state, block=False):
        _remove(output)
        for entry in state.iterdir():
            # The lock file stays: a process that waits for it must lock the file that others see.
            is_log = entry.name in (LOG_DIRECTORY, RECORD_DIRECTORY) or entry.name.startswith(_CRASH_FILES)
            if entry.name != LOCK_FILE and (expunge or not is_log):
                _remove(entry)


def _settings(root: Path) -> WorkspaceSettings:
    """The settings, whatever is wrong with them, if the folder to remove is not in question. Raises WorkspaceErrors."""
    settings = load_settings(root, tolerant=True)
    table = read(root / BUILD_FILE, BUILD_FILE).content.get(WORKSPACE_TABLE)
    written = table.get("output", settings.output) if isinstance(table, dict) else None
    is_certain = isinstance(written, str) and Path(written) == Path(settings.output)
    return settings if is_certain else load_settings(root)


def _remove(path: Path) -> None:
    """Remove a file, a link (not what it points to) or a tree, whose folders may be read-only."""
    try:
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)
            for folder, names, _ in os.walk(path):
                for name in names:
                    if not (Path(folder) / name).is_symlink():
                        (Path(folder) / name).chmod(0o700)
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise LocalEnvironmentError(
            f"{error.filename or path} cannot be removed: {error.strerror or error}",
            advice=("check its owner, and that no other program uses it",),
        ) from error
