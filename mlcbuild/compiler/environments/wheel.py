"""A wheel: its metadata, where its files belong, and whether it fits (PyPA's "Binary distribution format", 1.0)."""

from __future__ import annotations

import email.parser
import email.policy
import re
import stat
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from pathlib import Path, PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import parse_tag, sys_tags
from packaging.utils import canonicalize_name

from mlcbuild.errors import StageError

_FORMAT = "1"
_PROPRIETARY = "License :: Other/Proprietary License"
_SPREAD = {"purelib": "", "platlib": "", "data": "", "scripts": "bin/", "headers": "include/"}
_LIBRARY = re.compile(r".*\.so(\.[0-9]+)*")
_REFERENCE = re.compile(r"LicenseRef-[A-Za-z0-9.-]+")
_NOT_IN_A_REFERENCE = re.compile(r"[^A-Za-z0-9.-]+")


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """`tags` are those of its WHEEL file. `license` is what its metadata say, in their words."""

    file: Path
    name: str
    version: str
    tags: tuple[str, ...]
    requires_python: str
    requirements: tuple[str, ...]
    license: str
    is_proprietary: bool

    @property
    def license_references(self) -> tuple[str, ...]:
        """The licences that SPDX does not list, as LicenseRef-NAME."""
        named = tuple(sorted(set(_REFERENCE.findall(self.license))))
        if named or not self.is_proprietary:
            return named
        text = _NOT_IN_A_REFERENCE.sub("-", self.license.partition("\n")[0]).strip("-.")
        return (f"LicenseRef-{text or 'Proprietary'}",)


def read_wheel(file: Path) -> Wheel:
    """Raises StageError for a file that is no wheel."""
    try:
        with zipfile.ZipFile(file) as archive:
            # Wheels that carry others, as setuptools does, have such folders further down as well.
            (folder,) = {path.parts[0] for path in map(PurePosixPath, archive.namelist()) if _is_form(path)}
            form = _message(archive.read(f"{folder}/WHEEL"))
            metadata = _message(archive.read(f"{folder}/METADATA"))
    except (zipfile.BadZipFile, KeyError, ValueError, NotImplementedError) as error:
        raise StageError(f"{file.name} is no wheel: {error}") from error
    version = str(form.get("Wheel-Version", ""))
    if version.partition(".")[0] != _FORMAT:
        raise StageError(f'{file.name} has the format "{version}", which is unknown here')
    classifiers = metadata.get_all("Classifier", [])
    listed = [each.rpartition(" :: ")[2] for each in classifiers if each.startswith("License ::")]
    stated = metadata.get("License-Expression") or metadata.get("License") or "; ".join(listed)
    return Wheel(
        file=file,
        name=canonicalize_name(str(metadata["Name"])),
        version=str(metadata["Version"]),
        tags=tuple(form.get_all("Tag", [])),
        requires_python=str(metadata.get("Requires-Python", "")),
        requirements=tuple(map(str, metadata.get_all("Requires-Dist", []))),
        license=str(stated).strip(),
        is_proprietary=_PROPRIETARY in classifiers,
    )


def _is_form(path: PurePosixPath) -> bool:
    return len(path.parts) == 2 and path.parts[0].endswith(".dist-info") and path.parts[1] == "WHEEL"


def unfit(wheel: Wheel) -> str:
    """Why this Python cannot use a wheel; "" if it can."""
    version = ".".join(map(str, sys.version_info[:3]))
    try:
        if wheel.requires_python and version not in SpecifierSet(wheel.requires_python):
            return f"it is for Python {wheel.requires_python}, and this is {version}"
    except InvalidSpecifier:
        return f"it asks for a Python {wheel.requires_python!r}, which says nothing"
    fitting = set(sys_tags())
    if not any(tag in fitting for written in wheel.tags for tag in parse_tag(written)):
        return f"it is for {', '.join(wheel.tags)}, which this machine's Python {version} is not"
    return ""


def unmet(wheel: Wheel, versions: dict[str, str], without: frozenset[str] = frozenset()) -> list[str]:
    """What a wheel needs that is neither among `versions` (name → version) nor `without`. Extras do not count."""
    found = []
    for text in wheel.requirements:
        try:
            needed = Requirement(text)
        except InvalidRequirement:
            continue  # Metadata of old wheels; pip would refuse them, and their pins were made with pip.
        if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
            continue
        version = versions.get(canonicalize_name(needed.name))
        if version is None and canonicalize_name(needed.name) in without:
            continue
        if version is None:
            found.append(f"{wheel.name} {wheel.version} needs {needed.name}{needed.specifier}, which is not there")
        elif not needed.specifier.contains(version, prereleases=True):
            found.append(f"{wheel.name} {wheel.version} needs {needed.name}{needed.specifier}, and there is {version}")
    return found


@dataclass(frozen=True, kw_only=True)
class WheelFile:
    """A file of a wheel: its place in the environment, and its entry in the archive."""

    place: str
    entry: zipfile.ZipInfo
    is_executable: bool


def files_of(wheel: Wheel, archive: zipfile.ZipFile) -> Iterator[WheelFile]:
    """All files of an open wheel, by their names. Raises StageError for a name that leads out of the environment.

    A shared library is never executable: it is loaded, and files that can be executed are copied for each action.
    """
    for entry in sorted(archive.infolist(), key=lambda each: each.filename):
        if entry.is_dir():
            continue
        place = _place(entry.filename)
        if not place or place.startswith("/") or any(part in ("", ".", "..") for part in place.split("/")):
            raise StageError(f"{wheel.file.name} holds {entry.filename!r}, which is no place in an environment")
        executable = bool(entry.external_attr >> 16 & stat.S_IXUSR) or place.startswith("bin/")
        is_library = _LIBRARY.fullmatch(place) is not None
        yield WheelFile(place=place, entry=entry, is_executable=executable and not is_library)


def _place(name: str) -> str:
    """Where a file belongs, by its name in the wheel; "" for a kind of data that the format does not have."""
    first, _, rest = name.partition("/")
    if not first.endswith(".data"):
        return name
    kind, _, inside = rest.partition("/")
    folder = _SPREAD.get(kind)
    return "" if folder is None or not inside else f"{folder}{inside}"


def _message(content: bytes) -> Message:
    return email.parser.BytesParser(policy=email.policy.compat32).parsebytes(content)
