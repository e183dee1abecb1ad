"""What `cache push` and `cache pull` share: the request, the remote, the walk over the graph, and output."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.cache.remote.counters import Counters
from mlcbuild.cache.remote.policy import Purpose
from mlcbuild.cache.remote.remote_store import RemoteStore
from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.build.parts import BuildParts, build_parts
from mlcbuild.cli.build.targets import targets_of
from mlcbuild.cli.console.remote_summary import RemoteSummary
from mlcbuild.cli.output import text
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.slow_progress import SlowProgress
from mlcbuild.cli.settings.remote import RemoteOptions, ResolvedRemote, resolve_remote
from mlcbuild.cli.workspace.opening import OpenWorkspace, open_workspace
from mlcbuild.cli.workspace.skipped import skipped_notes
from mlcbuild.engine.result_collector import CollectedResults, MissingResult, ResultCollector
from mlcbuild.errors import CacheError, UsageError
from mlcbuild.figures import byte_count
from mlcbuild.rules.analysis import Analysis

_MOST_SHOWN = 5
_THREADS = 16  # They wait for the network.
_SILENT_SECONDS = 5.0
_ADVICE = ("`mlcbuild doctor remote` tests it; the same command continues with what is left",)
_ADVICE_WHERE_SLOW = (
    *_ADVICE,
    "for a slow server raise idle_timeout and timeout, for a slow line lower minimum_throughput",
    "`mlcbuild help slow-lines` explains them",
)


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """What the command line asks for. `jobs` None: as many blobs at a time as in a build."""

    patterns: tuple[str, ...]
    configuration: str = ""
    jobs: int | None = None
    disk_cache: Path | None = None
    remote: str = ""


class Reporter:
    """Prints notes and the outcome, and clears the progress line before."""

    def __init__(self, options: GlobalOptions, progress: SlowProgress) -> None:
        self._options = options
        self._style = options.style(sys.stderr)
        self._progress = progress

    def note(self, message: str) -> None:
        self._write(f"{self._style.warning('note:')} {message}")

    def conclude(self, document: object, *, outcome: str, missing: Sequence[MissingResult], note: str = "") -> None:
        """Print `document` for programs; if it is None, print the outcome and the missing results for people."""
        self._progress.close()
        if document is not None:
            print_json(document)
            return
        self._print_missing(missing)
        self._options.show([outcome])
        if note:
            self._write(note)

    def _print_missing(self, missing: Sequence[MissingResult]) -> None:
        """Print the first missing results, one a line."""
        for each in missing[:_MOST_SHOWN]:
            reason = each.message or each.reason.value
            self._write(f"{self._style.error('missing:')} {each.title}: {reason}")
        if len(missing) > _MOST_SHOWN:
            self._write(f"  and {len(missing) - _MOST_SHOWN:,} more")

    def _write(self, line: str) -> None:
        self._progress.close()
        self._options.tell([line])


def opened_remote(transfer: Transfer, options: GlobalOptions, *, writes: bool) -> tuple[OpenWorkspace, ResolvedRemote]:
    """The workspace and its remote. Raises UsageError without a remote, or if it must be writable and is not."""
    workspace = open_workspace(options.directory, to_load=True)
    remote = resolve_remote(RemoteOptions(address=transfer.remote), options.environment, workspace.settings)
    if remote is None:
        raise UsageError(
            "no remote cache is configured",
            advice=("name one by --remote, MLCBUILD_REMOTE, or [remote] in the root BUILD.toml",),
        )
    configuration = remote.configuration
    policy = configuration.policy
    if writes and not policy.sends:
        reason, advice = (
            'its upload is "never"',
            "set MLCBUILD_REMOTE_UPLOAD=results, or change the setting that says never",
        )
        if policy.role.value != "read-write":
            reason = f'this machine has the role "{policy.role.value}"'
            advice = (
                "if this machine may send results, set MLCBUILD_REMOTE_ROLE=read-write, as CI jobs do, or "
                '`role = "read-write"` in [remote] of your settings.toml'
            )
        raise UsageError(f"{configuration.shown} is read-only for this command: {reason}", advice=(advice,))
    policy = dataclasses.replace(policy, purpose=Purpose.PUSH if writes else Purpose.PULL)
    if transfer.jobs:
        policy = dataclasses.replace(policy, downloads=transfer.jobs, uploads=transfer.jobs)
    configuration = dataclasses.replace(configuration, policy=policy)
    return workspace, dataclasses.replace(remote, configuration=configuration)


@dataclass(frozen=True, kw_only=True)
class Walk:
    """Analysed targets, and the parts that look up their results."""

    parts: BuildParts
    analysis: Analysis
    configuration: str

    @property
    def remote(self) -> RemoteStore:
        assert self.parts.remote is not None
        return self.parts.remote

    def collect(
        self, *, asks_remote: bool, progress: Callable[[int, int], object], tell: Callable[[str], object]
    ) -> CollectedResults:
        parts = self.parts
        collector = ResultCollector(
            workspace=parts.workspace.root,
            store=parts.store,
            toolchains=parts.toolchains,
            implementations=parts.implementations,
            digests=parts.digests,
            remote=self.remote if asks_remote else None,
            threads=_THREADS,
            progress=progress,
            tell=tell,
        )
        targets = targets_of(self.analysis.requested, output=f"{parts.workspace.settings.output}/{self.configuration}")
        return collector.collect(self.analysis.actions, targets)


@contextmanager
def walking(transfer: Transfer, workspace: OpenWorkspace, remote: ResolvedRemote, reporter: Reporter) -> Iterator[Walk]:
    """Within the block no build runs in the workspace. Raises MlcbuildError as a build does before it begins."""
    loaded = workspace.load(transfer.patterns, transfer.configuration)
    analysis = workspace.analyse(loaded, transfer.disk_cache)
    for note in (*loaded.nothing_matches, *skipped_notes(analysis)):
        reporter.note(note)
    with build_parts(
        workspace,
        analysis.actions,
        jobs=1,
        keep_going=True,
        check_determinism=False,
        recache=False,
        disk_cache=transfer.disk_cache,
        remote=remote,
        listeners=(),
        say=reporter.note,
    ) as parts:
        yield Walk(parts=parts, analysis=analysis, configuration=loaded.configuration.name)


class Silence:
    """How long no transfer has finished, for the progress line. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: object = None
        self._since = clock()

    def note(self, counters: Counters, done: int) -> str:
        """The note that nothing has finished for some seconds; "" if something has."""
        now = self._clock()
        state = (dataclasses.replace(counters, retries=0, failures=0), done)
        if state != self._known:
            self._known, self._since = state, now
        return f", nothing finished for {now - self._since:.0f} s" if now - self._since >= _SILENT_SECONDS else ""


def unanswered(summary: RemoteSummary, what: str) -> CacheError:
    """The error to raise when a server did not do something, after the outcome was printed."""
    advice = _ADVICE_WHERE_SLOW if summary.counters.retries else _ADVICE
    return CacheError(f"{summary.addresses[0]} {what}", advice=advice)


def wait_until(done: Callable[[], bool], meanwhile: Callable[[], object]) -> None:
    """Wait for something that ends by itself: requests have deadlines and few retries, and a server that keeps failing
    gets no further requests.
    """
    while not done():
        meanwhile()
        time.sleep(0.02)


def moved(count: int, size_bytes: int) -> str:
    """`98 results, 1.2 GB`."""
    return f"{text.plural(count, 'result')}, {byte_count(size_bytes)}"


def missing_document(missing: Sequence[MissingResult]) -> list[dict[str, str]]:
    """The missing results as JSON."""
    return [
        {"action": each.identifier, "title": each.title, "reason": each.message or each.reason.value}
        for each in missing
    ]


def and_needed_by(beyond: int) -> str:
    return f", and {beyond:,} more that need them" if beyond else ""
