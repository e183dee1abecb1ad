"""The workspace as it was at a revision of Git, in a temporary folder."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.errors import LocalEnvironmentError, UsageError


@dataclass(frozen=True, kw_only=True)
class Revision:
    """`root` has the files of the workspace at the commit. `changed` are the paths, relative to the workspace, of files
    that differ from those here, are new here, or are gone.

    Files that Git ignores count as unchanged: `root` has links to them.
    """

    root: Path
    commit: str
    changed: frozenset[str]


@contextmanager
def checked_out(workspace: Path, revision: str, *, output: str) -> Iterator[Revision]:
    """Write the workspace at `revision` into a folder that lives as long as the block. The repository is not changed.

    `output` is the workspace's output folder. Raises UsageError where there is no such revision.
    """
    commit = _git(
        workspace, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}", fails=True
    )
    if commit is None:
        where = (
            "" if _git(workspace, "rev-parse", "--git-dir", fails=True) else f": {workspace} is in no Git repository"
        )
        raise UsageError(f'there is no revision "{revision}"{where}', advice=("give a commit, a branch or a tag",))
    commit = commit.strip()
    prefix = (_git(workspace, "rev-parse", "--show-prefix") or "").strip()
    names = ("--name-only", "--no-renames", "-z", "--relative")
    changed = set(_listed(workspace, "diff", *names, commit))
    changed.update(_listed(workspace, "ls-files", "--others", "--exclude-standard", "-z"))
    with tempfile.TemporaryDirectory(prefix="mlcbuild-affected-") as folder:
        tree = Path(folder, "tree")
        tree.mkdir()
        index = {**os.environ, "GIT_INDEX_FILE": str(Path(folder, "index"))}
        _git(workspace, "read-tree", commit, environment=index)
        _git(workspace, "checkout-index", "--all", "--quiet", f"--prefix={tree}/", environment=index, at_top=True)
        root = tree / prefix
        for path in _listed(workspace, "ls-files", "--others", "--ignored", "--exclude-standard", "-z"):
            parts = path.split("/")
            if path.startswith(f"{output}/") or any(part.startswith(".") or part == "__pycache__" for part in parts):
                continue
            place = root / path
            if not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(workspace / path)
        yield Revision(root=root, commit=commit, changed=frozenset(changed))


def _listed(workspace: Path, *arguments: str) -> list[str]:
    return [path for path in (_git(workspace, *arguments) or "").split("\0") if path]


def _git(
    workspace: Path,
    *arguments: str,
    fails: bool = False,
    environment: dict[str, str] | None = None,
    at_top: bool = False,
) -> str | None:
    """What a command prints. With `fails`, None if it fails; else that raises LocalEnvironmentError."""
    folder = workspace
    if at_top:
        folder = Path((_git(workspace, "rev-parse", "--show-toplevel") or "").rstrip("\n"))
    try:
        ended = subprocess.run(
            ["git", *arguments], cwd=folder, env=environment, capture_output=True, check=False, stdin=subprocess.DEVNULL
        )
    except OSError as error:
        raise LocalEnvironmentError(f"git cannot be started: {error.strerror or error}") from None
    if ended.returncode:
        if fails:
            return None
        said = os.fsdecode(ended.stderr).strip()
        raise LocalEnvironmentError(f"git {arguments[0]} failed: {said}")
    return os.fsdecode(ended.stdout)
