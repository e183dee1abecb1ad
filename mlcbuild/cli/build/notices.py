"""What a build says of its surroundings, in one line each."""

from __future__ import annotations

from pathlib import Path

from mlcbuild.cache.file_systems import file_system_of


def network_notice(root: Path) -> str:
    """Of a disk cache on a server's file system; "" for one on this machine."""
    file_system = file_system_of(root)
    if not file_system.is_network:
        return ""
    return (
        f"the disk cache {root} lies on {file_system.kind}: slower than a disk of this machine, and its locks are less "
        "sure; --disk-cache DIR puts it elsewhere"
    )
