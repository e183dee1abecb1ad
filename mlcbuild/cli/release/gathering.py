"""From targets to the contents of a release: a survey finds their files in the caches, and nothing runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import mlcbuild
from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.build.targets import targets_of
from mlcbuild.cli.inspection.survey import SurveyParts, surveying
from mlcbuild.cli.output.slow_progress import SlowProgress
from mlcbuild.cli.release.background import Background
from mlcbuild.cli.release.materials import (
    DescribedModel,
    ModelDescriber,
    describe_toolchain,
    digested,
    model_requests,
    toolchain_names,
)
from mlcbuild.cli.release.revision import revision_of
from mlcbuild.cli.settings.remote import RemoteOptions, resolve_remote
from mlcbuild.cli.workspace.opening import OpenWorkspace, open_workspace
from mlcbuild.cli.workspace.skipped import skipped_notes
from mlcbuild.engine.executor import FileEntry
from mlcbuild.engine.survey import ActionState, SurveyedAction
from mlcbuild.errors import LocalEnvironmentError, UsageError, WorkspaceError, WorkspaceErrors
from mlcbuild.figures import byte_count
from mlcbuild.release.contents import ActionKey, ReleaseContents, ReleaseFile, TargetInfo
from mlcbuild.release.layout import BILL_OF_MATERIALS, CHECKSUMS, LICENSES, PROVENANCES, conflict, path_error
from mlcbuild.release.places import Folder
from mlcbuild.release.statement import DEFAULT_BUILDER
from mlcbuild.rules.analysis import AnalysedTarget, Analysis
from mlcbuild.rules.fetched import FetchInfo
from mlcbuild.rules.providers import ModelInfo as AnalysedModel
from mlcbuild.workspace.label import Label
from mlcbuild.workspace.loader import LoadedWorkspace
from mlcbuild.workspace.pattern import PatternKind, parse_pattern
from mlcbuild.workspace.schema import PLATFORM

if TYPE_CHECKING:
    from mlcbuild.engine.scheduler_events import RequestedTarget

_PROGRESS_SECONDS = 0.2
_NOT_LISTED = frozenset({ActionState.UP_TO_DATE, ActionState.CACHED, ActionState.WAITS})


@dataclass(frozen=True, kw_only=True)
class ReleaseRequest:
    """What the command line asks for."""

    patterns: tuple[str, ...]
    configuration: str = ""
    overrides: tuple[str, ...] = ()
    name: str = ""  # "": the workspace's
    version: str = ""
    builder: str = ""
    requires_license: bool = False
    only_plans: bool = False  # fetch no files
    disk_cache: Path | None = None
    remote: RemoteOptions = field(default_factory=RemoteOptions)


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """The contents, or what stands against them. Files lie in the store until the block of `gathering` ends.

    `planned` are the files of targets, by path with their sizes, of a request that only plans. `not_cached` are actions
    that would have to run. `lost` maps labels to numbers of files that no cache has any more. `unlicensed` are models
    of which nothing says what their licence is.
    """

    contents: ReleaseContents | None = None
    planned: Mapping[str, int] = field(default_factory=dict)
    not_cached: tuple[SurveyedAction, ...] = ()
    lost: Mapping[str, int] = field(default_factory=dict)
    unlicensed: tuple[str, ...] = ()


@contextmanager
def gathering(request: ReleaseRequest, options: GlobalOptions, progress: SlowProgress) -> Iterator[Gathered]:
    """Find the files of targets in the caches, and what they were made from.

    Raises MlcbuildError as a build does before it begins, and UsageError if no target has files to release."""
    workspace = open_workspace(options.directory, to_load=True)
    loaded = workspace.load(request.patterns, request.configuration, request.overrides)
    remote = resolve_remote(request.remote, options.environment, workspace.settings)
    analysis = workspace.analyse(loaded, request.disk_cache)
    for note in skipped_notes(analysis):
        options.note(note)
    released = _released(analysis, request.patterns, workspace.current_package)
    models = _models(loaded, analysis, released)
    requests: list[RequestedTarget] = targets_of(released, output="") + model_requests(models, analysis)
    with surveying(
        workspace, analysis, requests, disk_cache=request.disk_cache, remote=remote, say=options.note
    ) as parts:
        gatherer = _Gatherer(
            request=request,
            workspace=workspace,
            loaded=loaded,
            analysis=analysis,
            parts=parts,
            options=options,
            progress=progress,
        )
        yield gatherer.gather(released, models)


def _released(analysis: Analysis, patterns: Sequence[str], package: str) -> list[AnalysedTarget]:
    """The targets with files. A pattern with a wildcard means what is made of models, not models and fetched files."""
    read = [parse_pattern(pattern, package=package) for pattern in patterns]
    named = {each.label for each in read if each.kind is PatternKind.TARGET and not each.negative}
    released = [
        target
        for target in analysis.requested
        if target.label in named or not (target.provided(AnalysedModel) or target.provided(FetchInfo))
    ]
    folders = {request.label: request for request in targets_of(released, output="")}
    released = [target for target in released if folders[str(target.label)].outputs]
    if not released:
        raise UsageError(
            "no target with files to release matches",
            advice=("name packages or libraries; models and fetched files are released if they are named",),
        )
    return sorted(released, key=lambda target: target.label)


def _models(loaded: LoadedWorkspace, analysis: Analysis, released: Iterable[AnalysedTarget]) -> list[Label]:
    """The models that the targets need, sorted."""
    closure = loaded.closure([target.label for target in released])
    return sorted(label for label in closure if analysis.targets[label].provided(AnalysedModel))


@dataclass(frozen=True, kw_only=True)
class _Gatherer:
    request: ReleaseRequest
    workspace: OpenWorkspace
    loaded: LoadedWorkspace
    analysis: Analysis
    parts: SurveyParts
    options: GlobalOptions
    progress: SlowProgress

    def gather(self, released: Sequence[AnalysedTarget], models: Sequence[Label]) -> Gathered:
        survey = self.parts.survey
        if any(str(target.label) not in survey.deliveries for target in released):
            actions = self._actions(released)
            pending = [each for each in actions.values() if each.state not in _NOT_LISTED]
            return Gathered(not_cached=tuple(each for each in pending if each.shared_with not in actions))
        describer = ModelDescriber(
            loaded=self.loaded, analysis=self.analysis, survey=survey, store=self.parts.store, sha256=self._sha256
        )
        unlicensed = tuple(str(label) for label in models if not describer.license_of(label).expression)
        if unlicensed and self.request.requires_license:
            raise WorkspaceErrors(tuple(self._unlicensed(label) for label in models if str(label) in unlicensed))
        if self.request.only_plans:
            return Gathered(planned=self._planned(released), unlicensed=unlicensed)
        lost = {str(target.label): count for target in released if (count := self._fetch(str(target.label)))}
        if lost:
            return Gathered(lost=lost)
        described = [describer.describe(label) for label in models]
        return Gathered(contents=self._contents(released, described), unlicensed=unlicensed)

    def _actions(self, released: Sequence[AnalysedTarget]) -> Mapping[str, SurveyedAction]:
        """The actions that the targets need, and not those that only say what models are."""
        survey = self.parts.survey
        return {each.action.identifier: each for target in released for each in survey.actions_of(str(target.label))}

    def _planned(self, released: Sequence[AnalysedTarget]) -> Mapping[str, int]:
        deliveries = [self.parts.survey.deliveries[str(target.label)] for target in released]
        return {
            f"{delivery.directory}/{entry.path}": entry.digest.size_bytes
            for delivery in deliveries
            for entry in delivery.files
        }

    def _fetch(self, label: str) -> int:
        """Bring the files of a target into the store; returns the number of those that no cache has."""
        remote = self.parts.remote
        fetching = Background(lambda: self.parts.survey.fetch(label))
        while not fetching.wait(_PROGRESS_SECONDS):
            self.progress.show_unmeasured(f"fetching, {byte_count(remote.counters.bytes_downloaded if remote else 0)}")
        fetched = fetching.result()
        if fetched.error:
            raise LocalEnvironmentError(fetched.error)
        return len(fetched.missing)

    def _unlicensed(self, label: Label) -> WorkspaceError:
        return WorkspaceError(
            f"{label} has no licence, and --require-license was given",
            location=self.loaded.targets[label].location,
            advice=('write license = "…", an SPDX expression; its source says nothing',),
        )

    def _contents(self, released: Sequence[AnalysedTarget], described: Sequence[DescribedModel]) -> ReleaseContents:
        actions = self._actions(released)
        function = self.parts.store.function
        names = toolchain_names(each.action for each in actions.values())
        contents = ReleaseContents(
            name=self.request.name or self.workspace.settings.name,
            version=self.request.version,
            configuration=self.loaded.configuration.name,
            overrides=self.request.overrides,
            targets=tuple(self._target(target) for target in released),
            models=tuple(each.model for each in described),
            toolchains=tuple(describe_toolchain(name, self.parts.toolchains) for name in names),
            texts=tuple(text for each in described for text in each.texts),
            keys=tuple(
                ActionKey(action=identifier, key=digested(function, surveyed.key.hash))
                for identifier, surveyed in sorted(actions.items())
                if surveyed.key is not None
            ),
            builder=self.request.builder or DEFAULT_BUILDER,
            builder_version=mlcbuild.__version__,
            revision=revision_of(self.workspace.root),
            epoch=_epoch(self.options.environment),
        )
        _check_paths(contents)
        return contents

    def _target(self, target: AnalysedTarget) -> TargetInfo:
        label, rule = target.label, self.loaded.targets[target.label]
        actions = [each.action for each in self.parts.survey.actions_of(str(label))]
        delivery = self.parts.survey.deliveries[str(label)]
        quantization = rule.get("quantization") if "quantization" in rule.schema.by_name else ""
        return TargetInfo(
            label=str(label),
            rule=target.rule,
            folder=delivery.directory,
            models=tuple(map(str, _models(self.loaded, self.analysis, [target]))),
            quantization=_quantization(quantization),
            platform=str(rule.platform) if rule.platform and PLATFORM in rule.schema.by_name else "",
            toolchains=toolchain_names(actions),
            files=tuple(self._file(delivery.directory, entry) for entry in delivery.files),
        )

    def _file(self, folder: str, entry: FileEntry) -> ReleaseFile:
        source = self.parts.store.path_of(entry.digest)
        return ReleaseFile(
            path=f"{folder}/{entry.path}",
            sha256=self._sha256(entry, source),
            size_bytes=entry.digest.size_bytes,
            is_executable=entry.is_executable,
            source=source,
        )

    def _sha256(self, entry: FileEntry, source: Path) -> str:
        if self.parts.store.function is DigestFunction.SHA256:
            return entry.digest.hash
        return Folder(source.parent).sha256(source.name)


def _check_paths(contents: ReleaseContents) -> None:
    """Raises UsageError for files that cannot lie side by side in a release."""
    paths = [file.path for file in contents.files]
    for path in paths:
        if reason := path_error(path):
            raise UsageError(f"a released file's path, {path!r}, {reason}")
    reserved = [BILL_OF_MATERIALS, CHECKSUMS, *PROVENANCES]
    if any(target.folder == LICENSES or target.folder.startswith(f"{LICENSES}/") for target in contents.targets):
        raise UsageError(f"a release has the texts of licences in the folder {LICENSES}, where a target has its files")
    if path := conflict([*paths, *reserved]):
        raise UsageError(f"two files of the release have the path {path}", advice=("release these targets separately",))


def _epoch(environment: Mapping[str, str]) -> int | None:
    """SOURCE_DATE_EPOCH (reproducible-builds.org/specs/source-date-epoch). Raises UsageError for anything else."""
    text = environment.get("SOURCE_DATE_EPOCH", "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 12):
        raise UsageError(f'SOURCE_DATE_EPOCH is "{text}", which is no number of seconds since 1970')
    return int(text)


def _quantization(value: object) -> str:
    """What a target says of its quantization, in a word; of a table, its schemes."""
    return "+".join(sorted(set(value.values()))) if isinstance(value, Mapping) else str(value or "")
