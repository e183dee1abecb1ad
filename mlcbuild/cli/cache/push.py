"""`mlcbuild cache push`: copies results with all their blobs from this disk to the remote."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.disk import LAYOUT_VERSION, DiskStore, disk_error
from mlcbuild.cache.reapi import ActionResult
from mlcbuild.cache.remote.opening import check_of_first, open_remote, open_signatures
from mlcbuild.cache.remote.remote_store import RemoteStore
from mlcbuild.cache.remote.results import blobs_in, with_contents
from mlcbuild.cache.remote.server_lookup import Check
from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.cache.maintenance import store_root
from mlcbuild.cli.cache.transfer import (
    Reporter,
    Silence,
    Transfer,
    and_needed_by,
    missing_document,
    moved,
    opened_remote,
    unanswered,
    wait_until,
    walking,
)
from mlcbuild.cli.console.remote_summary import RemoteSummary
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.output import text
from mlcbuild.cli.output.slow_progress import slow_progress
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.cli.settings.remote import ResolvedRemote
from mlcbuild.cli.workspace.opening import OpenWorkspace
from mlcbuild.engine.action_results import outputs_of, stays_here
from mlcbuild.engine.result_collector import CollectedResults
from mlcbuild.engine.shared_form import shared_files, shared_form
from mlcbuild.errors import CacheError, UsageError
from mlcbuild.figures import byte_count

_MOST_WAITING = 64
_NAME = re.compile(r"[0-9a-f]{64}")


@dataclass(kw_only=True)
class _Counts:
    """Counts of results. `given`: handed to the remote cache; `there`: incomplete on this disk, but on the remote."""

    given: int = 0
    there: int = 0
    private: int = 0  # valid on this machine only
    unsigned: int = 0
    not_whole: int = 0


@dataclass(frozen=True, kw_only=True)
class _Source:
    """The results to send; `collected` is None for all results of the disk.

    For targets, `keys` leaves out results that are valid on this machine only.
    """

    store: DiskStore
    cache: RemoteStore
    keys: tuple[Digest, ...]
    unknown: int = 0  # results whose whole key the store does not know
    collected: CollectedResults | None


def push_results(
    transfer: Transfer, output: OutputFormat, options: GlobalOptions, *, everything: bool = False
) -> ExitCode:
    """Send results, and print what was sent. Returns BUILD_FAILED if this disk lacks a result that the targets need.

    Raises MlcbuildError as a build does before it begins, and CacheError if the server did not accept every result.
    """
    if everything == bool(transfer.patterns):
        raise UsageError(
            "push sends either the results of targets or, with --all, those of all workspaces",
            advice=("name targets or give --all, not both",),
        )
    workspace, remote = opened_remote(transfer, options, writes=True)
    signatures = open_signatures(remote.configuration)
    with slow_progress(options) as progress:
        reporter = Reporter(options, progress)
        messages: list[str] = []
        opening = (
            _all_of(transfer, workspace, remote) if everything else _of_targets(transfer, workspace, remote, reporter)
        )
        with opening as source:
            cache, silence = source.cache, Silence()
            cache.start(messages.append)

            def show(done: int) -> None:
                while messages:
                    reporter.note(messages.pop(0))
                counters = cache.counters
                silent = silence.note(counters, done)
                progress(f"pushing, {byte_count(counters.bytes_uploaded)}{silent}", done, len(source.keys))

            counts = _send(
                source, _as_signed if signatures.signs else check_of_first(remote.configuration, signatures), show
            )
            cache.finish()
            show(len(source.keys))
            summary = RemoteSummary.of(cache)
        assert summary is not None
        collected = source.collected
        is_complete = _is_complete(counts, collected, summary)
        reporter.conclude(
            _document(counts, source, summary, is_complete) if output is OutputFormat.JSON else None,
            outcome=_outcome(counts, collected, summary),
            missing=collected.missing if collected else (),
        )
    if dropped := summary.counters.uploads_dropped:
        raise unanswered(summary, f"did not accept {text.plural(dropped, 'result')}")
    return ExitCode.OK if is_complete else ExitCode.BUILD_FAILED


# What is sent


@contextmanager
def _of_targets(
    transfer: Transfer, workspace: OpenWorkspace, remote: ResolvedRemote, reporter: Reporter
) -> Iterator[_Source]:
    with walking(transfer, workspace, remote, reporter) as walk:
        collected = walk.collect(asks_remote=False, progress=lambda _done, _total: None, tell=reporter.note)
        keys = tuple(key for key in collected.in_store if key not in collected.local_only)
        yield _Source(store=walk.parts.store, cache=walk.remote, keys=keys, collected=collected)


@contextmanager
def _all_of(transfer: Transfer, workspace: OpenWorkspace, remote: ResolvedRemote) -> Iterator[_Source]:
    function = DigestFunction(workspace.settings.digest)
    store = DiskStore(store_root(transfer.disk_cache), function)
    cache = open_remote(remote.configuration, function, map_error=remote.function_error)
    assert cache is not None
    try:
        try:
            keys, unknown = _keys_in(store.root / LAYOUT_VERSION / function.value)
        except OSError as error:
            raise disk_error(error, store.root, "reading") from error
        yield _Source(store=store, cache=cache, keys=keys, unknown=unknown, collected=None)
    finally:
        cache.close()
        store.release()


def _keys_in(base: Path) -> tuple[tuple[Digest, ...], int]:
    """The keys of all results below a store's folder, and the number of results whose keys are unknown.

    A result's file is named by the hash of its key. The key's size is that of the encoded Action, a blob that may be
    missing.
    """
    keys = []
    unknown = 0
    for folder in sorted(os.listdir(base / "ac")):  # noqa: PTH208  # Making a Path of each costs more.
        for name in sorted(os.listdir(base / "ac" / folder)):  # noqa: PTH208
            if not _NAME.fullmatch(name):
                continue
            try:
                keys.append(Digest(name, os.stat(f"{base}/cas/{name[:2]}/{name}").st_size))  # noqa: PTH116
            except OSError:
                unknown += 1
    return tuple(keys), unknown


# Sending


def _as_signed(_key: Digest, _result: ActionResult) -> str:
    """Accept every result, because we sign it."""
    return ""


def _send(source: _Source, check: Check, show: Callable[[int], object]) -> _Counts:
    """Hand results to the remote cache, a few at a time, and wait until all are sent or have failed."""
    counts = _Counts(not_whole=source.unknown, private=len(source.collected.local_only) if source.collected else 0)
    store, cache = source.store, source.cache
    for number, key in enumerate(source.keys):
        result = store.get(key)
        if result is None:
            counts.not_whole += 1
            continue
        if source.collected is None and stays_here(result):
            counts.private += 1
            continue
        outputs = _blobs_of(result, store)
        if outputs is None:
            show(number - cache.sending)
            is_there = cache.find(key, store) is not None
            counts.there += is_there
            counts.not_whole += not is_there
            continue
        # The signature covers the result as it is sent.
        if check(key, with_contents(shared_form(result), store)):
            counts.unsigned += 1
            continue
        wait_until(lambda: cache.sending < _MOST_WAITING, lambda number=number: show(number - cache.sending))  # type: ignore[misc]
        cache.send(key, shared_form(result), outputs, store)
        counts.given += 1
    wait_until(lambda: not cache.sending, lambda: show(len(source.keys) - cache.sending))
    return counts


def _blobs_of(result: ActionResult, store: DiskStore) -> tuple[Digest, ...] | None:
    """The blobs of a result to send, including those within Trees, but not what is remade; None if one is not here."""
    try:
        outputs = shared_files(result, outputs_of(result, store))
    except (ValueError, CacheError):
        return None
    return None if store.missing([*outputs, *blobs_in(result)]) else tuple(outputs)


# The outcome


def _is_complete(counts: _Counts, collected: CollectedResults | None, summary: RemoteSummary) -> bool:
    is_whole = collected is None or (collected.is_complete and not counts.not_whole)
    return is_whole and not counts.unsigned and not summary.counters.uploads_dropped


def _there(counts: _Counts, summary: RemoteSummary) -> int:
    return counts.there + counts.given - summary.counters.results_uploaded - summary.counters.uploads_dropped


def _outcome(counts: _Counts, collected: CollectedResults | None, summary: RemoteSummary) -> str:
    there, dropped = _there(counts, summary), summary.counters.uploads_dropped
    parts = []
    if summary.counters.results_uploaded:
        parts.append(f"sent {moved(summary.counters.results_uploaded, summary.counters.bytes_uploaded)}")
    if there or not parts:
        parts.append(f"{text.plural(there, 'result')} already there")
    if dropped:
        parts.append(f"{dropped:,} not sent")
    if counts.private:
        parts.append(f"{counts.private:,} not sent: valid on this machine only")
    if counts.unsigned:
        parts.append(f"{counts.unsigned:,} not sent: unsigned")
    if counts.not_whole:
        parts.append(f"{counts.not_whole:,} incomplete on this disk")
    if collected is not None and not collected.is_complete:
        parts.append(
            f"{text.plural(len(collected.missing), 'action')} without a result{and_needed_by(collected.blocked)}"
        )
    return " · ".join(parts)


def _document(counts: _Counts, source: _Source, summary: RemoteSummary, is_complete: bool) -> dict[str, object]:
    collected = source.collected
    return {
        "remote": summary.addresses[0],
        "disk_cache": str(source.store.root),
        "sent": summary.counters.results_uploaded,
        "there": _there(counts, summary),
        "bytes": summary.counters.bytes_uploaded,
        "not_sent": summary.counters.uploads_dropped,
        "private": counts.private,
        "unsigned": counts.unsigned,
        "not_whole": counts.not_whole,
        "missing": missing_document(collected.missing if collected else ()),
        "beyond": collected.blocked if collected else 0,
        "complete": is_complete,
    }
