"""`mlcbuild cache pull`: from the remote to this disk, all that a build of some targets would find there."""

from __future__ import annotations

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.cache.transfer import (
    Silence,
    Transfer,
    Voice,
    and_needed_by,
    lacking_document,
    moved,
    opened_remote,
    unanswered,
    walking,
)
from mlcbuild.cli.console.remote_summary import RemoteEnd, remote_line
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.output import text
from mlcbuild.cli.output.slow_progress import slow_progress
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.engine.gathering import Gathered
from mlcbuild.figures import byte_count


def pull_results(transfer: Transfer, output: OutputFormat, options: GlobalOptions) -> ExitCode:
    """Bring results and their blobs here, and say what came; BUILD_FAILED where an action has none.

    Raises MlcbuildError for all that keeps a build from beginning, and CacheError where a server did not answer.
    """
    workspace, remote = opened_remote(transfer, options, writes=False)
    with slow_progress(options) as progress:
        voice = Voice(options, progress)
        with walking(transfer, workspace, remote, voice) as walk:
            cache, silence = walk.remote, Silence()

            def show(done: int, total: int) -> None:
                counters = cache.counters
                silent = silence.told(counters, done)
                progress(f"pulling, {byte_count(counters.bytes_downloaded)}{silent}", done, total)

            gathered = walk.gather(asks_remote=True, progress=show, tell=voice.note)
            cache.finish()
            end = RemoteEnd.of(cache)
            root = walk.parts.store.root
        assert end is not None
        document = {
            "remote": end.addresses[0],
            "disk_cache": str(root),
            "pulled": len(gathered.came),
            "here": len(gathered.here),
            "bytes": end.counters.bytes_downloaded,
            "missing": lacking_document(gathered.lacking),
            "beyond": gathered.beyond,
            "complete": gathered.is_whole,
        }
        voice.conclude(
            document if output is OutputFormat.JSON else None,
            told=_told(gathered, end),
            lacking=gathered.lacking,
            note="" if gathered.is_whole else remote_line(end),
        )
    hidden = _hidden(end)
    if hidden and not gathered.is_whole:
        raise unanswered(end, f"did not answer {text.plural(hidden, 'look-up')}")
    return ExitCode.OK if gathered.is_whole else ExitCode.BUILD_FAILED


def _hidden(end: RemoteEnd) -> int:
    """Look-ups without an answer: what a server that fails, or refuses, hides from us may be there."""
    counts = {reason.name: count for reason, count in end.counters.misses}
    return counts["TIMED_OUT"] + counts["OFF"] + counts["REFUSED"]


def _told(gathered: Gathered, end: RemoteEnd) -> str:
    here = f"{text.plural(len(gathered.here), 'result')} {'was' if len(gathered.here) == 1 else 'were'} here"
    came = f"pulled {moved(len(gathered.came), end.counters.bytes_downloaded)}" if gathered.came else ""
    parts = [came] if came else []
    if gathered.here or not came:
        parts.append(here)
    if not gathered.is_whole:
        parts.append(
            f"a build has to run {text.plural(len(gathered.lacking), 'action')}{and_needed_by(gathered.beyond)}"
        )
    return " · ".join(parts)
