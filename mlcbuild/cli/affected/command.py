"""`mlcbuild affected`: from the command line to what is printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.cache.file_digests import FileDigests
from mlcbuild.cli.affected.comparison import Comparison, WorkspaceState
from mlcbuild.cli.affected.own_code import OwnCode, means_something_else
from mlcbuild.cli.affected.revision import Revision, checked_out
from mlcbuild.cli.affected.revision_digests import RevisionDigests
from mlcbuild.cli.arguments.choices import AffectedOutput
from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.inspection.survey import SurveyRequest, surveying
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.settings.remote import ResolvedRemote
from mlcbuild.cli.workspace.opening import OpenWorkspace, open_workspace
from mlcbuild.engine.survey import all_wanted
from mlcbuild.errors import MlcbuildError
from mlcbuild.workspace.collector import without_collector

_EVERYTHING = "//..."


@without_collector()
def print_affected(
    patterns: Sequence[str], since: str, request: SurveyRequest, output: AffectedOutput, options: GlobalOptions
) -> None:
    """Print the affected targets. Raises UsageError, WorkspaceErrors for the workspace as it is now."""
    workspace = open_workspace(options.directory, to_load=True)
    wanted = tuple(patterns) or (_EVERYTHING,)
    surveys = _Surveys(request=request, remote=request.remote(workspace, options), say=options.note)
    with (
        surveys.state(workspace, wanted, None) as now,
        checked_out(workspace.root, since, output=workspace.settings.output) as revision,
    ):
        found = _compared(workspace, now, revision, surveys)
    if output is AffectedOutput.JSON:
        print_json({"since": revision.commit, "targets": found})
        return
    for label, reason in found.items():
        options.show([f"{label}  {reason}" if output is AffectedOutput.TEXT else label])


def _compared(workspace: OpenWorkspace, now: WorkspaceState, revision: Revision, surveys: _Surveys) -> dict[str, str]:
    """The reasons of the affected targets by label. If the revision has errors, all targets are affected."""
    own = OwnCode(workspace.root, revision)
    if path := own.analysis_changed():
        return {str(target.label): f"mlcbuild itself changed: {path}" for target in now.analysis.requested}
    digests = RevisionDigests(workspace, revision)
    try:
        former = open_workspace(revision.root)
        with surveys.state(former, (_EVERYTHING,), digests, own.former) as before:
            roots = (workspace.root, revision.root)
            comparison = Comparison(
                before=before,
                now=now,
                is_changed=digests.is_changed,
                has_changed_code=any(_may_change_code(path, *roots) for path in revision.changed),
            )
            return {str(label): reason for label, reason in comparison.affected().items()}
    except MlcbuildError as error:
        first = str(error).splitlines()[0].replace(f"{revision.root}/", "")
        reason = f"the workspace has errors at that revision: {first}"
        return {str(target.label): reason for target in now.analysis.requested}


def _may_change_code(path: str, *roots: Path) -> bool:
    """Whether a changed file is a Python module that means something else now, or lies beside one that may read it."""
    if not path.endswith(".py"):
        folders = [(root / path).parent for root in roots]
        return any(next(folder.glob("*.py"), None) for folder in folders if folder.is_dir())
    return means_something_else(path, *roots)


@dataclass(frozen=True, kw_only=True)
class _Surveys:
    """How both states are surveyed."""

    request: SurveyRequest
    remote: ResolvedRemote | None
    say: Callable[[str], None]

    @contextmanager
    def state(
        self,
        workspace: OpenWorkspace,
        patterns: Sequence[str],
        digests: FileDigests | None,
        own_code: Path | None = None,
    ) -> Iterator[WorkspaceState]:
        loaded = workspace.load(patterns, self.request.configuration, self.request.overrides)
        analysis = workspace.analyse(loaded, self.request.disk_cache)
        with surveying(
            workspace,
            analysis,
            all_wanted(analysis.actions),
            disk_cache=self.request.disk_cache,
            digests=digests,
            own_code=own_code,
            remote=self.remote,
            say=self.say,
        ) as parts:
            yield WorkspaceState(loaded=loaded, analysis=analysis, survey=parts.survey)
