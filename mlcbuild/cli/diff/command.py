"""`mlcbuild diff`: from the command line to what is printed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.diff.comparison import ComparedAction, compared
from mlcbuild.cli.diff.ir import OutputDifference, has_ir_to_compare, ir_differences
from mlcbuild.cli.diff.output import comparison_document, comparison_lines, ir_lines
from mlcbuild.cli.diff.side import Side, recorded_side
from mlcbuild.cli.diff.surveyed import Surveyed, Surveying
from mlcbuild.cli.explain.output import file_diffs, lines_of_diffs
from mlcbuild.cli.inspection.survey import SurveyRequest
from mlcbuild.cli.log.listings import build_title, record_directory
from mlcbuild.cli.log.records import chosen
from mlcbuild.cli.log.stored_results import StoredResults
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.cli.rendering.opening import renderer_of
from mlcbuild.cli.workspace.opening import OpenWorkspace, open_workspace
from mlcbuild.errors import MlcbuildError, UsageError
from mlcbuild.suggestions import known_values
from mlcbuild.toolchains.table import Toolchains
from mlcbuild.workspace.collector import without_collector
from mlcbuild.workspace.label import parse_label
from mlcbuild.workspace.pattern import Pattern, parse_pattern

_FORMS = (
    "`mlcbuild diff TARGET OTHER` compares two targets",
    "`mlcbuild diff PATTERN… --since REV` compares a revision with now,",
    "`--since A..B` two revisions, `--against-config NAME` two configurations,",
    "`--build N` a recorded build with now,",
    "and `--set …` the files as they are with other values",
)


def revisions(text: str) -> tuple[str, str]:
    """The revisions of `--since`: REV and "", or both of A..B, where HEAD may be left out, as in Git."""
    former, dots, later = text.partition("..")
    if later.startswith("."):
        raise UsageError(
            f"--since {text}: three dots are not understood",
            advice=(f"two compare the revisions themselves: {former}..{later.lstrip('.')}",),
        )
    return (former or "HEAD", later or "HEAD") if dots else (text, "")


@dataclass(frozen=True, kw_only=True)
class DiffRequest:
    """What the command line asks for. `survey` describes the side of now, `mnemonic` "" means all stages, `until` ""
    the files as they are."""

    patterns: tuple[str, ...]
    since: str = ""
    until: str = ""
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
class _Places:
    """Where the files of both sides are, as far as there are any, and the toolchains of now."""

    before: Path | None = None
    now: Path
    toolchains: Toolchains | None = None


@without_collector()
def print_differences(request: DiffRequest, output: OutputFormat, options: GlobalOptions) -> None:
    """Print the comparison. Raises UsageError, WorkspaceErrors, and what a survey raises."""
    request.check()
    stored = StoredResults(request.survey.disk_cache)
    workspace = open_workspace(options.directory, to_load=True)
    with ExitStack() as stack:
        before, now, places = _sides(request, workspace, stored, options, stack)
        actions = _of_mnemonic(compared(before, now), request.mnemonic)
        explanations = [each.explanation for each in actions if each.explanation]
        diffs = file_diffs(explanations, stored.blob, _reader(places.now), _reader(places.before))
        differences = _ir(actions, request, workspace, options) if request.ir else None
        if output is OutputFormat.JSON:
            print_json(comparison_document(before, now, actions, diffs, differences))
            return
        style = options.style(sys.stdout)
        if differences is None:
            lines = comparison_lines(before, now, actions, diffs, _version_of(places.toolchains), style)
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
) -> tuple[Side, Side, _Places]:
    """Both sides, and where the files of each are."""
    survey, patterns = request.survey, request.patterns
    if len(request.builds) == 2:
        parsed = [parse_pattern(text, package=workspace.current_package) for text in patterns]
        wants = _wants_by_pattern(parsed)
        before, now = (_recorded(name, stored, wants, options) for name in request.builds)
        return before, now, _Places(now=workspace.root)
    surveying = Surveying(workspace=workspace, remote=survey.remote(workspace, options), say=options.note, stack=stack)
    if not (request.since or request.against_configuration or request.builds or survey.overrides):
        one, other = (surveying.target(label, survey) for label in patterns)
        return one.side, other.side, _Places(now=other.root, toolchains=other.parts.toolchains)
    if request.until:
        surveyed = surveying.revision(request.until, patterns, survey)
    else:
        surveyed = surveying.files_as_they_are(patterns, survey, _title_of_now(request))
    former = None
    if request.builds:
        owners = frozenset(str(label) for label in surveyed.analysis.targets)
        before = _recorded(request.builds[0], stored, owners.__contains__, options)
    else:
        former = _former(request, surveying)
        before = former.side
    places = _Places(before=former.root if former else None, now=surveyed.root, toolchains=surveyed.parts.toolchains)
    return before, surveyed.side, places


def _former(request: DiffRequest, surveying: Surveying) -> Surveyed:
    survey = request.survey
    if request.since:
        return surveying.revision(request.since, request.patterns, survey)
    if request.against_configuration:
        former = replace(survey, configuration=request.against_configuration)
        return surveying.files_as_they_are(request.patterns, former, _title(former))
    return surveying.files_as_they_are(request.patterns, replace(survey, overrides=()), "the files as they are")


def _title_of_now(request: DiffRequest) -> str:
    if request.against_configuration:
        return _title(request.survey)
    if request.survey.overrides:
        return f"the workspace with {', '.join(request.survey.overrides)}"
    return "the workspace as it is"


def _title(survey: SurveyRequest) -> str:
    return f"configuration {survey.configuration or 'default'}"


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


def _reader(root: Path | None) -> Callable[[str], bytes | None]:
    def read(path: str) -> bytes | None:
        try:
            return (root / path).read_bytes() if root else None
        except OSError:
            return None

    return read


def _version_of(toolchains: Toolchains | None) -> Callable[[str], str]:
    def version(toolchain: str) -> str:
        try:
            return toolchains.version(toolchain) if toolchains else ""
        except (MlcbuildError, OSError):
            return ""

    return version
