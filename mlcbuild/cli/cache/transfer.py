"""What `mlcbuild cache push` and `pull` share: what is asked, the remote, the walk over the graph, and notes."""

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
from mlcbuild.cli.build.parts import Parts, build_parts, targets_of
from mlcbuild.cli.console.remote_summary import RemoteEnd
from mlcbuild.cli.output import text
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.slow_progress import SlowProgress
from mlcbuild.cli.settings.remote import RemoteOptions, ResolvedRemote, resolve_remote
from mlcbuild.cli.workspace.opening import OpenWorkspace, open_workspace
from mlcbuild.engine.result_collector import CollectedResults, MissingResult, ResultCollector
from mlcbuild.errors import CacheError, UsageError
from mlcbuild.figures import byte_count
from mlcbuild.rules.analysis import Analysis, analyse

_MOST_SHOWN = 5
_THREADS = 16  # They wait for the network.
_SILENT_SECONDS = 5.0
_ADVICE = ("`mlcbuild doctor remote` tries it; the same command goes on from what has moved",)
_ADVICE_WHERE_SLOW = (
    *_ADVICE,
    "a server that is only slow gets more time by idle_timeout and timeout, a slow line by slowest: see docs/remote.md",
)


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """What the command line asks for. `jobs` None: as many blobs at once as a build moves."""

    patterns: tuple[str, ...]
    configuration: str = ""
    jobs: int | None = None
    disk_cache: Path | None = None
    remote: str = ""


class Voice:
    """Says notes on standard error, beside a line of progress."""

    def __init__(self, options: GlobalOptions, progress: SlowProgress) -> None:
        self._style = options.style(sys.stderr)
        self._progress = progress

    def note(self, message: str) -> None:
        self._write(f"{self._style.warning('note:')} {message}")

    def conclude(self, document: object, *, told: str, lacking: Sequence[MissingResult], note: str = "") -> None:
        """What came of it: `document` alone for programs, None for people, who are told what is lacking too."""
        self._progress.close()
        if document is not None:
            print_json(document)
            return
        self._lacking(lacking)
        print(told, flush=True)
        if note:
            self._write(note)

    def _lacking(self, lacking: Sequence[MissingResult]) -> None:
        """The first of them, a line each."""
        for each in lacking[:_MOST_SHOWN]:
            why = each.message or each.reason.value
            self._write(f"{self._style.error('missing:')} {each.identifier}: {why}")
        if len(lacking) > _MOST_SHOWN:
            self._write(f"  and {len(lacking) - _MOST_SHOWN:,} more")

    def _write(self, line: str) -> None:
        self._progress.close()
        print(line, file=sys.stderr, flush=True)


def opened_remote(transfer: Transfer, options: GlobalOptions, *, writes: bool) -> tuple[OpenWorkspace, ResolvedRemote]:
    """The workspace and its remote. Raises UsageError where there is none, or it may not be written and has to be."""
    workspace = open_workspace(options.directory, to_load=True)
    remote = resolve_remote(RemoteOptions(address=transfer.remote), options.environment, workspace.settings)
    if remote is None:
        raise UsageError(
            "no remote cache is set here",
            advice=("give one with --remote, in MLCBUILD_REMOTE, or as [remote] of the root BUILD.toml",),
        )
    configuration = remote.configuration
    policy = configuration.policy
    if writes and not policy.sends:
        reason, advice = 'its upload is "never"', "set MLCBUILD_REMOTE_UPLOAD=results, or see who says never"
        if policy.role.value != "read-write":
            reason = f'the role here is "{policy.role.value}"'
            advice = (
                "where results may be sent from, set MLCBUILD_REMOTE_ROLE=read-write, as CI jobs do,\n"
                'or role = "read-write" in [remote] of your settings.toml'
            )
        raise UsageError(
            f"nothing may be written to {configuration.shown}: {reason}", advice=tuple(advice.splitlines())
        )
    policy = dataclasses.replace(policy, purpose=Purpose.PUSH if writes else Purpose.PULL)
    if transfer.jobs:
        policy = dataclasses.replace(policy, downloads=transfer.jobs, uploads=transfer.jobs)
    configuration = dataclasses.replace(configuration, policy=policy)
    return workspace, dataclasses.replace(remote, configuration=configuration)


@dataclass(frozen=True, kw_only=True)
class Walk:
    """Targets that were analysed, and the parts that look their results up."""

    parts: Parts
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
def walking(transfer: Transfer, workspace: OpenWorkspace, remote: ResolvedRemote, voice: Voice) -> Iterator[Walk]:
    """While no other builds in the workspace. Raises MlcbuildError for all that keeps a build from beginning."""
    loaded = workspace.load(transfer.patterns, transfer.configuration)
    analysis = analyse(loaded, workspace.rules)
    if not analysis.requested:
        voice.note("no targets match")
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
        say=voice.note,
    ) as parts:
        yield Walk(parts=parts, analysis=analysis, configuration=loaded.configuration.name)


class Silence:
    """How long nothing has come to its end, for a line of progress. `clock` counts seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: object = None
        self._since = clock()

    def told(self, counters: Counters, done: int) -> str:
        """Where these have been what they are for some seconds, how long; "" else."""
        now = self._clock()
        standing = (dataclasses.replace(counters, retries=0, failures=0), done)
        if standing != self._known:
            self._known, self._since = standing, now
        return f", nothing finished for {now - self._since:.0f} s" if now - self._since >= _SILENT_SECONDS else ""


def unanswered(end: RemoteEnd, what: str) -> CacheError:
    """What to raise where a server did not do something, once all else has been told."""
    advice = _ADVICE_WHERE_SLOW if end.counters.retries else _ADVICE
    return CacheError(f"{end.addresses[0]} {what}", advice=advice)


def wait_until(done: Callable[[], bool], meanwhile: Callable[[], object]) -> None:
    """For what comes to an end by itself: every request has its deadlines, and is made again so often; a server that
    keeps failing is asked nothing any more.
    """
    while not done():
        meanwhile()
        time.sleep(0.02)


def moved(count: int, size_bytes: int) -> str:
    """`98 results, 1.2 GB`."""
    return f"{text.plural(count, 'result')}, {byte_count(size_bytes)}"


def lacking_document(lacking: Sequence[MissingResult]) -> list[dict[str, str]]:
    """The same for programs."""
    return [{"action": each.identifier, "reason": each.message or each.reason.value} for each in lacking]


def and_needed_by(beyond: int) -> str:
    return f", and {beyond:,} more that need them" if beyond else ""
