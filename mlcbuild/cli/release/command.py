"""`mlcbuild release`: gathers files from the caches, and writes them with what describes and signs them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.console.not_cached import not_cached_documents, not_cached_lines
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.output import text
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.slow_progress import SlowProgress, slow_progress
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.cli.release.gathering import Gathered, ReleaseRequest, gathering
from mlcbuild.cli.release.keys import KEY_VARIABLE, signing_key
from mlcbuild.engine.build_events import ActionFinished, ActionStatus, Cause
from mlcbuild.engine.survey import SurveyedAction
from mlcbuild.errors import UsageError
from mlcbuild.figures import byte_count
from mlcbuild.release.folder_destination import FolderDestination
from mlcbuild.release.making import MadeRelease, make_release
from mlcbuild.release.signing import MAKE_A_KEY

if TYPE_CHECKING:
    from mlcbuild.release.bucket import Bucket

    Destination = FolderDestination | Bucket


@dataclass(frozen=True, kw_only=True)
class ReleaseOrder:
    """What to release, where to, and how. `to` is a folder or `s3://bucket/prefix`."""

    request: ReleaseRequest
    to: str
    key: Path | None = None
    unsigned: bool = False
    builds: bool = False
    dry_run: bool = False


def make_and_write(order: ReleaseOrder, output: OutputFormat, options: GlobalOptions) -> ExitCode:
    """Release, and print what was written. Returns WOULD_RUN if an action has no cached result.

    Raises MlcbuildError as a build does before it begins, and for a place that cannot take the release.
    """
    key = signing_key(order.key, options.environment)
    if key is not None and order.unsigned:
        raise UsageError("--unsigned and a signing key contradict each other")
    if key is None and not order.unsigned and not order.dry_run:
        raise UsageError(
            "a release is signed, and no key is given",
            advice=(
                f"give --key FILE, or set {KEY_VARIABLE}; a key is made by: {MAKE_A_KEY}",
                "--unsigned releases without a signature",
            ),
        )
    with _destination(order.to) as destination:
        if order.builds and not order.dry_run:
            code = _build(order.request, options)
            if code is not ExitCode.OK:
                return code
        with slow_progress(options) as progress, gathering(order.request, options) as gathered:
            if gathered.contents is None:
                progress.close()
                _print_not_cached(gathered, output, options)
                return ExitCode.WOULD_RUN
            _warn(gathered, options)
            made = make_release(gathered.contents, key)
            if order.dry_run:
                _print(order, made, _Written(address=destination.address), gathered, output)
                return ExitCode.OK
            written = _write(destination, made, progress)
            progress.close()
            _print(order, made, written, gathered, output)
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


@dataclass(frozen=True, kw_only=True)
class _Written:
    """`kept`: files that an interrupted release had written; `was_there`: this very release was there already."""

    address: str
    kept: int = 0
    was_there: bool = False
    is_written: bool = False


def _write(destination: Destination, made: MadeRelease, progress: SlowProgress) -> _Written:
    if destination.holds(made.files, is_same_provenance=made.is_same_provenance):
        return _Written(address=destination.address, was_there=True)
    done = 0

    def told(count: int) -> None:
        nonlocal done
        done += count
        progress("writing", done, made.size_bytes)

    kept = destination.write(made.files, told=told)
    return _Written(address=destination.address, kept=kept, is_written=True)


def _build(request: ReleaseRequest, options: GlobalOptions) -> ExitCode:
    from mlcbuild.cli.build.session import BuildRequest, run_build

    built = BuildRequest(
        patterns=request.patterns,
        configuration=request.configuration,
        overrides=request.overrides,
        disk_cache=request.disk_cache,
        remote=request.remote,
        quiet_if_current=True,
    )
    return run_build(built, options).exit_code


def _warn(gathered: Gathered, options: GlobalOptions) -> None:
    style = options.style(sys.stderr)
    for label in gathered.unlicensed:
        print(f"{style.warning('warning:')} {label} has no licence: its attribute and its source say nothing of one",
              file=sys.stderr)  # fmt: skip
        print('  write license = "…", an SPDX expression; --require-license makes this an error', file=sys.stderr)


def _print_not_cached(gathered: Gathered, output: OutputFormat, options: GlobalOptions) -> None:
    events = [_event(each) for each in gathered.not_cached]
    if output is OutputFormat.JSON:
        print_json(
            {
                "exit_code": int(ExitCode.WOULD_RUN),
                "not_cached": not_cached_documents(events),
                "lost": dict(gathered.lost),
            }
        )
        return
    style = options.style(sys.stderr)
    lines = not_cached_lines(events, style=style)
    for label, count in gathered.lost.items():
        gone = f"{text.plural(count, 'file')} of its results {'is' if count == 1 else 'are'} in no cache any more"
        lines.append(f"{style.error('not cached:')} {label}: {gone}")
    lines.append("nothing was released: --build builds first what has no cached result")
    print(*lines, sep="\n", file=sys.stderr)


def _event(surveyed: SurveyedAction) -> ActionFinished:
    """The action as a build `--from-cache-only` reports it."""
    action = surveyed.action
    cause = Cause.FIRST if surveyed.previous_key is None else Cause.CHANGED
    if surveyed.key is not None and surveyed.key == surveyed.previous_key:
        cause = Cause.NO_RESULT
    if surveyed.never_kept:
        cause = Cause.NEVER_CACHED
    return ActionFinished(
        identifier=action.identifier,
        mnemonic=action.mnemonic,
        owner=action.owner,
        status=ActionStatus.NOT_CACHED,
        start=0.0,
        time=0.0,
        message=surveyed.message,
        cause=None if surveyed.message else cause,
        title=action.title,
    )


def _print(order: ReleaseOrder, made: MadeRelease, written: _Written, gathered: Gathered, output: OutputFormat) -> None:
    contents = gathered.contents
    assert contents is not None
    key = made.key.public.fingerprint if made.key else ""
    if output is OutputFormat.JSON:
        print_json(
            {
                "exit_code": int(ExitCode.OK),
                "to": written.address,
                "name": contents.name,
                "version": contents.version,
                "targets": [target.label for target in contents.targets],
                "files": [{"path": file.path, "sha256": file.sha256, "bytes": file.size_bytes} for file in made.files],
                "bytes": made.size_bytes,
                "signed_by": key,
                "unlicensed": list(gathered.unlicensed),
                "written": written.is_written,
                "was_there": written.was_there,
                "kept": written.kept,
            }
        )
        return
    counted = f"{text.plural(len(made.files), 'file')}, {byte_count(made.size_bytes)}"
    signed = f"signed by {key}" if key else "not signed"
    if order.dry_run:
        width = max(len(byte_count(file.size_bytes)) for file in made.files)
        for file in made.files:
            print(f"{byte_count(file.size_bytes):>{width}}  {text.printable(file.path)}")
        outcome = f"would write {counted} to {written.address}, {signed}"
    else:
        print(written.address)
        verb = "was there already" if written.was_there else "released"
        outcome = f"{verb}: {counted}, {signed}"
        if written.kept:
            outcome += f" · {text.plural(written.kept, 'file')} of an interrupted release kept"
    print(outcome, file=sys.stderr)
