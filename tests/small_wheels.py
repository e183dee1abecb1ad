"""Wheels of a few lines, in a folder that pip is set to, for tests that need no index."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

NO_FILES: Mapping[str, str | bytes] = {}


def write_wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, str | bytes] = NO_FILES,
    *,
    metadata: str = "License-Expression: MIT\n",
    tag: str = "py3-none-any",
    executable: tuple[str, ...] = (),
    data: Mapping[str, str | bytes] = NO_FILES,
) -> tuple[Path, str]:
    """A wheel, and its line in a lock. `data` are files below NAME.data/."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{name.replace('-', '_')}-{version}"
    path = folder / f"{stem}-{tag}.whl"
    members: dict[str, str | bytes] = {
        **files,
        **{f"{stem}.data/{place}": content for place, content in data.items()},
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n{metadata}",
        f"{stem}.dist-info/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
        f"{stem}.dist-info/RECORD": "",
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for place, content in members.items():
            entry = zipfile.ZipInfo(place)
            entry.external_attr = (0o100755 if place in executable else 0o100644) << 16
            archive.writestr(entry, content)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return path, f"{name}=={version} \\\n    --hash=sha256:{digest}\n"


def pip_settings(folder: Path) -> dict[str, str]:
    """Variables with which pip looks for wheels in a folder alone."""
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_NO_CACHE_DIR": "1"}
