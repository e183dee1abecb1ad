"""Surveys of the states that `mlcbuild diff` compares: the workspace as it is, and as it was at a revision of Git."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.cache.file_digests import FileDigests
from mlcbuild.cli.affected.own_code import OwnCode
from mlcbuild.cli.affected.revision import checked_out
from mlcbuild.cli.affected.revision_digests import RevisionDigests
from mlcbuild.cli.diff.side import Side, surveyed_side
from mlcbuild.cli.inspection.survey import SurveyParts, SurveyRequest, surveying
from mlcbuild.cli.settings.remote import ResolvedRemote
from mlcbuild.cli.workspace.opening import OpenWorkspace, open_workspace
from mlcbuild.engine.survey import all_wanted
from mlcbuild.errors import MlcbuildError, UsageError
from mlcbuild.rules.analysis import Analysis


@dataclass(frozen=True, kw_only=True)
class Surveyed:
    """A state, and the survey that found it. `root` has its files."""

    side: Side
    parts: SurveyParts
    analysis: Analysis
    root: Path


@dataclass(frozen=True, kw_only=True)
class Surveying:
    """Makes surveys, which live as long as `stack`. `say` prints a note."""

    workspace: OpenWorkspace
    remote: ResolvedRemote | None
    say: Callable[[str], object]
    stack: ExitStack

    def target(self, label: str, survey: SurveyRequest) -> Surveyed:
        """A single target with what it needs. Raises UsageError if `label` is a pattern that matches several."""
        return self._surveyed(self.workspace, (label,), survey, label, single=True)

    def files_as_they_are(self, patterns: Sequence[str], survey: SurveyRequest, title: str) -> Surveyed:
        """Targets of the workspace, with the overrides of `survey`."""
        return self._surveyed(self.workspace, patterns, survey, title)

    def revision(self, name: str, patterns: Sequence[str], survey: SurveyRequest) -> Surveyed:
        """Targets at a revision of Git. Raises UsageError if there is none, or if its workspace cannot be read."""
        workspace = self.workspace
        revision = self.stack.enter_context(checked_out(workspace.root, name, output=workspace.settings.output))
        own = OwnCode(workspace.root, revision)
        title = f"{name} ({revision.commit[:8]})" if name != revision.commit else name
        try:
            former = open_workspace(revision.root)
            digests = RevisionDigests(workspace, revision)
            return self._surveyed(former, patterns, survey, title, digests=digests, own_code=own.former)
        except UsageError:
            raise
        except MlcbuildError as error:
            first = str(error).splitlines()[0].replace(f"{revision.root}/", "")
            raise UsageError(
                f"the workspace at {name} cannot be compared: {first}", advice=("name targets that it has",)
            ) from None
        finally:
            if path := own.analysis_changed():
                self.say(f"mlcbuild itself changed since {name} ({path}): targets become actions as they do now")

    def _surveyed(
        self,
        workspace: OpenWorkspace,
        patterns: Sequence[str],
        survey: SurveyRequest,
        title: str,
        *,
        single: bool = False,
        digests: FileDigests | None = None,
        own_code: Path | None = None,
    ) -> Surveyed:
        loaded = workspace.load(patterns, survey.configuration, survey.overrides)
        analysis = workspace.analyse(loaded, survey.disk_cache)
        if single and len(analysis.requested) != 1:
            raise UsageError(
                f'"{patterns[0]}" matches {len(analysis.requested)} targets; two single targets are compared',
                advice=(f"mlcbuild query '{patterns[0]}' lists them",),
            )
        parts = self.stack.enter_context(
            surveying(
                workspace,
                analysis,
                all_wanted(analysis.actions),
                disk_cache=survey.disk_cache,
                digests=digests,
                own_code=own_code,
                remote=self.remote,
                say=self.say,
            )
        )
        side = surveyed_side(title, parts.survey, list(parts.survey.actions.values()))
        return Surveyed(side=side, parts=parts, analysis=analysis, root=workspace.root)
