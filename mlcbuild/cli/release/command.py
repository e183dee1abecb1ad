"""`mlcbuild release`: gathers files from the caches, and writes them with what describes and signs them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.output.slow_progress import SlowProgress, slow_progress
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.cli.release.gathering import ReleaseRequest, gathering
from mlcbuild.cli.release.keys import KEY_VARIABLE, signing_key
from mlcbuild.cli.release.output import Written, print_not_cached, print_planned, print_released, warn_of_unlicensed
from mlcbuild.errors import UsageError
from mlcbuild.release.folder_destination import FolderDestination
from mlcbuild.release.making import MadeRelease, make_release
from mlcbuild.release.signing import MAKE_A_KEY

if TYPE_CHECKING:
    from mlcbuild.release.bucket import Bucket

    Destination = FolderDestination | Bucket

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s]+")


@dataclass(frozen=True, kw_only=True)
class ReleaseOrder:
    """What to release, where to, and how. `to` is a folder or `s3://bucket/prefix`."""

    request: ReleaseRequest
    to: str
    key: Path | None = None
    unsigned: bool = False
    builds: bool = False


def make_and_write(order: ReleaseOrder, output: OutputFormat, options: GlobalOptions) -> ExitCode:
    """Release, and print what was written. Returns WOULD_RUN if an action has no cached result.

    Raises MlcbuildError as a build does before it begins, and for a place that cannot take the release.
    """
    builder = order.request.builder
    if builder and not _URI.fullmatch(builder):
        raise UsageError(
            f'--builder: "{builder}" is not a URI', advice=("give one, such as https://ci.example.com/job",)
        )
    key = signing_key(order.key, options.environment)
    if key is not None and order.unsigned:
        raise UsageError("--unsigned and a signing key contradict each other")
    if key is None and not order.unsigned and not order.request.only_plans:
        raise UsageError(
            "a release is signed, and no key is given",
            advice=(
                f"give --key FILE, or set {KEY_VARIABLE}",
                f"a key is made by: {MAKE_A_KEY}",
                "--unsigned releases without a signature",
            ),
        )
    with _destination(order.to) as destination:
        if order.builds and not order.request.only_plans:
            code = _build(order.request, options)
            if code is not ExitCode.OK:
                return code
        with slow_progress(options) as progress, gathering(order.request, options, progress) as gathered:
            progress.close()
            if gathered.not_cached or gathered.lost:
                print_not_cached(gathered, output, options)
                return ExitCode.WOULD_RUN
            warn_of_unlicensed(gathered, options)
            if gathered.contents is None:
                print_planned(gathered, destination.address, output, options)
                return ExitCode.OK
            made = make_release(gathered.contents, key)
            written = _write(destination, made, progress)
            progress.close()
            print_released(made, written, gathered, output, options)
    return ExitCode.OK


@contextlib.contextmanager
def _destination(to: str) -> Iterator[Destination]:
    if not to.startswith("s3://"):
        if "://" in to:
            raise UsageError(f"--to: {to} is neither a folder nor s3://bucket/prefix")
        yield FolderDestination(Path(to))
        return
    from mlcbuild.release.bucket import Bucket

    bucket = Bucket(to)
    try:
        yield bucket
    finally:
        bucket.close()


def _write(destination: Destination, made: MadeRelease, progress: SlowProgress) -> Written:
    if destination.holds(made.files, is_same_provenance=made.is_same_provenance):
        return Written(address=destination.address, was_there=True)
    done = 0

    def told(count: int) -> None:
        nonlocal done
        done += count
        progress("writing", done, made.size_bytes)

    kept = destination.write(made.files, told=told)
    return Written(address=destination.address, kept=kept)


def _build(request: ReleaseRequest, options: GlobalOptions) -> ExitCode:
    from mlcbuild.cli.build.request import BuildRequest
    from mlcbuild.cli.build.session import run_build

    built = BuildRequest(
        patterns=request.patterns,
        configuration=request.configuration,
        overrides=request.overrides,
        disk_cache=request.disk_cache,
        remote=request.remote,
        quiet_if_current=True,
    )
    return run_build(built, options).exit_code
