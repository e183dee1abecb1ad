"""Analysis: loaded targets → actions and the files that are wanted.

Nothing is run, and nothing is read but folder listings, what rules check of source files (`RuleContext.read`), and
records of measurements for targets that are tuned (`RuleContext.choices`)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mlcbuild.engine.action import Action, SourceArtifact
from mlcbuild.errors import MlcbuildError, WorkspaceError, WorkspaceErrors
from mlcbuild.regular_files import read_regular
from mlcbuild.rules.backend import PlatformInfo
from mlcbuild.rules.fetched import FetchInfo
from mlcbuild.rules.providers import FilesInfo, Provider
from mlcbuild.rules.registry import place_in_rule_file
from mlcbuild.rules.rule import AnyProvider, Incompatibility, Providers, Rule, RuleContext
from mlcbuild.rules.rule_file_mistakes import advice_on
from mlcbuild.system_programs import PROGRAM_FOLDERS, program_path
from mlcbuild.tuning.choice import Choice, choices
from mlcbuild.tuning.store import RecordStore
from mlcbuild.workspace.graph import reachable
from mlcbuild.workspace.label import Label
from mlcbuild.workspace.loader import LoadedWorkspace, LoadErrors
from mlcbuild.workspace.observed import ObservedPaths, Observer
from mlcbuild.workspace.schema import COMPATIBLE_WITH, PLATFORM
from mlcbuild.workspace.source_files import source_paths
from mlcbuild.workspace.target import Target


@dataclass(frozen=True, kw_only=True)
class AnalysedTarget:
    """A target with what it provides. `axes` are the values of the axes of its matrix, as text."""

    label: Label
    rule: str
    providers: Providers
    axes: Mapping[str, str] = field(default_factory=dict)

    def provided(self, kind: type[AnyProvider]) -> AnyProvider | None:
        return next((provider for provider in self.providers if isinstance(provider, kind)), None)


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """Every action of the requested targets' closure, and the requested targets in the order of the request.

    Targets that cannot be built for their platform are left out of both, if only wildcards match them.
    """

    actions: tuple[Action, ...]
    requested: tuple[AnalysedTarget, ...]
    targets: Mapping[Label, AnalysedTarget]  # the closure
    needs: Mapping[Label, tuple[Label, ...]]  # the targets that each of the closure needs
    observed: ObservedPaths  # what decided which files there are, and what rules read
    skipped: Mapping[Label, str] = field(default_factory=dict)  # requested, but incompatible; with the reason
    load: str = ""  # the digest of what was loaded; "" where it is not known

    def narrowed(self, labels: Container[Label]) -> Analysis:
        """The same with those of the requested targets alone, and what they need."""
        requested = tuple(target for target in self.requested if target.label in labels)
        closure = reachable((target.label for target in requested), self.needs.__getitem__)
        owners = frozenset(map(str, closure))
        return replace(
            self,
            actions=tuple(action for action in self.actions if action.owner in owners),
            requested=requested,
            targets={label: self.targets[label] for label in closure},
            needs={label: self.needs[label] for label in closure},
        )


def analyse(
    workspace: LoadedWorkspace,
    rules: Mapping[str, Rule],
    records: RecordStore | None = None,
    earlier: Analysis | None = None,
) -> Analysis:
    """Run each rule's implementation, dependencies first. `records` are the measurements that targets may be tuned by;
    None stands for those of the user's disk cache.

    Of an `earlier` analysis by the same rules, whose observed paths are all as they were, targets are taken over if
    neither they nor anything that they need was edited since.

    Raises WorkspaceErrors with every mistake found, also if a target that is named by its label cannot be built for its
    platform.
    """
    configuration = workspace.configuration
    providers: dict[Label, tuple[Provider, ...]] = {}
    analysed: dict[Label, AnalysedTarget] = {}
    actions: list[Action] = []
    errors: list[WorkspaceError] = []
    incompatible: dict[Label, Incompatibility] = {}
    needs: dict[Label, tuple[Label, ...]] = {}
    listings: dict[Label, FilesInfo] = {}
    observer = Observer(workspace.settings.root, known=workspace.observed.looked_for)
    observer.will_read(*(file.path for file in workspace.settings.rules))

    def source_files(label: Label) -> FilesInfo:
        if label not in listings:
            listings[label] = list_source_files(workspace.settings.root, label, observer)
        return listings[label]

    def read_source(path: str) -> bytes:
        observer.will_read(path)
        return read_regular(workspace.settings.root / path)

    def list_folder(path: str) -> list[str]:
        folder = workspace.settings.root / path
        observer.will_read(path)
        return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []

    def find_program(name: str) -> str:
        for folder in PROGRAM_FOLDERS:
            observer.kind_of(f"{folder}/{name}")
        return program_path(name)

    def needed(label: Label) -> tuple[Label, ...]:
        target, dependencies = workspace.targets[label], workspace.dependencies(label)
        depends = PLATFORM in target.schema.by_name or target.compatible_with
        if target.platform is not None and depends and target.platform not in dependencies:
            dependencies = (*dependencies, target.platform)
        needs[label] = dependencies
        return dependencies

    store = records or RecordStore.of(None)
    chosen: dict[str, Mapping[str, Choice]] = {}

    def choices_of(platform: str) -> Mapping[str, Choice]:
        if platform not in chosen:
            observer.will_read(str(store.folder(platform)))
            chosen[platform] = choices(store.records(platform))
        return chosen[platform]

    known = _TakenOver(earlier, workspace)
    for label in reachable(workspace.requested, needed):
        target = workspace.targets[label]
        dependencies = needs[label]
        found = known.target(label, dependencies)
        if found is not None:
            providers[label], analysed[label] = found.providers, found
            actions += known.actions(label)
            continue
        found_incompatible = _of_dependency(target, dependencies, incompatible) or _of_platform(target, providers)
        if found_incompatible is not None:
            incompatible[label] = found_incompatible
            continue
        if any(each not in providers for each in dependencies):
            continue  # A dependency has an error of its own, which says all there is to say.
        context = RuleContext(
            target=target,
            configuration=configuration,
            dependencies={each: providers[each] for each in dependencies},
            source_files=source_files,
            read_source=read_source,
            list_folder=list_folder,
            find_program=find_program,
            choices=choices_of,
        )
        try:
            provided = _provided(rules[target.rule], context, workspace.settings.root)
        except WorkspaceError as error:
            context.errors.append(error)
        if context.illegal and target.axes:
            incompatible[label] = context.illegal[0]
        elif context.illegal:
            context.errors += [each.error for each in context.illegal]
        errors += context.errors
        if context.errors or context.illegal:
            continue
        providers[label] = provided
        analysed[label] = AnalysedTarget(
            label=label,
            rule=target.rule,
            providers=providers[label],
            axes={axis: str(target.cell[axis]) for axis in target.axes},
        )
        actions += context.actions
    named = [label for label in workspace.requested if label in incompatible and label in workspace.named]
    errors += [incompatible[label].error for label in named]
    if errors:
        raise WorkspaceErrors(_in_file_order(errors))
    whole = Analysis(
        actions=tuple(actions),
        requested=tuple(analysed[label] for label in workspace.requested if label in analysed),
        targets=analysed,
        needs=needs,
        observed=known.observed_with(observer.paths),
        load=workspace.digest,
        skipped={label: incompatible[label].reason for label in workspace.requested if label in incompatible},
    )
    return whole.narrowed(frozenset(analysed)) if incompatible else whole


class _TakenOver:
    """Targets of an earlier analysis that are the same now. To be asked for dependencies first."""

    def __init__(self, earlier: Analysis | None, workspace: LoadedWorkspace) -> None:
        edited = {workspace.digest: frozenset[Label](), **workspace.edited_since}
        self._earlier = earlier if earlier and earlier.load and earlier.load in edited else None
        self._edited = edited[self._earlier.load] if self._earlier else frozenset()
        self._taken: set[Label] = set()
        self._actions: dict[str, list[Action]] = {}
        for action in self._earlier.actions if self._earlier else ():
            self._actions.setdefault(action.owner, []).append(action)

    def target(self, label: Label, dependencies: tuple[Label, ...]) -> AnalysedTarget | None:
        if self._earlier is None or label in self._edited or not self._taken.issuperset(dependencies):
            return None
        found = self._earlier.targets.get(label)
        if found is None or self._earlier.needs[label] != dependencies:
            return None
        self._taken.add(label)
        return found

    def actions(self, label: Label) -> Sequence[Action]:
        return self._actions.get(str(label), ())

    def observed_with(self, observed: ObservedPaths) -> ObservedPaths:
        """What decided these targets too, and others of the earlier analysis, which does no harm."""
        if self._earlier is None or not self._taken:
            return observed
        return self._earlier.observed.with_newer(observed)


def _of_platform(target: Target, providers: Mapping[Label, Providers]) -> Incompatibility | None:
    """Whether `compatible_with` excludes a target's platform. A platform with an error of its own is not excluded."""
    allowed, platform = target.compatible_with, target.platform
    if not allowed or platform in allowed or (platform is not None and platform not in providers):
        return None
    info = _platform_info(providers[platform]) if platform is not None else None
    if info is not None and info.kind in allowed:
        return None
    shown = ", ".join(map(str, allowed))
    reason = (
        f"not compatible with {platform}" if platform is not None else "compatible with some platforms, and has none"
    )
    return Incompatibility(
        reason=reason,
        error=WorkspaceError(
            f"{target.label} is {reason}",
            location=target.location_of(COMPATIBLE_WITH),
            advice=(f"{COMPATIBLE_WITH}: {shown}",),
        ),
    )


def _platform_info(provided: Providers) -> PlatformInfo | None:
    return next((each for each in provided if isinstance(each, PlatformInfo)), None)


def _of_dependency(
    target: Target, dependencies: Iterable[Label], incompatible: Mapping[Label, Incompatibility]
) -> Incompatibility | None:
    """A target that needs one that cannot be built cannot be built either."""
    for label in dependencies:
        if label in incompatible:
            reason = f"needs {label}: {incompatible[label].reason}"
            error = WorkspaceError(f"{target.label} cannot be built: it {reason}", location=target.location)
            return Incompatibility(reason=reason, error=error)
    return None


def with_errors_of_analysis(errors: LoadErrors, rules: Mapping[str, Rule]) -> WorkspaceErrors:
    """The errors of a load, with those of the targets that none of them concerns: one round tells all."""
    try:
        analyse(errors.sound, rules)
    except WorkspaceErrors as found:
        return WorkspaceErrors(_in_file_order((*errors.errors, *found.errors)))
    return WorkspaceErrors(errors.errors)


def _in_file_order(errors: Iterable[WorkspaceError]) -> tuple[WorkspaceError, ...]:
    return tuple(sorted(errors, key=lambda error: (error.location is None, error.location)))


def _provided(rule: Rule, context: RuleContext, root: Path) -> Providers:
    """What a rule says of a target. Raises WorkspaceError for a mistake in a rule file of the workspace."""
    name, target = rule.schema.name, context.target
    try:
        provided = rule.implementation(context)
    except MlcbuildError:
        raise
    except Exception as error:
        place = place_in_rule_file(error, root)
        if place is None:
            raise
        told = f'the rule "{name}" failed for {target.label}: {type(error).__name__}: {error}'
        raise WorkspaceError(told, location=place, advice=advice_on(error)) from error
    if not isinstance(provided, tuple) or not all(isinstance(each, Provider) for each in provided):
        raise WorkspaceError(
            f'the rule "{name}" answers {provided!r} for {target.label}, which is no tuple of providers',
            location=target.location,
            advice=("let its implementation return one, such as (FilesInfo(files=…),)",),
        )
    return provided


def list_source_files(root: Path, label: Label, observer: Observer) -> FilesInfo:
    """A file of the workspace, or every file below a folder, as `source_files.source_paths` lists them.

    What was listed and looked for, as paths from the root, is added to `observer`.
    """
    is_folder, paths = source_paths(root, label.path, observer)
    start = len(label.path) + 1 if is_folder else label.path.rfind("/") + 1
    return FilesInfo(files=tuple((path[start:], SourceArtifact(path=path)) for path in paths))


def fetches(analysis: Analysis) -> tuple[tuple[Label, FetchInfo], ...]:
    """The fetch targets in the closure of what was requested, with where each comes from."""
    found = []
    for label, target in analysis.targets.items():
        info = target.provided(FetchInfo)
        if info is not None:
            found.append((label, info))
    return tuple(found)
