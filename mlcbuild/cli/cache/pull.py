"""`mlcbuild cache pull`: copies results that a build of some targets needs from the remote to this disk."""

from __future__ import annotations

from mlcbuild.cache.remote.counters import MissReason
from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.cache.transfer import (
    Reporter,
    Silence,
    Transfer,
    and_needed_by,
    missing_document,
    moved,
    opened_remote,
    unanswered,
    walking,
)
from mlcbuild.cli.console.remote_summary import RemoteSummary, remote_line
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.output import text
from mlcbuild.cli.output.slow_progress import slow_progress
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.engine.result_collector import CollectedResults
from mlcbuild.figures import byte_count


def pull_results(transfer: Transfer, output: OutputFormat, options: GlobalOptions) -> ExitCode:
    """Copy results and their blobs, and print what was copied. Returns BUILD_FAILED if an action has no result.

    Raises MlcbuildError as a build does before it begins, and CacheError if a server did not answer.
    """
    workspace, remote = opened_remote(transfer, options, writes=False)
    with slow_progress(options) as progress:
        reporter = Reporter(options, progress)
        with walking(transfer, workspace, remote, reporter) as walk:
            cache, silence = walk.remote, Silence()

            def show(done: int, known: int) -> None:
                counters = cache.counters
                silent = silence.note(counters, done)
                progress.show_counted(f"pulling, {byte_count(counters.bytes_downloaded)}{silent}", done, known)

            collected = walk.collect(asks_remote=True, progress=show, tell=reporter.note)
            cache.finish()
            summary = RemoteSummary.of(cache)
            root = walk.parts.store.root
        assert summary is not None
        document = {
            "remote": summary.addresses[0],
            "disk_cache": str(root),
            "pulled": len(collected.fetched),
            "here": len(collected.in_store),
            "bytes": summary.counters.bytes_downloaded,
            "missing": missing_document(collected.missing),
            "beyond": collected.blocked,
            "complete": collected.is_complete,
        }
        reporter.conclude(
            document if output is OutputFormat.JSON else None,
            outcome=_outcome(collected, summary),
            missing=collected.missing,
            note="" if collected.is_complete else remote_line(summary),
        )
    lookups = _unanswered_lookups(summary)
    if lookups and not collected.is_complete:
        raise unanswered(summary, f"did not answer {text.plural(lookups, 'lookup')}")
    return ExitCode.OK if collected.is_complete else ExitCode.BUILD_FAILED


def _unanswered_lookups(summary: RemoteSummary) -> int:
    """How many lookups have no answer; the remote may have their results."""
    unanswered = (MissReason.FAILED, MissReason.TIMED_OUT, MissReason.OFF, MissReason.DENIED)
    return sum(count for reason, count in summary.counters.misses if reason in unanswered)


def _outcome(collected: CollectedResults, summary: RemoteSummary) -> str:
    here = f"{text.plural(len(collected.in_store), 'result')} already here"
    came = f"pulled {moved(len(collected.fetched), summary.counters.bytes_downloaded)}" if collected.fetched else ""
    parts = [came] if came else []
    if collected.in_store or not came:
        parts.append(here)
    if not collected.is_complete:
        parts.append(
            f"a build has to run {text.plural(len(collected.missing), 'action')}{and_needed_by(collected.blocked)}"
        )
    return " · ".join(parts)
