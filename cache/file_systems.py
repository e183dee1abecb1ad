"""The kind of file system that a path is on, and whether it is a network file system."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

MOUNTS = Path("/proc/self/mounts")
_NETWORK = frozenset(
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "9p",
        "afs",
        "ceph",
        "lustre",
        "gpfs",
        "beegfs",
        "glusterfs",
        "ocfs2",
        "gfs2",
        "fuse.sshfs",
        "fuse.glusterfs",
        "fuse.ceph",
        "fuse.s3fs",
        "fuse.gcsfuse",
        "fuse.juicefs",
    ]
)
_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSystem:
    """A mounted file system. `kind` is the kernel's name for it, or "unknown"."""

    kind: str
    mount_point: str

    @property
    def is_network(self) -> bool:
        """Whether it is on a server. Locks and renames are slower and less reliable there."""
        return self.kind in _NETWORK


def file_system_of(path: Path) -> FileSystem:
    """The file system of `path`, which need not exist."""
    real = path.resolve()
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        lines = []
    best = FileSystem(kind="unknown", mount_point="")
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        mount_point = _ESCAPED.sub(lambda found: chr(int(found[1], 8)), fields[1])
        # A later mount on the same mount point hides the earlier one.
        if len(mount_point) >= len(best.mount_point) and real.is_relative_to(mount_point):
            best = FileSystem(kind=fields[2], mount_point=mount_point)
    return best
