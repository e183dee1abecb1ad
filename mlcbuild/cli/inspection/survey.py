"""Surveys the actions of targets for commands that only look."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.disk import DiskStore, default_root
from mlcbuild.cache.file_digests import FileDigests
from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.settings.remote import RemoteOptions, ResolvedRemote, resolve_remote
from mlcbuild.cli.workspace.opening import OpenWorkspace
from mlcbuild.engine.implementation import Implementations
from mlcbuild.engine.last_build import STATE_FILE, LastBuild
from mlcbuild.engine.scheduler_events import RequestedTarget
from mlcbuild.engine.survey import Survey
from mlcbuild.errors import UsageError
from mlcbuild.rules.analysis import Analysis
from mlcbuild.toolchains.table import Toolchains

if TYPE_CHECKING:
    from mlcbuild.cache.remote.remote_store import RemoteStore


@dataclass(frozen=True, kw_only=True)
class SurveyRequest:
    """What the command line asks of a survey. `overrides` are those of `--set`.

    A remote cache is asked if `remote_address` names one, or with `ask_remote` the one that the settings name.
    """

    configuration: str = ""
    overrides: tuple[str, ...] = ()
    disk_cache: Path | None = None
    remote_address: str = ""
    ask_remote: bool = False

    @property
    def asks_remote(self) -> bool:
        return bool(self.remote_address) or self.ask_remote

    def remote(self, workspace: OpenWorkspace, options: GlobalOptions) -> ResolvedRemote | None:
        """The remote cache to ask; None for none. Raises UsageError if it is to be asked, and none is set."""
        if not self.asks_remote:
            return None
        found = resolve_remote(RemoteOptions(address=self.remote_address), options.environment, workspace.settings)
        if found is None and self.ask_remote:
            raise UsageError(
                "--ask-remote: the settings name no remote cache",
                advice=(
                    "give its address: --remote ADDRESS",
                    "or set it, as `mlcbuild help remote-settings` describes",
                ),
            )
        return found


@dataclass(frozen=True, kw_only=True)
class SurveyParts:
    """A finished survey, and what it asked. `remote` is None without a remote cache."""

    survey: Survey
    toolchains: Toolchains
    store: DiskStore
    remote: RemoteStore | None


@contextmanager
def surveying(
    workspace: OpenWorkspace,
    analysis: Analysis,
    targets: Sequence[RequestedTarget],
    *,
    disk_cache: Path | None,
    digests: FileDigests | None = None,
    own_code: Path | None = None,
    remote: ResolvedRemote | None = None,
    say: Callable[[str], object] = lambda _: None,
) -> Iterator[SurveyParts]:
    """A survey of the analysed actions that `targets` want. Raises MlcbuildError.

    A `remote` is asked for results that are not on the disk, and `say` is called with what it has to tell people. It
    takes no lock: a build may run meanwhile, and the disk cache need not be writable. Of the workspace's state it
    writes what it had to compute, such as the fingerprints of toolchains. `digests` are by default those that builds
    remember, and `own_code`, the folder of mlcbuild's code, that which runs.
    """
    state = workspace.state_directory
    function = DigestFunction(workspace.settings.digest)
    store = DiskStore(disk_cache.absolute() if disk_cache else default_root(), function, to_read=True)
    toolchains = Toolchains(state / "toolchains.json")
    implementations = Implementations(
        state / "implementations.json", distributions=toolchains.distributions, root=own_code, workspace=workspace.root
    )
    cache = remote.open(function) if remote else None
    try:
        survey = Survey(
            workspace=workspace.root,
            store=store,
            toolchains=toolchains,
            implementations=implementations,
            digests=digests or FileDigests(workspace.root, function, state / "file-digests"),
            last_build=LastBuild(state / STATE_FILE),
            remote=cache,
        )
        if cache is not None:
            cache.start(say)
        survey.walk(analysis.actions, targets)
        told = tuple(survey.remote_failures)
        for failure in told:
            say(failure)
        yield SurveyParts(survey=survey, toolchains=toolchains, store=store, remote=cache)
        for failure in survey.remote_failures:
            if failure not in told:
                say(failure)
        if state.is_dir():
            toolchains.save()
            implementations.save()
    finally:
        if cache is not None:
            cache.close()
        store.release()
