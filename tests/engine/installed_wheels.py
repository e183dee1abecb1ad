"""Installs wheels of a few files as installers do, for tests of what is installed."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path


def record_hash(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def install(
    site: Path,
    name: str,
    version: str,
    files: dict[str, bytes],
    *,
    installer: str = "pip",
    extra_rows: tuple[str, ...] = (),
) -> Path:
    """Install a wheel the way an installer does; answer its metadata folder."""
    information = site / f"{name}-{version}.dist-info"
    information.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n".encode()
    everything = {
        **files,
        f"{information.name}/METADATA": metadata,
        f"{information.name}/INSTALLER": installer.encode(),
    }
    rows = [f"{information.name}/RECORD,,", *extra_rows]
    for path, data in everything.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(data)
        rows.append(f'"{path}",{record_hash(data)},{len(data)}')
    (information / "RECORD").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return information
