"""The endings of files of logits, which say their form."""

from __future__ import annotations

from pathlib import Path

from mlcbuild.errors import UsageError

NPY, NPZ = ".npy", ".npz"


def check_logits_path(path: Path, *, several: bool) -> None:
    """Raises UsageError for an ending that is none of the forms, or one that holds one prompt where there are
    `several`."""
    known = (NPZ,) if several else (NPY, NPZ)
    if path.suffix not in known:
        wanted = " or ".join(known)
        reason = "which holds one prompt; of a batch it is" if path.suffix == NPY else "and it is"
        raise UsageError(f"the file of logits ends in {path.suffix or 'nothing'}, {reason} {wanted}")
