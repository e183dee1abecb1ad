"""Lock files of Python environments: pip's requirements with one version and one hash each.

::

    onnx==1.23.2 \\
        --hash=sha256:c03ecf6b835d136108eeaeeafbd0026fc7b3cf98661409fbc6b63d5a29361348

`python -m mlcbuild.rules.environment_lock PACKAGE==VERSION …` writes one for the Python that runs it, with everything
that the packages need.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from mlcbuild.errors import Location, WorkspaceError

_PIN = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[[^\]]*\])?\s*==\s*(?P<version>[A-Za-z0-9][\w.!+-]*)(?P<rest>.*)"
)
_HASH = re.compile(r"--hash[= ](?P<kind>\w+):(?P<digest>\S+)")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SEPARATORS = re.compile(r"[-_.]+")
_FORM = ("write NAME==VERSION --hash=sha256:DIGEST, with the digest of one wheel",)


@dataclass(frozen=True, kw_only=True)
class LockedWheel:
    """`name` is normalized, as PyPA's "Names and normalization" has it."""

    name: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """What the wheel is called in a build: its tags are not known before it is there."""
        return f"{self.name}-{self.version}.whl"


def normalized(name: str) -> str:
    return _SEPARATORS.sub("-", name).lower()


def read_lock(text: str, path: str) -> tuple[tuple[LockedWheel, ...], tuple[WorkspaceError, ...]]:
    """The wheels of a lock file, sorted by name, and what is wrong with it, line by line."""
    found: dict[str, LockedWheel] = {}
    errors: list[WorkspaceError] = []
    for number, line in _logical_lines(text):
        try:
            wheel = _wheel(line)
            if wheel.name in found:
                raise WorkspaceError(f"{wheel.name} a second time", advice=("leave one of them out",))
            found[wheel.name] = wheel
        except WorkspaceError as error:
            location = Location(path=path, line=number)
            errors.append(WorkspaceError(error.message, location=location, advice=error.advice))
    if not found and not errors:
        errors.append(WorkspaceError("no wheel", location=Location(path=path), advice=_FORM))
    return tuple(sorted(found.values(), key=lambda wheel: wheel.name)), tuple(errors)


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Lines without comments, joined where they end in a backslash, with the number of the first."""
    found: list[tuple[int, str]] = []
    begun = 0
    for number, raw in enumerate(text.splitlines(), start=1):
        line = re.sub(r"(^|\s)#.*", "", raw).strip()
        goes_on = line.endswith("\\")
        line = line.removesuffix("\\").strip()
        if begun:
            found[-1] = (found[-1][0], f"{found[-1][1]} {line}".strip())
        elif line:
            found.append((number, line))
        begun = number if goes_on and (begun or line) else 0
    return found


def _wheel(line: str) -> LockedWheel:
    if line.startswith("-"):
        raise WorkspaceError(
            f'the option "{line.partition(" ")[0]}" in a lock file',
            advice=("a lock names wheels alone; where pip looks for them is set in pip's own configuration",),
        )
    pin = _PIN.fullmatch(line)
    if pin is None:
        raise WorkspaceError(f'"{line}" is not one version of a package', advice=_FORM)
    name, rest = pin["name"], pin["rest"]
    if rest.strip().startswith(";"):
        raise WorkspaceError(
            f"{name} has a condition", advice=("a lock is that of one Python and one kind of machine: leave it out",)
        )
    hashes = list(_HASH.finditer(rest))
    if _HASH.sub("", rest).strip():
        raise WorkspaceError(f'"{_HASH.sub("", rest).strip()}" of {name} is unknown', advice=_FORM)
    if len(hashes) != 1:
        raise WorkspaceError(
            f"{name} has {len(hashes) or 'no'} hashes",
            advice=(
                "a wheel is a pinned file, and so a lock has the hash of the one that is installed",
                f"`python -m mlcbuild.rules.environment_lock {name}=={pin['version']}` writes it",
            ),
        )
    kind, digest = hashes[0]["kind"], hashes[0]["digest"]
    if kind != "sha256" or not _SHA256.fullmatch(digest):
        raise WorkspaceError(f'"{kind}:{digest}" of {name} is not a SHA-256', advice=_FORM)
    return LockedWheel(name=normalized(name), version=pin["version"], sha256=digest)


def resolve(requirements: Sequence[str]) -> str:
    """The lock of what pip would install for these requirements. Nothing is installed. Raises WorkspaceError."""
    command = [sys.executable, "-P", "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
    command += ["--only-binary", ":all:", "--no-input", "--disable-pip-version-check", "--report", "-", *requirements]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line.removeprefix("ERROR: ") for line in done.stderr.splitlines() if line.startswith("ERROR:")]
        raise WorkspaceError(f"pip finds no wheels for {' '.join(requirements)}: {lines[-1] if lines else done.stderr}")
    pins = {}
    for item in json.loads(done.stdout)["install"]:
        name = normalized(item["metadata"]["name"])
        digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
        pins[name] = f"{name}=={item['metadata']['version']} \\\n    --hash=sha256:{digest}\n"
    return "".join(pins[name] for name in sorted(pins))


if __name__ == "__main__":
    sys.stdout.write(resolve(sys.argv[1:]))
