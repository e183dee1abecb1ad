"""`mlcbuild explain`: what it does from the command line to what is printed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import dropwhile, islice
from pathlib import Path

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.build.targets import targets_of
from mlcbuild.cli.explain.explanation import Explanation
from mlcbuild.cli.explain.other_machine import OtherMachine
from mlcbuild.cli.explain.output import explanation_lines, file_diffs, lines_of_diffs
from mlcbuild.cli.explain.reasons import Reasons, failed_in
from mlcbuild.cli.inspection.survey import SurveyParts, SurveyRequest, surveying
from mlcbuild.cli.log.listings import build_title, record_directory
from mlcbuild.cli.log.records import BuildRecord, chosen, iterate
from mlcbuild.cli.log.stored_results import StoredResults
from mlcbuild.cli.output import text
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.cli.workspace.opening import open_workspace
from mlcbuild.cli.workspace.skipped import skipped_notes
from mlcbuild.errors import MlcbuildError
from mlcbuild.workspace.collector import without_collector

_MOST_WAITING = 5
_MOST_BUILDS = 20  # in which an action that has no result is looked for


@dataclass(frozen=True, kw_only=True)
class ExplainRequest:
    """What the command line asks for. `build` "": what would run now, or if that is nothing, the last build."""

    patterns: tuple[str, ...]
    build: str = ""
    against: Path | None = None
    survey: SurveyRequest


@without_collector()
def explain_targets(request: ExplainRequest, output: OutputFormat, options: GlobalOptions) -> None:
    """Print the explanations. Raises UsageError, WorkspaceErrors, and what a survey raises."""
    workspace = open_workspace(options.directory, to_load=True)
    loaded = workspace.load(request.patterns, request.survey.configuration, request.survey.overrides)
    analysis = workspace.analyse(loaded, request.survey.disk_cache)
    for note in (*loaded.nothing_matches, *skipped_notes(analysis)):
        options.note(note)
    folder = f"{workspace.settings.output}/{loaded.configuration.name}"
    targets = targets_of(analysis.requested, output=folder, runs_tests=True)
    other = OtherMachine.read(request.against) if request.against else None
    if request.build:
        chosen(record_directory(options), request.build)  # An error in it is told before the work.
    if other is not None:
        with_actions = {action.owner for action in analysis.actions}
        for label in other.lacking([str(each.label) for each in analysis.requested if str(each.label) in with_actions]):
            options.note(f"{other.path} has no action of {label}")
    disk_cache, remote = request.survey.disk_cache, request.survey.remote(workspace, options)
    with surveying(workspace, analysis, targets, disk_cache=disk_cache, remote=remote, say=options.note) as parts:
        stored = StoredResults(disk_cache)
        owners = frozenset(str(label) for label in analysis.targets)
        reasons = Reasons(parts.survey, stored, failed=_failed(owners, iterate(record_directory(options))))
        printer = _Printer(parts=parts, stored=stored, root=workspace.root, output=output, options=options)
        if other is not None:
            other.check_function(parts.survey.store.function.value)
            printer.against(other, reasons)
            return
        explanations = [] if request.build else list(reasons.now())
        if explanations or not analysis.requested:
            printer.now(explanations)
            return
        record = _record(request.build, owners, options)
        if record is None:
            printer.past(None, [], was_asked=bool(request.build))
            return
        older = dropwhile(lambda each: each.began >= record.began, iterate(record_directory(options)))
        reasons = Reasons(parts.survey, stored, failed=_failed(owners, older))
        printer.past(record, list(reasons.of_record(record, owners)), was_asked=bool(request.build))


def _record(build: str, owners: frozenset[str], options: GlobalOptions) -> BuildRecord | None:
    """The build that is asked for, or the newest in which an action of these targets ran."""
    directory = record_directory(options)
    if build:
        return chosen(directory, build)
    return next((record for record in iterate(directory) if record.ran_for(owners)), None)


def _failed(owners: frozenset[str], builds: Iterator[BuildRecord]) -> frozenset[str]:
    return failed_in(islice(builds, _MOST_BUILDS), owners)


@dataclass(frozen=True, kw_only=True)
class _Printer:
    parts: SurveyParts
    stored: StoredResults
    root: Path
    output: OutputFormat
    options: GlobalOptions

    def now(self, explanations: Sequence[Explanation]) -> None:
        waiting = [each for each in explanations if each.what == "waits" and not each.differences]
        shown = [each for each in explanations if each.what != "waits" or each.differences]
        if self.output is OutputFormat.JSON:
            self._json("now", explanations)
            return
        self._print(shown)
        if waiting:
            verb = "waits" if len(waiting) == 1 else "wait"
            start = f"{text.plural(len(waiting), 'action')} {verb} for these:"
            names = text.first_of([text.printable(each.title) for each in waiting], _MOST_WAITING)
            self.options.show(text.listed(names, start=start, indent=2))
        self._note_unknown()

    def past(self, record: BuildRecord | None, explanations: Sequence[Explanation], *, was_asked: bool) -> None:
        if self.output is OutputFormat.JSON:
            self._json(record.invocation if record else "", explanations)
            return
        if not was_asked:
            self.options.note("nothing would run" + (f"; this is what ran {build_title(record)}" if record else ""))
        elif not explanations:
            self.options.note("nothing of these targets ran in that build")
        self._print(explanations)

    def against(self, other: OtherMachine, reasons: Reasons) -> None:
        compared = other.compare(self.parts.survey, reasons)
        if self.output is OutputFormat.JSON:
            document = self._document(compared.differing)
            print_json(
                {
                    "against": str(other.path),
                    "equal": compared.equal,
                    "actions": document,
                    "following": [each.identifier for each in compared.following],
                    "not_known_here": list(compared.unknown_here),
                    "not_known_there": list(compared.unknown_there),
                }
            )
            return
        self._print(compared.differing)
        have = "has" if compared.equal == 1 else "have"
        counts = [f"{text.plural(compared.equal, 'action')} {have} the same key on both machines"]
        if compared.following:
            counts.append(f"{len(compared.following):,} differ because of the outputs of others")
        if compared.unknown_here:
            counts.append(f"{len(compared.unknown_here):,} without a key here yet")
        if compared.unknown_there:
            counts.append(f"{len(compared.unknown_there):,} without a key in the report")
        self.options.show(["; ".join(counts)])

    def _print(self, explanations: Sequence[Explanation]) -> None:
        diffs = self._diffs(explanations)
        self.options.show(explanation_lines(explanations, diffs, self._version), verbatim=lines_of_diffs(diffs))

    def _json(self, build: str, explanations: Sequence[Explanation]) -> None:
        print_json({"build": build, "actions": self._document(explanations)})

    def _document(self, explanations: Sequence[Explanation]) -> list[dict[str, object]]:
        diffs = self._diffs(explanations)
        return [each.document(diffs) for each in explanations]

    def _diffs(self, explanations: Sequence[Explanation]) -> dict[str, list[str]]:
        return file_diffs(explanations, self.stored.blob, self._file)

    def _file(self, path: str) -> bytes | None:
        try:
            return (self.root / path).read_bytes()
        except OSError:
            return None

    def _version(self, toolchain: str) -> str:
        try:
            return self.parts.toolchains.version(toolchain)
        except (MlcbuildError, OSError):
            return ""

    def _note_unknown(self) -> None:
        from mlcbuild.cli.inspection.aquery import announces_unknown

        for each in self.parts.survey.actions.values():
            if announces_unknown(each):
                self.options.note(f"what {each.action.title} announces is known once it has run")
