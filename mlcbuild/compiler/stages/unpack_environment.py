"""`wheels` → `environment` (a folder that Python can import from) and `contents` (environment.json: what is in it).

It unpacks and runs nothing: no code of a wheel, no pip. So the same wheels give the same bytes everywhere. Scripts that
an installer would write for entry points are not made; `python -m` starts what they start.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlcbuild.compiler.environments.wheel import Wheel, files_of, read_wheel, unfit, unmet
from mlcbuild.errors import StageError

_SHOWN = 20


def run(
    *,
    wheels: tuple[Path, ...],
    environment: Path,
    contents: Path,
    locked: Mapping[str, str],
    accepted: Sequence[str],
    without: Sequence[str],
) -> None:
    """`locked` maps names to versions, as the lock file has them. Raises StageError for wheels that are not those, do
    not fit this Python or one another, or have a licence that SPDX does not list and that is not among `accepted`.
    What is in `without` may be missing.
    """
    found = [read_wheel(file) for file in wheels]
    _check(found, locked, accepted, frozenset(without))
    places: dict[str, str] = {}
    for wheel in found:
        _unpack(wheel, environment, places)
    description = {
        "version": 1,
        "distributions": [
            {"name": wheel.name, "version": wheel.version, "license": wheel.license.partition("\n")[0]}
            for wheel in sorted(found, key=lambda each: each.name)
        ],
    }
    contents.write_text(json.dumps(description, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _check(
    wheels: Sequence[Wheel], locked: Mapping[str, str], accepted: Sequence[str], without: frozenset[str]
) -> None:
    versions = {wheel.name: wheel.version for wheel in wheels}
    problems = []
    for name, version in locked.items():
        pinned = {each.file.name: each for each in wheels}[f"{name}-{version}.whl"]
        if (pinned.name, pinned.version) != (name, version):
            problems.append(
                f"the wheel that {name} {version} is pinned to is {pinned.name} {pinned.version}: correct its hash"
            )
    for wheel in wheels:
        if why := unfit(wheel):
            problems.append(f"the wheel of {wheel.name} {wheel.version} does not fit: {why}")
        problems += unmet(wheel, versions, without)
        problems += [
            f"{wheel.name} {wheel.version} has the licence {reference}, which is not accepted: read it, and add it to "
            "accept_license"
            for reference in wheel.license_references
            if reference not in accepted
        ]
    if problems:
        more = len(problems) - _SHOWN
        advice = (*problems[:_SHOWN], *([f"… and {more} more"] if more > 0 else []))
        raise StageError("these wheels make no environment", advice=advice)


def _unpack(wheel: Wheel, environment: Path, places: dict[str, str]) -> None:
    """`places` says which wheel has written a file already, and is added to."""
    with zipfile.ZipFile(wheel.file) as archive:
        for file in files_of(wheel, archive):
            target = environment / file.place
            if (other := places.setdefault(file.place, wheel.name)) != wheel.name:
                if target.read_bytes() != archive.read(file.entry):
                    raise StageError(f"{other} and {wheel.name} both have {file.place}, with different content")
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(file.entry) as source, target.open("wb") as out:
                shutil.copyfileobj(source, out, 1 << 20)
            target.chmod(0o755 if file.is_executable else 0o644)
