"""The commit of the workspace, for the provenance of a release."""

from __future__ import annotations

import os
import subprocess
import urllib.parse
from pathlib import Path

from mlcbuild.release.contents import RevisionInfo


def revision_of(workspace: Path) -> RevisionInfo | None:
    """The commit that is checked out; None outside of Git, or without Git."""
    commit = _git(workspace, "rev-parse", "--verify", "--quiet", "HEAD")
    if not commit:
        return None
    changed = _git(workspace, "status", "--porcelain", "--untracked-files=no", "--", ".")
    return RevisionInfo(
        commit=commit, uri=_address(_git(workspace, "remote", "get-url", "origin") or ""), is_changed=bool(changed)
    )


def _address(remote: str) -> str:
    """SPDX's form of a repository's address, without credentials: `git+https://host/path`; "" for a folder."""
    if "://" not in remote:
        host, colon, path = remote.partition(":")
        if not colon or "/" in host:
            return ""
        return f"git+ssh://{host}/{path}"
    parts = urllib.parse.urlsplit(remote)
    if parts.scheme == "file":
        return ""
    host = parts.netloc.rpartition("@")[2]
    return f"git+{parts.scheme}://{host}{parts.path}"


def _git(workspace: Path, *arguments: str) -> str | None:
    try:
        ended = subprocess.run(
            ["git", *arguments], cwd=workspace, capture_output=True, check=False, stdin=subprocess.DEVNULL
        )
    except OSError:
        return None
    return None if ended.returncode else os.fsdecode(ended.stdout).strip()
