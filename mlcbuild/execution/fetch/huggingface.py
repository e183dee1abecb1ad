"""Fetches files of a Hugging Face repository at a commit. Hints: `repository`, `revision` (40 hex digits), `files`, and
`branch`, which `mlcbuild fetch --update` follows.

`files` are names or patterns (`*`, `?`, `[…]`, where `*` matches `/` too). The result is a directory; its pin is the
SHA-256 of a manifest in the form of sha256sum: a line `<SHA-256 of the file>  <path>\\n` for each file, sorted by the
paths' UTF-8 bytes. `HF_ENDPOINT` names another server. `HF_TOKEN` is sent only to that server.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
import shutil
import urllib.parse
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from mlcbuild.errors import FetchError
from mlcbuild.execution.fetch import verify
from mlcbuild.execution.fetch.http import download

_ENDPOINT = "https://huggingface.co"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REPOSITORY = re.compile(r"[\w.-]+(/[\w.-]+)?")


def run(*, directory: Path, sha256: str, hints: dict[str, Any]) -> None:
    """Download the files into `directory`, if all together have the pinned digest. Raises FetchError."""
    what = f"{verify.hint(hints, 'repository')} at {hints.get('revision') or verify.hint(hints, 'branch')}"
    verify.check_pin(sha256, what)
    directory.mkdir(parents=True, exist_ok=True)
    try:
        digests: dict[str, str] = {}
        for path in names(hints):
            target = directory / path
            target.parent.mkdir(parents=True, exist_ok=True)
            digests[path] = verify.save(download(_address(hints, path), _headers()), target)
        verify.check_digest(manifest_digest(digests), sha256, what)
    except BaseException:
        shutil.rmtree(directory)
        raise


def observe(hints: Mapping[str, Any]) -> str:
    """The pin of what is there now. Raises FetchError."""
    return manifest_digest({path: verify.digest(download(_address(hints, path), _headers())) for path in names(hints)})


def commit(hints: Mapping[str, Any]) -> str:
    """The commit that the hint `branch`, a branch or tag, names now. Raises FetchError."""
    branch = urllib.parse.quote(verify.hint(hints, "branch"), safe="")
    url = f"{_endpoint()}/api/models/{_repository(hints)}/revision/{branch}"
    try:
        found = str(json.loads(b"".join(download(url, _headers())))["sha"])
    except (ValueError, KeyError, TypeError):
        found = ""
    if not _COMMIT.fullmatch(found):
        raise FetchError(f"{url}: names no commit", advice=("check HF_ENDPOINT",))
    return found


def manifest_digest(digests: Mapping[str, str]) -> str:
    """The SHA-256 of the manifest of files, given each path's SHA-256."""
    lines = [f"{digests[path]}  {path}\n".encode() for path in sorted(digests, key=str.encode)]
    return hashlib.sha256(b"".join(lines)).hexdigest()


def names(hints: Mapping[str, Any]) -> list[str]:
    """The files to fetch, sorted. Only patterns need a request to the server. Raises FetchError."""
    wanted = [name for name in hints.get("files", ()) if isinstance(name, str)]
    if not wanted:
        raise FetchError("a fetch from Hugging Face needs at least one name or pattern in 'files'")
    patterns = [name for name in wanted if any(character in name for character in "*?[")]
    found = set(wanted) - set(patterns)
    listed = _listing(hints) if patterns else []
    for pattern in patterns:
        matches = [name for name in listed if fnmatch.fnmatchcase(name, pattern)]
        if not matches:
            raise FetchError(
                f"no file of {verify.hint(hints, 'repository')} matches {pattern!r}",
                advice=(f"it holds {', '.join(listed[:20])}",),
            )
        found.update(matches)
    for name in found:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or str(path) != name:
            raise FetchError(f"not a path inside a repository: {name!r}")
    return sorted(found, key=str.encode)


def _listing(hints: Mapping[str, Any]) -> list[str]:
    url = f"{_endpoint()}/api/models/{_repository(hints)}/revision/{_revision(hints)}"
    try:
        answer = json.loads(b"".join(download(url, _headers())))
        return sorted(str(file["rfilename"]) for file in answer["siblings"])
    except (ValueError, KeyError, TypeError):
        raise FetchError(f"{url}: not a list of files", advice=("check HF_ENDPOINT",)) from None


def _address(hints: Mapping[str, Any], path: str) -> str:
    return f"{_endpoint()}/{_repository(hints)}/resolve/{_revision(hints)}/{urllib.parse.quote(path)}"


def _endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or _ENDPOINT


def _headers() -> dict[str, str]:
    token = os.environ.get("HF_TOKEN", "").strip()
    return {"Authorization": f"Bearer {token}"} if token else {}


def _repository(hints: Mapping[str, Any]) -> str:
    repository = verify.hint(hints, "repository")
    if not _REPOSITORY.fullmatch(repository) or ".." in repository:
        raise FetchError(f"{repository!r} is not a repository", advice=('write it as "owner/name"',))
    return repository


def _revision(hints: Mapping[str, Any]) -> str:
    revision = verify.hint(hints, "revision")
    if not _COMMIT.fullmatch(revision):
        raise FetchError(
            f"{revision!r} is not a commit: a branch or tag can move",
            advice=("give the 40 hexadecimal digits of a commit",),
        )
    return revision
