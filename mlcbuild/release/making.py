"""The files of a release in the order in which they are written: contents, what describes them, then the provenance."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from mlcbuild.release.bill_of_materials import bill_of_materials
from mlcbuild.release.checksums import checksums
from mlcbuild.release.contents import ReleaseContents, ReleaseFile
from mlcbuild.release.layout import BILL_OF_MATERIALS, CHECKSUMS, SIGNED_PROVENANCE, UNSIGNED_PROVENANCE
from mlcbuild.release.signing import PrivateKey, SignatureError, sign, verify
from mlcbuild.release.statement import statement


@dataclass(frozen=True, kw_only=True)
class MadeRelease:
    """All files; the last one is the provenance. `key` is None for a release without a signature."""

    files: tuple[ReleaseFile, ...]
    statement: bytes
    key: PrivateKey | None

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def is_same_provenance(self, there: bytes) -> bool:
        """Whether a provenance that lies somewhere says the same, and is signed with the same key."""
        if self.key is None:
            return there == self.statement
        try:
            return verify(there, self.key.public) == self.statement
        except SignatureError:
            return False


def make_release(contents: ReleaseContents, key: PrivateKey | None) -> MadeRelease:
    """Raises LocalEnvironmentError without the libraries of the extra `release`."""
    described = _file(BILL_OF_MATERIALS, bill_of_materials(contents))
    summed = _file(CHECKSUMS, checksums([*contents.files, described]))
    subjects = (*contents.files, described, summed)
    said = statement(contents, subjects)
    signed = _file(SIGNED_PROVENANCE, sign(said, key)) if key else _file(UNSIGNED_PROVENANCE, said)
    return MadeRelease(files=(*subjects, signed), statement=said, key=key)


def _file(path: str, data: bytes) -> ReleaseFile:
    return ReleaseFile(path=path, sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data), data=data)
