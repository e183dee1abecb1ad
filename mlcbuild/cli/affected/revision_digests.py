"""Digests of the files of a workspace at a revision of Git."""

from __future__ import annotations

import os

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.file_digests import FileDigests, FileState
from mlcbuild.cli.affected.revision import Revision
from mlcbuild.cli.workspace.opening import OpenWorkspace
from mlcbuild.errors import MlcbuildError


class RevisionDigests(FileDigests):
    """Digests of the files at a revision. Those of unchanged files are remembered where the workspace is."""

    def __init__(self, workspace: OpenWorkspace, revision: Revision) -> None:
        function = DigestFunction(workspace.settings.digest)
        super().__init__(revision.root, function)
        self._revision = revision
        self._here = os.path.realpath(workspace.root)
        self._unchanged = FileDigests(workspace.root, function, workspace.state_directory / "file-digests")

    def of(self, path: str) -> FileState:
        is_same = path not in self._revision.changed and self._is_direct(path)
        return self._unchanged.of(path) if is_same else super().of(path)

    def is_changed(self, path: str) -> bool:
        """Whether a file differs. One that cannot be read at the revision does."""
        if path in self._revision.changed:
            return True
        try:
            return not self._is_direct(path) and super().of(path) != self._unchanged.of(path)
        except MlcbuildError:
            return True

    def _is_direct(self, path: str) -> bool:
        """Whether a path leads over no symbolic link. Git tells of a link, not of the file that it leads to."""
        return os.path.realpath(f"{self._here}/{path}") == f"{self._here}/{path}"
