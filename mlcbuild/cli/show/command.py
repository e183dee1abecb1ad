"""`mlcbuild show`: from the command line to what is printed."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.build.targets import targets_of
from mlcbuild.cli.inspection.aquery import announces_unknown
from mlcbuild.cli.inspection.survey import SurveyParts, SurveyRequest, surveying
from mlcbuild.cli.log.listings import record_directory
from mlcbuild.cli.output import text
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.cli.rendering.opening import renderer_of
from mlcbuild.cli.show.dump import DumpedAction, check_folder, write_dump
from mlcbuild.cli.show.ir import FilesOfAction, ir_documents, print_changes, print_ir
from mlcbuild.cli.show.kernels import KernelsBySource, kernel_lines, metadata_entry, read_kernels, summary
from mlcbuild.cli.show.last_runs import LastRuns
from mlcbuild.cli.show.output import action_lines, list_of_mnemonic, target_table
from mlcbuild.cli.show.shown_action import ActionViewer
from mlcbuild.cli.show.wanted import Wanted, chosen_of
from mlcbuild.cli.workspace.opening import OpenWorkspace, open_workspace
from mlcbuild.engine.action import DerivedArtifact
from mlcbuild.engine.executor import FileEntry
from mlcbuild.engine.survey import SurveyedAction, all_wanted
from mlcbuild.errors import MlcbuildError, UsageError
from mlcbuild.rules.analysis import AnalysedTarget
from mlcbuild.workspace.collector import without_collector

_MOST_NAMED = 10


@dataclass(frozen=True, kw_only=True)
class ShowRequest:
    """What the command line asks for. `words` are TARGET, MNEMONIC and those of a kernel; the last ones may be ""."""

    words: tuple[str, ...]
    build: str = ""
    ir: bool = False
    changes: bool = False
    dump: Path | None = None
    passes: bool = False
    survey: SurveyRequest

    @property
    def disk_cache(self) -> Path | None:
        return self.survey.disk_cache


@dataclass(frozen=True, kw_only=True)
class SurveyedTarget:
    """A target, and its own actions in the order of the pipeline. `others` are actions that it needs, by target."""

    target: AnalysedTarget
    workspace: OpenWorkspace
    parts: SurveyParts
    actions: tuple[SurveyedAction, ...]
    others: dict[str, list[SurveyedAction]]
    viewer: ActionViewer

    @property
    def label(self) -> str:
        return str(self.target.label)

    def chosen(self, wanted: Wanted) -> list[SurveyedAction]:
        """The actions that are meant. Raises UsageError where there is none."""
        try:
            return chosen_of(
                wanted,
                self.label,
                self.actions,
                mnemonic=lambda each: each.action.mnemonic,
                names=lambda each: (each.action.title, each.action.identifier),
            )
        except UsageError as error:
            having = [
                label
                for label, actions in self.others.items()
                if any(each.action.mnemonic.casefold() == wanted.mnemonic.casefold() for each in actions)
            ]
            advice = (f"{', '.join(having)} has it",) if having else error.advice
            raise UsageError(error.message, advice=advice) from None

    def bring(self, files: Iterable[Sequence[FileEntry]]) -> None:
        """Fetch what the disk cache does not have of these files from the remote cache, if one is asked."""
        if self.parts.remote is not None:
            self.parts.survey.bring([entry.digest for each in files for entry in each])

    def kernels(self, actions: Iterable[SurveyedAction]) -> KernelsBySource | None:
        """The kernels of the library whose metadata one of the actions makes; None where no cache has them."""
        for each in actions:
            entry = metadata_entry(each.action.mnemonic, self.viewer.outputs(each))
            if entry is not None:
                self.bring([[entry]])
                if not self.parts.survey.store.missing([entry.digest]):
                    return read_kernels(self.parts.survey.store.read(entry.digest))
        return None

    def version(self, toolchain: str) -> str:
        try:
            return self.parts.toolchains.version(toolchain)
        except (MlcbuildError, OSError):
            return ""


@contextmanager
def surveyed_target(request: ShowRequest, wanted: Wanted, options: GlobalOptions) -> Iterator[SurveyedTarget]:
    """Survey the target. Raises UsageError where it is not one, WorkspaceErrors, and what a survey raises."""
    workspace = open_workspace(options.directory, to_load=True)
    loaded = workspace.load((wanted.target,), request.survey.configuration, request.survey.overrides)
    analysis = workspace.analyse(loaded, request.disk_cache)
    if len(analysis.requested) != 1:
        raise UsageError(
            f'"{wanted.target}" matches {len(analysis.requested)} targets, but only one can be shown',
            advice=(f"mlcbuild query '{wanted.target}' lists them",),
        )
    (target,) = analysis.requested
    with surveying(
        workspace,
        analysis,
        all_wanted(analysis.actions),
        disk_cache=request.disk_cache,
        remote=request.survey.remote(workspace, options),
        say=options.note,
    ) as parts:
        ordered = list(parts.survey.actions.values())
        own = tuple(each for each in ordered if each.action.owner == str(target.label))
        others: dict[str, list[SurveyedAction]] = {}
        for each in ordered:
            if each.action.owner != str(target.label):
                others.setdefault(each.action.owner, []).append(each)
        (placed,) = targets_of((target,), output=f"{workspace.settings.output}/{loaded.configuration.name}")
        places: dict[str, tuple[str, ...]] = {}
        for name, artifact in placed.outputs:
            path = f"{placed.directory}/{name}"
            if isinstance(artifact, DerivedArtifact) and (workspace.root / path).exists():
                places[artifact.action] = (*places.get(artifact.action, ()), path)
        viewer = ActionViewer(
            survey=parts.survey,
            runs=LastRuns.read(record_directory(options), {each.action.identifier for each in own}),
            state_directory=workspace.state_directory,
            placed=places,
        )
        yield SurveyedTarget(target=target, workspace=workspace, parts=parts, actions=own, others=others, viewer=viewer)


@without_collector()
def show_actions(request: ShowRequest, output: OutputFormat, options: GlobalOptions) -> None:
    """Print the actions. Raises UsageError, WorkspaceErrors, and what a survey raises."""
    wanted = Wanted.read(request.words)
    _check(request, wanted, output)
    if request.build:
        from mlcbuild.cli.show.recorded import print_recorded

        print_recorded(wanted, request.build, disk_cache=request.disk_cache, output=output, options=options)
        return
    with surveyed_target(request, wanted, options) as target:
        if request.dump is not None:
            _dump(target, request.dump, request, output, options)
        elif request.ir or request.changes:
            _print_texts(target, wanted, request, output, options)
        else:
            _print(target, wanted, output, options)


def _check(request: ShowRequest, wanted: Wanted, output: OutputFormat) -> None:
    """Raise UsageError for options that do not go together."""
    for option, given in (("--ir", request.ir), ("--changes", request.changes)):
        if given and not wanted.mnemonic:
            raise UsageError(
                f"{option} needs a MNEMONIC", advice=(f"`mlcbuild show {wanted.target}` lists the actions",)
            )
        if given and request.build:
            raise UsageError(f"{option} and --build do not go together", advice=("`mlcbuild diff` compares builds",))
    if request.build and request.survey.asks_remote:
        raise UsageError(
            "--build shows what was recorded here, and asks no remote cache",
            advice=("leave out --build, or --remote and --ask-remote",),
        )
    if request.passes and request.dump is None:
        raise UsageError("--passes needs --dump", advice=("give the folder for the texts: --dump DIR",))
    if request.dump is not None:
        for other, option in ((request.ir, "--ir"), (request.changes, "--changes"), (request.build, "--build")):
            if other:
                raise UsageError(f"--dump and {option} do not go together")
        if wanted.mnemonic:
            raise UsageError("--dump writes all stages of a target", advice=("leave out MNEMONIC, or give --ir",))
        check_folder(request.dump)
    if request.changes and output is OutputFormat.JSON:
        raise UsageError("--changes is a text", advice=("leave out --output",))


def _print_texts(
    target: SurveyedTarget, wanted: Wanted, request: ShowRequest, output: OutputFormat, options: GlobalOptions
) -> None:
    chosen = [
        FilesOfAction(
            title=each.action.title,
            target=target.label,
            inputs=each.inputs,
            outputs=target.viewer.outputs(each),
        )
        for each in target.chosen(wanted)
    ]
    style = options.style(sys.stdout)
    target.bring([*(each.outputs or () for each in chosen), *(each.inputs for each in chosen if request.changes)])
    with renderer_of(target.workspace, request.disk_cache, options) as renderer:
        if request.changes:
            if len(chosen) > 1:
                raise UsageError(
                    f"{len(chosen)} actions match, but only the changes of one can be shown",
                    advice=tuple(each.title for each in chosen[:_MOST_NAMED]),
                )
            print_changes(chosen[0], renderer, style)
        elif output is OutputFormat.JSON:
            print_json(
                {
                    "target": target.label,
                    "actions": [{"action": each.title, "outputs": ir_documents(each, renderer)} for each in chosen],
                }
            )
        else:
            print_ir(chosen, renderer, style, options.note)


def _dump(
    target: SurveyedTarget, folder: Path, request: ShowRequest, output: OutputFormat, options: GlobalOptions
) -> None:
    """Write the dump and print its folder. Raises UsageError if the disk cache has no result of any action."""
    results = [(each, target.viewer.outputs(each)) for each in target.actions]
    actions = [DumpedAction(surveyed=each, outputs=outputs) for each, outputs in results if outputs is not None]
    absent = [each for each, outputs in results if outputs is None]
    build = f"`mlcbuild build {target.label}` makes it"
    if not actions:
        raise UsageError(f"the disk cache has no result of {target.label}", advice=(build,))
    target.bring([*(each.outputs for each in actions), *(each.surveyed.inputs for each in actions if request.passes)])
    with renderer_of(target.workspace, request.disk_cache, options) as renderer:
        dump = write_dump(target.label, actions, folder, renderer, passes=request.passes)
    if output is OutputFormat.JSON:
        print_json(
            {
                "directory": str(folder),
                "files": dump.files,
                "missing": [{"output": name, "reason": reason} for name, reason in dump.missing],
                "not_built": [each.action.identifier for each in absent],
            }
        )
        return
    print(folder)
    reasons = Counter(reason for _, reason in dump.missing if "no text" not in reason)
    for reason, count in reasons.items():
        options.note(f"{text.plural(count, 'output')} without text: {reason}")
    if absent:
        options.note(f"the disk cache has no result of {text.plural(len(absent), 'action')}: {build}")


def _print(target: SurveyedTarget, wanted: Wanted, output: OutputFormat, options: GlobalOptions) -> None:
    chosen = target.chosen(wanted)
    viewer = target.viewer
    unknown = [each for each in target.actions if announces_unknown(each)]
    kernels = target.kernels(chosen)
    if output is OutputFormat.JSON:
        print_json(
            {
                "target": target.label,
                "actions": [viewer.document(viewer.view(each)) for each in chosen],
                "kernels": kernels,
                "needs": {label: [each.action.identifier for each in group] for label, group in target.others.items()},
                "not_known": [{"announced_by": each.action.identifier} for each in unknown],
            }
        )
        return
    style = options.style(sys.stdout)
    if wanted.mnemonic and len(chosen) == 1:
        (only,) = chosen
        source = target.parts.survey.keys.source_of(only.action, only.inputs)
        lines = action_lines(viewer.view(only), source, target.version, viewer.blob_path, style)
        options.show(lines + (kernel_lines(kernels, style) if kernels else []))
        return
    views = [viewer.view(each, with_details=False) for each in chosen]
    if wanted.mnemonic:
        options.show(list_of_mnemonic(target.label, views, style))
        return
    if views:
        options.show(target_table(target.label, views, style))
    else:
        print(f"{style.bold(target.label)}  no actions")
    if kernels:
        options.show([summary(kernels)])
    if target.others:
        needed = ", ".join(f"{label} ({len(group)})" for label, group in target.others.items())
        options.show([f"it needs actions of {needed}"])
    for each in unknown:
        options.note(f"the actions that {each.action.title} announces are known once it has run")
