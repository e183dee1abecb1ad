"""What released targets were made from: models with their sources and licences, and toolchains."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import urllib.parse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.engine.action import Action, JsonValue, SourceArtifact
from mlcbuild.engine.executor import FileEntry
from mlcbuild.engine.scheduler_events import RequestedTarget
from mlcbuild.engine.survey import Survey
from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.release.contents import (
    Digested,
    DistributionInfo,
    Material,
    ModelInfo,
    ReleaseFile,
    SourceInfo,
    ToolchainInfo,
)
from mlcbuild.release.layout import LICENSES
from mlcbuild.release.places import Folder
from mlcbuild.rules.analysis import Analysis
from mlcbuild.rules.fetched import FetchInfo
from mlcbuild.rules.licenses import UnknownLicenseError, expression_of_stated, license_expression
from mlcbuild.rules.providers import FilesInfo, LicenseInfo
from mlcbuild.rules.providers import ModelInfo as AnalysedModel
from mlcbuild.toolchains.table import Toolchains, find
from mlcbuild.toolchains.toolchain import DistributionToolchain
from mlcbuild.workspace.label import Label
from mlcbuild.workspace.loader import LoadedWorkspace

_STATED = "stated.json"
_TEXTS = "texts/"
_ATTRIBUTE = "the attribute license"

Digester = Callable[[FileEntry, Path], str]
"""The SHA-256 of a file of the store."""


_SOURCE, _LORA, _DESCRIPTION = "source", "lora ", "description"


def model_requests(labels: Iterable[Label], analysis: Analysis) -> list[RequestedTarget]:
    """Requests for the files that say where models come from, what they are and what their licences are. They are not
    released."""
    requests = []
    for label in labels:
        target = analysis.targets[label]
        model, license_info = target.provided(AnalysedModel), target.provided(LicenseInfo)
        if model is not None and model.source is not None:
            requests.append(_request(label, _SOURCE, model.source))
            requests += [_request(label, f"{_LORA}{number}", files) for number, files in enumerate(model.lora.each)]
            if model.known is None:
                requests.append(_request(label, _DESCRIPTION, FilesInfo(files=(("", model.model),))))
        if license_info is None:
            continue
        if license_info.stated is not None:
            requests.append(_request(label, "licenses", FilesInfo(files=(("", license_info.stated),))))
        if license_info.files.files:
            requests.append(_request(label, "license_files", license_info.files))
    return requests


def _request(label: Label, what: str, files: FilesInfo) -> RequestedTarget:
    name = f"{label} {what}"
    return RequestedTarget(label=name, directory=name, outputs=files.files)


@dataclass(frozen=True, kw_only=True)
class StatedBy:
    """A licence as an SPDX expression, what says it, and a link to it; all "" if nothing says what it is."""

    expression: str = ""
    where: str = ""
    link: str = ""


@dataclass(frozen=True, kw_only=True)
class DescribedModel:
    """A model, and the texts of its licence as files of the release."""

    model: ModelInfo
    texts: tuple[ReleaseFile, ...]


class ModelDescriber:
    """Describes models by what a survey has found. The survey was asked for `model_requests` of them."""

    def __init__(
        self,
        *,
        loaded: LoadedWorkspace,
        analysis: Analysis,
        survey: Survey,
        store: DiskStore,
        sha256: Digester,
    ) -> None:
        self._loaded = loaded
        self._analysis = analysis
        self._survey = survey
        self._store = store
        self._sha256 = sha256

    def license_of(self, label: Label) -> StatedBy:
        """What a model's attribute says, or else its source. Raises CacheError for a file that no cache has."""
        license_info = self._analysis.targets[label].provided(LicenseInfo)
        if license_info is not None and license_info.expression:
            return StatedBy(expression=license_info.expression, where=_ATTRIBUTE)
        for entry in self._files(label, "licenses"):
            if entry.path == _STATED:
                said = json.loads(self._store.read(entry.digest))
                if expression := expression_of_stated(said["license"], said["name"]):
                    return StatedBy(expression=expression, where=said["where"], link=said["link"])
        return StatedBy()

    def describe(self, label: Label) -> DescribedModel:
        """Raises CacheError for a file that no cache has."""
        model = self._analysis.targets[label].provided(AnalysedModel)
        assert model is not None
        found = [entry for entry in self._files(label, "licenses") if entry.path.startswith(_TEXTS)]
        texts = self._texts(label, [*found, *self._files(label, "license_files")])
        known, stated = model.known, self.license_of(label)
        return DescribedModel(
            model=ModelInfo(
                label=str(label),
                family=known.description.family if known else self._family(label),
                license=stated.expression,
                license_where=stated.where,
                license_link=stated.link,
                license_texts=tuple(text.path for text in texts),
                source=self._source(label),
                adapters=self._adapters(label),
            ),
            texts=texts,
        )

    def _family(self, label: Label) -> str:
        """The family that ResolveModel found, of a model that analysis knows nothing of."""
        for entry in self._files(label, _DESCRIPTION):
            return str(json.loads(self._store.read(entry.digest))["family"])
        return ""

    def _files(self, label: Label, what: str) -> tuple[FileEntry, ...]:
        name = f"{label} {what}"
        if name not in self._survey.deliveries:
            return ()
        if not what.startswith((_SOURCE, _LORA)):  # Weights are gigabytes, and their digests are known.
            self._survey.fetch(name)
        return self._survey.deliveries[name].files

    def _texts(self, label: Label, entries: Sequence[FileEntry]) -> tuple[ReleaseFile, ...]:
        folder = "/".join(part for part in (LICENSES, label.package, label.name) if part)
        texts: dict[str, ReleaseFile] = {}
        for entry in entries:
            name = Path(entry.path).name
            source = self._store.path_of(entry.digest)
            sha256 = self._sha256(entry, source)
            number = 1
            path = f"{folder}/{name}"
            while path in texts and texts[path].sha256 != sha256:
                number += 1
                path = f"{folder}/{number}-{name}"
            texts[path] = ReleaseFile(path=path, sha256=sha256, size_bytes=entry.digest.size_bytes, source=source)
        return tuple(texts.values())

    def _source(self, label: Label) -> SourceInfo | None:
        named = self._loaded.targets[label].optional_label("source")
        model = self._analysis.targets[label].provided(AnalysedModel)
        if named is None or model is None or model.source is None:
            return None
        return self._made_of(named, model.source, self._files(label, _SOURCE))

    def _adapters(self, label: Label) -> tuple[SourceInfo, ...]:
        model = self._analysis.targets[label].provided(AnalysedModel)
        each = model.lora.each if model else ()
        return tuple(
            self._made_of(named, files, self._files(label, f"{_LORA}{number}"))
            for number, (named, files) in enumerate(
                zip(self._loaded.targets[label].labels("lora"), each, strict=True) if each else ()
            )
        )

    def _made_of(self, named: Label, given: FilesInfo, entries: Sequence[FileEntry]) -> SourceInfo:
        files = tuple(self._source_file(named, given, entry) for entry in entries)
        target = self._analysis.targets.get(named)
        fetched = target.provided(FetchInfo) if target else None
        return SourceInfo(
            name=str(named), origin=_origin(str(named), fetched, self._pin(named)) if fetched else None, files=files
        )

    def _source_file(self, named: Label, given: FilesInfo, entry: FileEntry) -> Material:
        """Of a file of the workspace the SHA-256 too. One that was fetched is in no need of being here."""
        artifact = dict(given.files).get(entry.path)
        digests: tuple[Digested, ...] = (digested(self._store.function, entry.digest.hash),)
        if not isinstance(artifact, SourceArtifact):
            if self._is_pinned_file(named):
                digests = (Digested(algorithm="sha256", value=self._pin(named)), *digests)
            return Material(name=f"{named}/{entry.path}", digests=digests)
        if self._store.function is not DigestFunction.SHA256:
            sha256 = Folder(self._loaded.settings.root).sha256(artifact.path)
            digests = (Digested(algorithm="sha256", value=sha256), *digests)
        return Material(name=artifact.path, digests=digests)

    def _is_pinned_file(self, label: Label) -> bool:
        """Whether the pin is the SHA-256 of the only file, and not one over a list of files."""
        target = self._analysis.targets.get(label)
        files = target.provided(FilesInfo) if target and target.provided(FetchInfo) else None
        return files is not None and files.is_single_file and bool(self._pin(label))

    def _pin(self, label: Label) -> str:
        return self._loaded.targets[label].optional_string("sha256") or ""


def digested(function: DigestFunction, value: str) -> Digested:
    """A digest of the store, by in-toto's name of its algorithm."""
    return Digested(algorithm=function.value, value=value)


def _origin(name: str, fetched: FetchInfo, pin: str) -> Material:
    """Where a fetched file comes from: a package URL (ECMA-427) where there is a type for it, else its address."""
    hints: dict[str, JsonValue] = dict(fetched.hints)

    def hint(key: str) -> str:
        value = hints.get(key)
        return value if isinstance(value, str) else ""

    digests: tuple[Digested, ...] = (Digested(algorithm="sha256", value=pin),) if pin else ()
    uri = ""
    match fetched.kind:
        case "pypi":
            path = urllib.parse.quote(hint("path"))
            uri = f"pkg:pypi/{hint('package').lower().replace('_', '-')}@{hint('version')}#{path}"
        case "huggingface":
            repository = urllib.parse.quote(hint("repository").lower())
            uri = f"pkg:huggingface/{repository}@{hint('revision')}"
            # The pin is a digest over the digests and paths of the files (`execution/fetch/huggingface.py`).
            pinned = (("gitCommit", hint("revision")), ("fileListSha256", pin))
            digests = tuple(Digested(algorithm=algorithm, value=value) for algorithm, value in pinned if value)
        case "http":
            urls = hints.get("urls")
            uri = without_credentials(str(urls[0])) if isinstance(urls, list | tuple) and urls else ""
        case "s3":
            uri = hint("url")
        case _:
            uri = ""
    return Material(name=name, uri=uri, digests=digests)


def without_credentials(url: str) -> str:
    """An address without user and password, and without a query, which may hold a signature."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def toolchain_names(actions: Iterable[Action]) -> tuple[str, ...]:
    """The toolchains of actions, and of those that they may discover, sorted."""
    names = {name for action in actions for name in (*action.toolchains, *_of_discovered(action))}
    return tuple(sorted(names))


def _of_discovered(action: Action) -> Sequence[str]:
    declared: Sequence[str] = getattr(action.discoverer, "toolchains", ())
    return declared


def describe_toolchain(name: str, toolchains: Toolchains) -> ToolchainInfo:
    """Raises LocalEnvironmentError if it is not installed."""
    entry, path = find(name)
    distributions = entry.distributions if isinstance(entry, DistributionToolchain) else ()
    return ToolchainInfo(
        name=name,
        version="" if path else _version(toolchains.version(name)),
        fingerprint=toolchains.fingerprint(name),
        distributions=tuple(_distribution(each) for each in distributions),
    )


def _version(version: str) -> str:
    """The version of a toolchain; for a program, whose version is its path, what the program says."""
    if not version.startswith("/"):
        return version
    try:
        said = subprocess.run(
            [version, "--version"], capture_output=True, text=True, check=True, timeout=10, stdin=subprocess.DEVNULL
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""
    return said.stdout.partition("\n")[0].strip()


def _distribution(name: str) -> DistributionInfo:
    try:
        found = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        raise LocalEnvironmentError(f"{name} is not installed") from None
    fields = (name for name in ("License-Expression", "License") if name in found.metadata)
    stated = next((found.metadata[name] for name in fields), "")
    try:
        expression = license_expression(stated) if stated else ""
    except UnknownLicenseError:
        expression = expression_of_stated([stated], "") if len(stated) < 80 and "\n" not in stated else ""
    return DistributionInfo(name=name, version=found.version, license=expression)
