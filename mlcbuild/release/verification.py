"""Checks a release with a public key alone: the signature, then every file against what was signed.

What a release says of itself is believed only after its signature was verified. A file that the signed statement does
not name, and a file that it names and that is not there, are errors as much as a file with other content.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mlcbuild.release.checksums import read_checksums
from mlcbuild.release.layout import BILL_OF_MATERIALS, CHECKSUMS, SIGNED_PROVENANCE, UNSIGNED_PROVENANCE
from mlcbuild.release.places import Listing, Place
from mlcbuild.release.signing import PublicKey, SignatureError, verify
from mlcbuild.release.statement import Subjects, read_statement

LARGEST_BUNDLE = 64 << 20
LARGEST_CHECKSUMS = 64 << 20


class ProblemKind(enum.Enum):
    """What is wrong with a release. The value is the text for people."""

    SIGNATURE = "signature"  # without a valid one nothing else is looked at
    STATEMENT = "statement"  # it is signed, and is no statement about a release
    TAMPERED = "tampered"
    MISSING = "missing"
    EXTRA = "extra"  # nobody has signed it
    INCONSISTENT = "inconsistent"  # signed files contradict one another
    UNREADABLE = "unreadable"


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong with a file. `message` continues a sentence that begins with the path."""

    kind: ProblemKind
    path: str
    message: str
    details: tuple[str, ...] = ()  # for people, one a line


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The outcome. Without a valid signature there are no `subjects`, and `problems` says why."""

    subjects: Subjects | None
    problems: tuple[Problem, ...]
    files: int
    size_bytes: int

    @property
    def is_verified(self) -> bool:
        return self.subjects is not None and not self.problems


def verify_release(
    place: Place, key: PublicKey, *, progress: Callable[[int, int], object] = lambda _done, _total: None
) -> Verification:
    """Check a release. `progress` is called with the number of bytes that were read, and of all that will be.

    Raises FileNotFoundError and NotADirectoryError where there is none, LocalEnvironmentError if it cannot be read.
    """
    listing = place.listing()
    try:
        subjects = read_statement(_signed_statement(place, listing, key))
    except SignatureError as error:
        return _refused(listing, ProblemKind.SIGNATURE, str(error), details=error.details)
    except ValueError as error:
        return _refused(listing, ProblemKind.STATEMENT, f"is signed, but {error}")
    problems = [*_files(place, listing, subjects, progress), *_checksums(place, listing, subjects)]
    return Verification(
        subjects=subjects,
        problems=tuple(sorted(problems, key=lambda each: (each.path, each.kind.value))),
        files=len(listing.sizes),
        size_bytes=sum(listing.sizes.values()),
    )


def _refused(listing: Listing, kind: ProblemKind, message: str, *, details: tuple[str, ...] = ()) -> Verification:
    problem = Problem(kind=kind, path=SIGNED_PROVENANCE, message=message, details=details)
    return Verification(
        subjects=None, problems=(problem,), files=len(listing.sizes), size_bytes=sum(listing.sizes.values())
    )


def _signed_statement(place: Place, listing: Listing, key: PublicKey) -> bytes:
    size = listing.sizes.get(SIGNED_PROVENANCE)
    if size is None:
        if kind := listing.irregular.get(SIGNED_PROVENANCE):
            raise SignatureError(f"is {kind}")
        if UNSIGNED_PROVENANCE in listing.sizes:
            raise SignatureError("is not there: the release was made without a signature")
        raise SignatureError("is not there: this is no signed release")
    if size > LARGEST_BUNDLE:
        raise SignatureError(f"is too large for a signed statement: {size:,} bytes")
    try:
        bundle = place.read(SIGNED_PROVENANCE)
    except OSError as error:
        raise SignatureError(f"cannot be read: {error.strerror or error}") from None
    return verify(bundle, key)


def _files(
    place: Place, listing: Listing, subjects: Subjects, progress: Callable[[int, int], object]
) -> Iterator[Problem]:
    total = sum(size for path, size in listing.sizes.items() if path in subjects.digests)
    done = 0

    def told(count: int) -> None:
        nonlocal done
        done += count
        progress(done, total)

    for path in sorted({*listing.sizes, *listing.irregular, *subjects.digests} - {SIGNED_PROVENANCE}):
        signed = subjects.digests.get(path)
        if kind := listing.irregular.get(path):
            yield Problem(kind=ProblemKind.TAMPERED if signed else ProblemKind.EXTRA, path=path, message=f"is {kind}")
        elif signed is None:
            yield Problem(kind=ProblemKind.EXTRA, path=path, message="was not signed")
        elif path not in listing.sizes:
            yield Problem(kind=ProblemKind.MISSING, path=path, message="was signed, and is not there")
        else:
            try:
                found = place.sha256(path, told)
            except OSError as error:
                message = f"cannot be read: {error.strerror or error}"
                yield Problem(kind=ProblemKind.UNREADABLE, path=path, message=message)
                continue
            if found != signed:
                message = f"has the SHA-256 {found[:12]}…; signed is {signed[:12]}…"
                yield Problem(kind=ProblemKind.TAMPERED, path=path, message=message)


def _checksums(place: Place, listing: Listing, subjects: Subjects) -> Iterator[Problem]:
    """Whether the files that describe the release are signed, and SHA256SUMS says what the statement says."""
    for path in (BILL_OF_MATERIALS, CHECKSUMS):
        if path not in subjects.digests:
            yield Problem(kind=ProblemKind.INCONSISTENT, path=path, message="is not in the signed statement")
    if CHECKSUMS not in subjects.digests or CHECKSUMS not in listing.sizes:
        return
    if listing.sizes[CHECKSUMS] > LARGEST_CHECKSUMS:
        yield Problem(kind=ProblemKind.INCONSISTENT, path=CHECKSUMS, message="is too large")
        return
    try:
        listed = read_checksums(place.read(CHECKSUMS))
    except OSError:
        return  # It is told as unreadable.
    except ValueError as error:
        yield Problem(kind=ProblemKind.INCONSISTENT, path=CHECKSUMS, message=f"cannot be used: {error}")
        return
    signed = {path: digest for path, digest in subjects.digests.items() if path != CHECKSUMS}
    wrong = sorted(path for path in {*listed, *signed} if listed.get(path) != signed.get(path))
    if wrong:
        more = f" and {len(wrong) - 1:,} more" if len(wrong) > 1 else ""
        message = f"differs from the signed statement in {wrong[0]}{more}"
        yield Problem(kind=ProblemKind.INCONSISTENT, path=CHECKSUMS, message=message)
