"""`mlcbuild verify`: checks a release with a public key alone, without a workspace."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.output import text
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.slow_progress import slow_progress
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.cli.release.keys import public_key
from mlcbuild.errors import LocalEnvironmentError, UsageError
from mlcbuild.figures import byte_count
from mlcbuild.release.places import Folder, Place
from mlcbuild.release.signing import PublicKey
from mlcbuild.release.verification import Verification, verify_release


def verify_and_print(address: str, key_path: Path, output: OutputFormat, options: GlobalOptions) -> ExitCode:
    """Verify, and print what was found. Returns NOT_VERIFIED if anything is wrong.

    Raises UsageError if there is no such place or key, LocalEnvironmentError if it cannot be read.
    """
    key = public_key(key_path)
    with _place(address) as place, slow_progress(options) as progress:
        try:
            found = verify_release(place, key, progress=lambda done, total: progress("verifying", done, total))
        except (FileNotFoundError, NotADirectoryError):
            raise UsageError(f"there is no release in {address}") from None
        except OSError as error:
            raise LocalEnvironmentError(f"{address} cannot be read: {error.strerror or error}") from None
    code = ExitCode.OK if found.is_verified else ExitCode.NOT_VERIFIED
    if output is OutputFormat.JSON:
        print_json(_document(found, place, key, code))
    else:
        _print(found, key, options)
    return code


@contextlib.contextmanager
def _place(address: str) -> Iterator[Place]:
    if not address.startswith("s3://"):
        yield Folder(Path(address))
        return
    from mlcbuild.release.bucket import Bucket

    bucket = Bucket(address)
    try:
        yield bucket
    finally:
        bucket.close()


def _document(found: Verification, place: Place, key: PublicKey, code: ExitCode) -> dict[str, object]:
    subjects = found.subjects
    return {
        "exit_code": int(code),
        "verified": found.is_verified,
        "release": place.address,
        "key": key.fingerprint,
        "name": subjects.release if subjects else "",
        "version": subjects.version if subjects else "",
        "targets": list(subjects.targets) if subjects else [],
        "builder": subjects.builder if subjects else "",
        "files": found.files,
        "bytes": found.size_bytes,
        "problems": [
            {
                "kind": problem.kind.value,
                "path": problem.path,
                "message": problem.message,
                "details": list(problem.details),
            }
            for problem in found.problems
        ],
    }


def _print(found: Verification, key: PublicKey, options: GlobalOptions) -> None:
    style = options.style(sys.stderr)
    for problem in found.problems:
        told = text.printable(f"{problem.path} {problem.message}")
        lines = [
            f"{style.error(f'{problem.kind.value}:')} {told}",
            *(f"  {text.printable(each)}" for each in problem.details),
        ]
        options.tell(lines)
    if found.subjects is None:
        print("not verified: nothing in this release can be believed")
        return
    if found.problems:
        counts = Counter(problem.kind.value for problem in found.problems)
        print("not verified: " + ", ".join(f"{count:,} {kind}" for kind, count in counts.items()))
        return
    subjects = found.subjects
    named = f"{subjects.release} {subjects.version}".rstrip()
    counted = f"{text.plural(found.files, 'file')}, {byte_count(found.size_bytes)}"
    print(f"verified: {text.printable(named)}, {counted}")
    print(f"signed by {key.fingerprint}")
