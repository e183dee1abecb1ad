"""`mlcbuild cache push`: from this disk to the remote, results with all their blobs."""

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
    Silence,
    Transfer,
    Voice,
    and_needed_by,
    lacking_document,
    moved,
    opened_remote,
    unanswered,
    wait_until,
    walking,
)
from mlcbuild.cli.console.remote_summary import RemoteEnd
from mlcbuild.cli.exit_codes import ExitCode
from mlcbuild.cli.output import text
from mlcbuild.cli.output.slow_progress import slow_progress
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.cli.settings.remote import ResolvedRemote
from mlcbuild.cli.workspace.opening import OpenWorkspace
from mlcbuild.engine.action_results import outputs_of, stays_here
from mlcbuild.engine.result_collector import CollectedResults
from mlcbuild.errors import CacheError, UsageError
from mlcbuild.figures import byte_count

_MOST_WAITING = 64
_NAME = re.compile(r"[0-9a-f]{64}")


@dataclass(kw_only=True)
class _Counts:
    """Results. `given`: to the remote cache to send; `there`: which this disk has not whole, and the remote has."""

    given: int = 0
    there: int = 0
    private: int = 0  # true of this machine only
    unsigned: int = 0
    not_whole: int = 0


@dataclass(frozen=True, kw_only=True)
class _Source:
    """What is to be sent, from where and through what. `collected` None: all that the disk has; `keys` of results that
    are true of this machine only are left out where targets say which these are.
    """

    store: DiskStore
    cache: RemoteStore
    keys: tuple[Digest, ...]
    unknown: int = 0  # results of which the store does not know the whole key
    collected: CollectedResults | None


def push_results(
    transfer: Transfer, output: OutputFormat, options: GlobalOptions, *, everything: bool = False
) -> ExitCode:
    """Send results that this disk has, and say which. BUILD_FAILED where one that targets need is not to be had here.

    Raises MlcbuildError for all that keeps a build from beginning, and CacheError where the server did not take all.
    """
    if everything == bool(transfer.patterns):
        raise UsageError(
            "push sends the results of targets, or with --all those of all workspaces",
            advice=("name the targets, or give --all, and not both",),
        )
    workspace, remote = opened_remote(transfer, options, writes=True)
    signatures = open_signatures(remote.configuration)
    with slow_progress(options) as progress:
        voice = Voice(options, progress)
        told: list[str] = []
        opening = (
            _all_of(transfer, workspace, remote) if everything else _of_targets(transfer, workspace, remote, voice)
        )
        with opening as source:
            cache, silence = source.cache, Silence()
            cache.start(told.append)

            def show(done: int) -> None:
                while told:
                    voice.note(told.pop(0))
                counters = cache.counters
                silent = silence.told(counters, done)
                progress(f"pushing, {byte_count(counters.bytes_uploaded)}{silent}", done, len(source.keys))

            counts = _send(
                source, _as_signed if signatures.signs else check_of_first(remote.configuration, signatures), show
            )
            cache.finish()
            show(len(source.keys))
            end = RemoteEnd.of(cache)
        assert end is not None
        collected = source.collected
        is_complete = _is_complete(counts, collected, end)
        voice.conclude(
            _document(counts, source, end, is_complete) if output is OutputFormat.JSON else None,
            told=_told(counts, collected, end),
            lacking=collected.missing if collected else (),
        )
    if dropped := end.counters.uploads_dropped:
        raise unanswered(end, f"did not take {text.plural(dropped, 'result')}")
    return ExitCode.OK if is_complete else ExitCode.BUILD_FAILED


# What is sent


@contextmanager
def _of_targets(
    transfer: Transfer, workspace: OpenWorkspace, remote: ResolvedRemote, voice: Voice
) -> Iterator[_Source]:
    with walking(transfer, workspace, remote, voice) as walk:
        collected = walk.collect(asks_remote=False, progress=lambda _done, _total: None, tell=voice.note)
        keys = tuple(key for key in collected.in_store if key not in collected.local_only)
        yield _Source(store=walk.parts.store, cache=walk.remote, keys=keys, collected=collected)


@contextmanager
def _all_of(transfer: Transfer, workspace: OpenWorkspace, remote: ResolvedRemote) -> Iterator[_Source]:
    function = DigestFunction(workspace.settings.digest)
    store = DiskStore(store_root(transfer.disk_cache), function)
    cache = open_remote(remote.configuration, function, refuse=remote.function_error)
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
    """The keys of all results below a store's folder, and the number of results whose keys are not known: a file has
    the hash of its key alone, and the size is that of the encoded Action, a blob that may have gone.
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
    """Who signs makes anything believed."""
    return ""


def _send(source: _Source, check: Check, show: Callable[[int], object]) -> _Counts:
    """Give results to the remote cache, a few ahead of what it has sent, and wait until all have gone or failed."""
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
        # What is signed is the result as it travels.
        if check(key, with_contents(result, store)):
            counts.unsigned += 1
            continue
        wait_until(lambda: cache.sending < _MOST_WAITING, lambda number=number: show(number - cache.sending))  # type: ignore[misc]
        cache.send(key, result, outputs, store)
        counts.given += 1
    wait_until(lambda: not cache.sending, lambda: show(len(source.keys) - cache.sending))
    return counts


def _blobs_of(result: ActionResult, store: DiskStore) -> tuple[Digest, ...] | None:
    """All that it names, those within Trees too; None where some of it is not in the store."""
    try:
        outputs = [entry.digest for entry in outputs_of(result, store)]
    except (ValueError, CacheError):
        return None
    return None if store.missing([*outputs, *blobs_in(result)]) else tuple(outputs)


# What came of it


def _is_complete(counts: _Counts, collected: CollectedResults | None, end: RemoteEnd) -> bool:
    is_whole = collected is None or (collected.is_complete and not counts.not_whole)
    return is_whole and not counts.unsigned and not end.counters.uploads_dropped


def _there(counts: _Counts, end: RemoteEnd) -> int:
    return counts.there + counts.given - end.counters.results_uploaded - end.counters.uploads_dropped


def _told(counts: _Counts, collected: CollectedResults | None, end: RemoteEnd) -> str:
    there, dropped = _there(counts, end), end.counters.uploads_dropped
    parts = []
    if end.counters.results_uploaded:
        parts.append(f"sent {moved(end.counters.results_uploaded, end.counters.bytes_uploaded)}")
    if there or not parts:
        parts.append(f"{text.plural(there, 'result')} {'was' if there == 1 else 'were'} there")
    if dropped:
        parts.append(f"{dropped:,} not sent")
    if counts.private:
        parts.append(f"{counts.private:,} not sent, true of this machine only")
    if counts.unsigned:
        parts.append(f"{counts.unsigned:,} not sent, as nobody signed them")
    if counts.not_whole:
        parts.append(f"{counts.not_whole:,} not whole on this disk")
    if collected is not None and not collected.is_complete:
        parts.append(
            f"{text.plural(len(collected.missing), 'action')} without a result{and_needed_by(collected.blocked)}"
        )
    return " · ".join(parts)


def _document(counts: _Counts, source: _Source, end: RemoteEnd, is_complete: bool) -> dict[str, object]:
    collected = source.collected
    return {
        "remote": end.addresses[0],
        "disk_cache": str(source.store.root),
        "sent": end.counters.results_uploaded,
        "there": _there(counts, end),
        "bytes": end.counters.bytes_uploaded,
        "not_sent": end.counters.uploads_dropped,
        "private": counts.private,
        "unsigned": counts.unsigned,
        "not_whole": counts.not_whole,
        "missing": lacking_document(collected.missing if collected else ()),
        "beyond": collected.blocked if collected else 0,
        "complete": is_complete,
    }
