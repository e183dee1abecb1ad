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
from mlcbuild.engine.result_collector import CollectedResults
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

            collected = walk.collect(asks_remote=True, progress=show, tell=voice.note)
            cache.finish()
            end = RemoteEnd.of(cache)
            root = walk.parts.store.root
        assert end is not None
        document = {
            "remote": end.addresses[0],
            "disk_cache": str(root),
            "pulled": len(collected.fetched),
            "here": len(collected.in_store),
            "bytes": end.counters.bytes_downloaded,
            "missing": lacking_document(collected.missing),
            "beyond": collected.blocked,
            "complete": collected.is_complete,
        }
        voice.conclude(
            document if output is OutputFormat.JSON else None,
            told=_told(collected, end),
            lacking=collected.missing,
            note="" if collected.is_complete else remote_line(end),
        )
    hidden = _hidden(end)
    if hidden and not collected.is_complete:
        raise unanswered(end, f"did not answer {text.plural(hidden, 'look-up')}")
    return ExitCode.OK if collected.is_complete else ExitCode.BUILD_FAILED


def _hidden(end: RemoteEnd) -> int:
    """Look-ups without an answer: what a server that fails, or refuses, hides from us may be there."""
    counts = {reason.name: count for reason, count in end.counters.misses}
    return counts["TIMED_OUT"] + counts["OFF"] + counts["REFUSED"]


def _told(collected: CollectedResults, end: RemoteEnd) -> str:
    here = f"{text.plural(len(collected.in_store), 'result')} {'was' if len(collected.in_store) == 1 else 'were'} here"
    came = f"pulled {moved(len(collected.fetched), end.counters.bytes_downloaded)}" if collected.fetched else ""
    parts = [came] if came else []
    if collected.in_store or not came:
        parts.append(here)
    if not collected.is_complete:
        parts.append(
            f"a build has to run {text.plural(len(collected.missing), 'action')}{and_needed_by(collected.blocked)}"
        )
    return " · ".join(parts)
