"""The names of files in a release, and which names a file of it may have."""

from __future__ import annotations

CHECKSUMS = "SHA256SUMS"
BILL_OF_MATERIALS = "sbom.cdx.json"  # the ending is that of CycloneDX
SIGNED_PROVENANCE = "provenance.sigstore.json"  # the ending is that of Sigstore's bundles
UNSIGNED_PROVENANCE = "provenance.intoto.json"
LICENSES = "licenses"
PROVENANCES = (SIGNED_PROVENANCE, UNSIGNED_PROVENANCE)

_MOST_BYTES = 1024


def path_error(path: str) -> str:
    """Why `path` may not be that of a file of a release; "" if it may.

    It is relative, below the release's folder, with `/` between names, and printable as it is in a line of text.
    """
    if not path:
        return "is empty"
    if path.startswith("/"):
        return "is absolute"
    if any(part in ("", ".", "..") for part in path.split("/")):
        return 'has an empty name, "." or ".."'
    if "\\" in path or not all(character.isprintable() for character in path):
        return "has a character that cannot be in a line of SHA256SUMS"
    if len(path.encode(errors="replace")) > _MOST_BYTES:
        return "is too long"
    return ""


def conflict(paths: list[str]) -> str:
    """The first path that two files have, or that is a file and a folder; "" if there is none."""
    known = set()
    for path in paths:
        if path in known:
            return path
        known.add(path)
    for path in paths:
        above = path
        while "/" in above:
            above = above.rpartition("/")[0]
            if above in known:
                return above
    return ""
