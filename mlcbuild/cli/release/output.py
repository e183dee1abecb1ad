"""What `mlcbuild release` prints."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.console.not_cached import not_cached_documents, not_cached_lines
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.output import text
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.cli.release.gathering import Gathered
from mlcbuild.engine.build_events import ActionFinished, ActionStatus, Cause
from mlcbuild.engine.survey import SurveyedAction
from mlcbuild.figures import byte_count
from mlcbuild.release.making import MadeRelease


@dataclass(frozen=True, kw_only=True)
class Written:
    """`kept`: files that an interrupted release had written; `was_there`: this very release was there already."""

    address: str
    kept: int = 0
    was_there: bool = False


def warn_of_unlicensed(gathered: Gathered, options: GlobalOptions) -> None:
    """Name the models without a licence on standard error."""
    style = options.style(sys.stderr)
    for label in gathered.unlicensed:
        told = f"{label} has no licence: neither its attribute nor its source says one"
        advice = '  write license = "…", an SPDX expression; --require-license makes this an error'
        options.tell([f"{style.warning('warning:')} {told}", advice])


def print_not_cached(gathered: Gathered, output: OutputFormat, options: GlobalOptions) -> None:
    """What stands against a release, on standard error; or as JSON."""
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
    options.tell(lines)


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


def print_planned(gathered: Gathered, address: str, output: OutputFormat, options: GlobalOptions) -> None:
    """The files of targets. Before they are here, only their sizes are known."""
    planned = dict(sorted(gathered.planned.items()))
    if output is OutputFormat.JSON:
        print_json(
            {
                "exit_code": int(ExitCode.OK),
                "to": address,
                "files": [{"path": path, "bytes": size} for path, size in planned.items()],
                "bytes": sum(planned.values()),
                "unlicensed": list(gathered.unlicensed),
            }
        )
        return
    width = max(len(byte_count(size)) for size in planned.values())
    for path, size in planned.items():
        print(f"{byte_count(size):>{width}}  {text.printable(path)}")
    sys.stdout.flush()  # The sum comes last, also where both streams go into one file.
    counted = f"{text.plural(len(planned), 'file')}, {byte_count(sum(planned.values()))}"
    options.tell([f"would release {counted}, and what describes them, to {address}"])


def print_released(
    made: MadeRelease, written: Written, gathered: Gathered, output: OutputFormat, options: GlobalOptions
) -> None:
    """The address of a release, and what was written there; or as JSON."""
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
                "was_there": written.was_there,
                "kept": written.kept,
            }
        )
        return
    counted = f"{text.plural(len(made.files), 'file')}, {byte_count(made.size_bytes)}"
    signed = f"signed by {key}" if key else "not signed"
    print(written.address, flush=True)
    verb = "was there already" if written.was_there else "released"
    kept = f" · {text.plural(written.kept, 'file')} of an interrupted release kept" if written.kept else ""
    options.tell([f"{verb}: {counted}{kept}", signed])
