"""The note about a disk cache on a network file system."""

from __future__ import annotations

from pathlib import Path

from mlcbuild.cache.file_systems import file_system_of


def network_cache_notice(root: Path) -> str:
    """The note about a disk cache on a network file system; "" for a local one."""
    file_system = file_system_of(root)
    if not file_system.is_network:
        return ""
    return (
        f"the disk cache {root} is on {file_system.kind}: slower than a local disk, with less reliable locks; "
        "use another folder with --disk-cache DIR"
    )
