"""Fetches a wheel of a pinned package. Hints: `package`, `version`.

pip finds and downloads the wheel with the user's own configuration: index, proxies, credentials, a folder of wheels. It
is told the pin, and so takes that file alone among those of a version. Source distributions are never used, because pip
would run their code.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mlcbuild.errors import FetchError
from mlcbuild.execution.fetch import verify
from mlcbuild.execution.fetch.progress import note

_CHUNK_BYTES = 1 << 20


def run(*, file: Path, sha256: str, name: str, hints: dict[str, Any]) -> None:
    """Write the wheel to `file`, if it has the pinned digest. Raises FetchError."""
    verify.check_pin(sha256, name)
    found = chunks(hints, sha256=sha256, directory=file.parent)
    verify.receive(found, file=file, sha256=sha256, what=f"the wheel of {requirement(hints)}")


def chunks(hints: Mapping[str, Any], *, sha256: str = "", directory: Path | None = None) -> Iterator[bytes]:
    """The bytes of the wheel. Meanwhile it is in `directory`. Raises FetchError."""
    with (
        tempfile.TemporaryDirectory(prefix=".wheel-", dir=directory) as folder,
        download(requirement(hints), Path(folder), sha256=sha256).open("rb") as stream,
    ):
        while chunk := stream.read(_CHUNK_BYTES):
            yield chunk


def requirement(hints: Mapping[str, Any]) -> str:
    """`package==version`. Raises FetchError for anything that pip would take for more than that."""
    package, version = verify.hint(hints, "package"), verify.hint(hints, "version")
    if package.startswith("-") or any(character.isspace() or character in ";,@/" for character in package + version):
        raise FetchError(f"not a package and version: {package!r}, {version!r}")
    return f"{package}=={version}"


def download(wanted: str, folder: Path, *, sha256: str = "") -> Path:
    """The wheel, in `folder`: the one with the digest, where there is one. Raises FetchError."""
    command = [sys.executable, "-P", "-m", "pip", "download", "--dest", str(folder)]
    command += ["--no-deps", "--only-binary", ":all:", "--no-input", "--progress-bar", "off"]
    command += ["--disable-pip-version-check", "--quiet"]
    if sha256:
        lock = folder / "requirements.txt"
        lock.write_text(f"{wanted} --hash=sha256:{sha256}\n", encoding="utf-8")
        command += ["--require-hashes", "--requirement", str(lock)]
    else:
        command.append(wanted)
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    output = done.stdout.decode(errors="replace")
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        note(output)
        raise FetchError(
            f"pip could not download {wanted}: {_reason(output, done.returncode)}",
            advice=("pip uses your own configuration (`pip config list`); only wheels are used",),
        )
    return wheels[0]


def _reason(output: str, code: int) -> str:
    if "DO NOT MATCH THE HASHES" in output:
        return "no wheel of it has the pinned SHA-256"
    lines = [line.removeprefix("ERROR: ") for line in output.splitlines() if line.startswith("ERROR:")]
    return lines[-1] if lines else f"pip ended with exit code {code}"
