"""`mlcbuild diff`: from the command line to what is printed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from mlcbuild.cache.file_digests import FileDigests
from mlcbuild.cli.affected.own_code import OwnCode
from mlcbuild.cli.affected.revision import checked_out
from mlcbuild.cli.affected.revision_digests import RevisionDigests
from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.diff.comparison import ComparedAction, compared
from mlcbuild.cli.diff.ir import OutputDifference, has_ir_to_compare, ir_differences
from mlcbuild.cli.diff.output import comparison_document, comparison_lines, ir_lines
from mlcbuild.cli.diff.side import Side, recorded_side, surveyed_side
from mlcbuild.cli.explain.output import file_diffs, lines_of_diffs
from mlcbuild.cli.inspection.survey import SurveyParts, SurveyRequest, surveying
from mlcbuild.cli.log.listings import build_title, record_directory
from mlcbuild.cli.log.records import chosen
from mlcbuild.cli.log.stored_results import StoredResults
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.cli.rendering.opening import renderer_of
from mlcbuild.cli.settings.remote import ResolvedRemote
from mlcbuild.cli.workspace.opening import OpenWorkspace, open_workspace
from mlcbuild.engine.survey import all_wanted
from mlcbuild.errors import MlcbuildError, UsageError
from mlcbuild.rules.analysis import Analysis
from mlcbuild.suggestions import known_values
from mlcbuild.workspace.collector import without_collector
from mlcbuild.workspace.label import parse_label
from mlcbuild.workspace.pattern import Pattern, parse_pattern

_FORMS = (
    "`mlcbuild diff TARGET OTHER` compares two targets",
    "`mlcbuild diff PATTERN… --since REV` compares a revision with now,",
    "`--against-config NAME` two configurations, `--build N` a recorded build with now,",
    "and `--set …` the files as they are with other values",
)


@dataclass(frozen=True, kw_only=True)
class DiffRequest:
    """What the command line asks for. `survey` describes the side of now, `mnemonic` "" means all stages."""

    patterns: tuple[str, ...]
    since: str = ""
    against_configuration: str = ""
    builds: tuple[str, ...] = ()
    mnemonic: str = ""
    ir: bool = False
    survey: SurveyRequest

    def check(self) -> None:
        """Raise UsageError unless it says, in one way, what to compare with what."""
        ways = [
            name
            for name, given in (
                ("--since", self.since),
                ("--against-config", self.against_configuration),
                ("--build", self.builds),
            )
            if given
        ]
        if len(ways) > 1:
            raise UsageError(f"{' and '.join(ways)} name two things to compare with", advice=("give one of them",))
        if len(self.builds) > 2:
            raise UsageError("--build is given more than twice", advice=("give the two builds to compare",))
        if len(self.builds) == 2 and self.survey.asks_remote:
            raise UsageError("recorded builds are compared by what was recorded here", advice=("ask no remote cache",))
        if len(self.builds) == 2 and self.survey.overrides:
            raise UsageError("--set does not change recorded builds", advice=("leave it out",))
        if not self.patterns and len(self.builds) < 2:
            raise UsageError("no targets", advice=_FORMS)
        if not ways and not self.survey.overrides and len(self.patterns) != 2:
            raise UsageError(f"nothing to compare {' '.join(self.patterns)} with", advice=_FORMS)


@dataclass(frozen=True, kw_only=True)
class _Surveyed:
    side: Side
    parts: SurveyParts
    analysis: Analysis
    root: Path


@without_collector()
def print_differences(request: DiffRequest, output: OutputFormat, options: GlobalOptions) -> None:
    """Print the comparison. Raises UsageError, WorkspaceErrors, and what a survey raises."""
    request.check()
    stored = StoredResults(request.survey.disk_cache)
    workspace = open_workspace(options.directory, to_load=True)
    with ExitStack() as stack:
        before, now, surveyed = _sides(request, workspace, stored, options, stack)
        actions = _of_mnemonic(compared(before, now), request.mnemonic)
        explanations = [each.explanation for each in actions if each.explanation]
        diffs = file_diffs(explanations, stored.blob, _reader(surveyed.root if surveyed else workspace.root))
        differences = _ir(actions, request, workspace, options) if request.ir else None
        if output is OutputFormat.JSON:
            print_json(comparison_document(before, now, actions, diffs, differences))
            return
        style = options.style(sys.stdout)
        if differences is None:
            version = _version_of(surveyed.parts) if surveyed else lambda _: ""
            lines = comparison_lines(before, now, actions, diffs, version, style)
            options.show(lines, verbatim=lines_of_diffs(diffs))
            return
        for each in differences:
            if each.missing:
                options.note(f"no text of {each.action}{f': {each.path}' if each.path else ''}: {each.missing}")
        if lines := ir_lines(differences, style):
            print("\n".join(lines))
        elif not any(each.missing for each in differences):
            options.note("no IR differs" + ("" if request.mnemonic else " in actions that differ by themselves"))


def _of_mnemonic(actions: list[ComparedAction], mnemonic: str) -> list[ComparedAction]:
    if not mnemonic:
        return actions
    found = [each for each in actions if each.shown.mnemonic.casefold() == mnemonic.casefold()]
    if not found:
        known = dict.fromkeys(each.shown.mnemonic for each in actions)
        raise UsageError(f'no action "{mnemonic}" is compared', advice=(known_values(mnemonic, known),))
    return found


def _ir(
    actions: Sequence[ComparedAction],
    request: DiffRequest,
    workspace: OpenWorkspace,
    options: GlobalOptions,
) -> list[OutputDifference]:
    wanted = [each for each in actions if has_ir_to_compare(each, request.mnemonic)]
    if not wanted:
        return []
    with renderer_of(workspace, request.survey.disk_cache, options) as renderer:
        return ir_differences(wanted, renderer)


def _sides(
    request: DiffRequest, workspace: OpenWorkspace, stored: StoredResults, options: GlobalOptions, stack: ExitStack
) -> tuple[Side, Side, _Surveyed | None]:
    """Both sides, and the survey of now unless both are records."""
    survey = request.survey
    if len(request.builds) == 2:
        patterns = [parse_pattern(text, package=workspace.current_package) for text in request.patterns]
        wants = _wants_by_pattern(patterns)
        before, now = (_recorded(name, stored, wants, options) for name in request.builds)
        return before, now, None
    surveyed = partial(_surveyed, remote=survey.remote(workspace, options), say=options.note)
    two_targets = not (request.since or request.against_configuration or request.builds or survey.overrides)
    if two_targets:
        one, other = (
            stack.enter_context(surveyed(workspace, (label,), survey, label, single=True)) for label in request.patterns
        )
        return one.side, other.side, other
    here = _title(survey) if request.against_configuration else "the workspace as it is"
    if survey.overrides and not request.against_configuration:
        here = f"the workspace with {', '.join(survey.overrides)}"
    now_surveyed = stack.enter_context(surveyed(workspace, request.patterns, survey, here))
    if request.builds:
        owners = frozenset(str(label) for label in now_surveyed.analysis.targets)
        before = _recorded(request.builds[0], stored, owners.__contains__, options)
    elif request.since:
        before = _at_revision(request, workspace, surveyed, options, stack)
    else:
        former = replace(survey, overrides=())
        if request.against_configuration:
            former = replace(survey, configuration=request.against_configuration)
        title = _title(former) if request.against_configuration else "the files as they are"
        before = stack.enter_context(surveyed(workspace, request.patterns, former, title)).side
    return before, now_surveyed.side, now_surveyed


def _title(survey: SurveyRequest) -> str:
    return f"configuration {survey.configuration or 'default'}"


def _at_revision(
    request: DiffRequest,
    workspace: OpenWorkspace,
    survey: Callable[..., AbstractContextManager[_Surveyed]],
    options: GlobalOptions,
    stack: ExitStack,
) -> Side:
    revision = stack.enter_context(checked_out(workspace.root, request.since, output=workspace.settings.output))
    own = OwnCode(workspace.root, revision)
    if path := own.analysis_changed():
        options.note(f"mlcbuild itself changed since then ({path}): targets become actions as they do now")
    try:
        former = open_workspace(revision.root)
        title = f"{request.since} ({revision.commit[:8]})" if request.since != revision.commit else request.since
        digests = RevisionDigests(workspace, revision)
        surveyed = survey(former, request.patterns, request.survey, title, digests=digests, own_code=own.former)
        return stack.enter_context(surveyed).side
    except UsageError:
        raise
    except MlcbuildError as error:
        first = str(error).splitlines()[0].replace(f"{revision.root}/", "")
        raise UsageError(
            f"the workspace at {request.since} cannot be compared: {first}", advice=("name targets that it has",)
        ) from None


@contextmanager
def _surveyed(
    workspace: OpenWorkspace,
    patterns: Sequence[str],
    survey: SurveyRequest,
    title: str,
    *,
    single: bool = False,
    digests: FileDigests | None = None,
    own_code: Path | None = None,
    remote: ResolvedRemote | None,
    say: Callable[[str], object],
) -> Iterator[_Surveyed]:
    loaded = workspace.load(patterns, survey.configuration, survey.overrides)
    analysis = workspace.analyse(loaded, survey.disk_cache)
    if single and len(analysis.requested) != 1:
        raise UsageError(
            f'"{patterns[0]}" matches {len(analysis.requested)} targets; two single targets are compared',
            advice=(f"mlcbuild query '{patterns[0]}' lists them",),
        )
    with surveying(
        workspace,
        analysis,
        all_wanted(analysis.actions),
        disk_cache=survey.disk_cache,
        digests=digests,
        own_code=own_code,
        remote=remote,
        say=say,
    ) as parts:
        side = surveyed_side(title, parts.survey, list(parts.survey.actions.values()))
        yield _Surveyed(side=side, parts=parts, analysis=analysis, root=workspace.root)


def _recorded(build: str, stored: StoredResults, wants: Callable[[str], bool], options: GlobalOptions) -> Side:
    record = chosen(record_directory(options), build)
    return recorded_side(f"the build of {build_title(record)}", record, stored, wants)


def _wants_by_pattern(patterns: Sequence[Pattern]) -> Callable[[str], bool]:
    def wants(label: str) -> bool:
        if not patterns:
            return True
        parsed = parse_label(label, package="")
        return any(each.matches(parsed) for each in patterns)

    return wants


def _reader(root: Path) -> Callable[[str], bytes | None]:
    def read(path: str) -> bytes | None:
        try:
            return (root / path).read_bytes()
        except OSError:
            return None

    return read


def _version_of(parts: SurveyParts) -> Callable[[str], str]:
    def version(toolchain: str) -> str:
        try:
            return parts.toolchains.version(toolchain)
        except (MlcbuildError, OSError):
            return ""

    return version
