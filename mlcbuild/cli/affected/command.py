"""`mlcbuild affected`: from the command line to what is printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import mlcbuild
from mlcbuild.cache.file_digests import FileDigests
from mlcbuild.cli.affected.comparison import Comparison, WorkspaceState
from mlcbuild.cli.affected.revision import Revision, checked_out
from mlcbuild.cli.affected.revision_digests import RevisionDigests
from mlcbuild.cli.arguments.options import AffectedOutput, GlobalOptions
from mlcbuild.cli.inspection.survey import SurveyRequest, surveying, without_collector
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.settings.remote import ResolvedRemote
from mlcbuild.cli.workspace.opening import OpenWorkspace, open_workspace
from mlcbuild.engine.survey import all_wanted
from mlcbuild.errors import MlcbuildError
from mlcbuild.rules.analysis import analyse

_EVERYTHING = "//..."
_OWN_FOLDERS = ("mlcbuild/", "rules/", "cache/")


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
        print(f"{label}  {reason}" if output is AffectedOutput.TEXT else label)


def _compared(workspace: OpenWorkspace, now: WorkspaceState, revision: Revision, surveys: _Surveys) -> dict[str, str]:
    """The reasons of the affected targets by label. If the revision has errors, all targets are affected."""
    if own := own_changes(workspace.root, revision):
        return {str(target.label): f"mlcbuild itself changed: {own}" for target in now.analysis.requested}
    digests = RevisionDigests(workspace, revision)
    try:
        former = open_workspace(revision.root)
        with surveys.state(former, (_EVERYTHING,), digests) as before:
            comparison = Comparison(
                before=before,
                now=now,
                is_changed=digests.is_changed,
                has_changed_code=any(_may_be_code(path, workspace.root, revision.root) for path in revision.changed),
            )
            return {str(label): reason for label, reason in comparison.affected().items()}
    except MlcbuildError as error:
        first = str(error).splitlines()[0].replace(f"{revision.root}/", "")
        reason = f"the workspace has errors at that revision: {first}"
        return {str(target.label): reason for target in now.analysis.requested}


def _may_be_code(path: str, *roots: Path) -> bool:
    """Whether a file is a Python module, or lies beside one, which may read it."""
    folders = [(root / path).parent for root in roots]
    return path.endswith(".py") or any(next(folder.glob("*.py"), None) for folder in folders if folder.is_dir())


def own_changes(root: Path, revision: Revision) -> str:
    """A changed file of mlcbuild, if the workspace is a checkout of it that is running now; "" if there is none.

    The revision's own mlcbuild is not run, so what it would do is not known.
    """
    if Path(mlcbuild.__file__).parent.resolve() != (root / "mlcbuild").resolve():
        return ""
    return next((path for path in sorted(revision.changed) if path.startswith(_OWN_FOLDERS)), "")


@dataclass(frozen=True, kw_only=True)
class _Surveys:
    """How both states are surveyed."""

    request: SurveyRequest
    remote: ResolvedRemote | None
    say: Callable[[str], None]

    @contextmanager
    def state(
        self, workspace: OpenWorkspace, patterns: Sequence[str], digests: FileDigests | None
    ) -> Iterator[WorkspaceState]:
        loaded = workspace.load(patterns, self.request.configuration, self.request.overrides)
        analysis = analyse(loaded, workspace.rules)
        with surveying(
            workspace,
            analysis,
            all_wanted(analysis.actions),
            disk_cache=self.request.disk_cache,
            digests=digests,
            remote=self.remote,
            say=self.say,
        ) as parts:
            yield WorkspaceState(loaded=loaded, analysis=analysis, survey=parts.survey)
