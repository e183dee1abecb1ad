"""What a release consists of: its files, and what is said of them. Values alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class ReleaseFile:
    """A file of a release. `path` is relative to the release. Its bytes are `data`, or those of the file `source`."""

    path: str
    sha256: str
    size_bytes: int
    is_executable: bool = False
    source: Path | None = None
    data: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Digested:
    """A digest by the name of its algorithm, as in-toto's DigestSet has it: `sha256`, `gitCommit`."""

    algorithm: str
    value: str


@dataclass(frozen=True, kw_only=True)
class Material:
    """Something that a release was made from. `uri` is "" for what has none, such as a file of the workspace."""

    name: str
    uri: str = ""
    digests: tuple[Digested, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SourceInfo:
    """Where the bytes of a model come from: an origin, such as a repository at a commit, and the files from there."""

    name: str
    origin: Material | None = None
    files: tuple[Material, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """A model, by its label. `license` is an SPDX expression, "" if nothing says what it is; `license_where` says what
    does, for people.
    """

    label: str
    family: str = ""
    license: str = ""
    license_where: str = ""
    license_link: str = ""
    license_texts: tuple[str, ...] = ()  # paths in the release
    source: SourceInfo | None = None
    adapters: tuple[SourceInfo, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DistributionInfo:
    """A Python distribution that a toolchain consists of."""

    name: str
    version: str
    license: str = ""


@dataclass(frozen=True, kw_only=True)
class ToolchainInfo:
    """A toolchain by its name in actions. `fingerprint` is the SHA-256 that is part of their keys."""

    name: str
    version: str
    fingerprint: str
    distributions: tuple[DistributionInfo, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TargetInfo:
    """A released target: its folder in the release, and what it was made of."""

    label: str
    rule: str
    folder: str
    models: tuple[str, ...] = ()  # labels
    quantization: str = ""
    platform: str = ""
    toolchains: tuple[str, ...] = ()
    files: tuple[ReleaseFile, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ActionKey:
    """An action and its key, the digest of its REAPI Action."""

    action: str
    key: Digested


@dataclass(frozen=True, kw_only=True)
class RevisionInfo:
    """The workspace's commit in Git. `is_changed`: tracked files differ from it."""

    commit: str
    uri: str = ""
    is_changed: bool = False


@dataclass(frozen=True, kw_only=True)
class ReleaseContents:
    """All that a release says. Everything is sorted, so equal inputs make equal bytes.

    `epoch` is SOURCE_DATE_EPOCH, seconds since 1970; None: the release has no time.
    """

    name: str
    version: str
    configuration: str
    overrides: tuple[str, ...]
    targets: tuple[TargetInfo, ...]
    models: tuple[ModelInfo, ...]
    toolchains: tuple[ToolchainInfo, ...]
    texts: tuple[ReleaseFile, ...]  # of licences
    keys: tuple[ActionKey, ...]
    builder: str
    builder_version: str
    revision: RevisionInfo | None = None
    epoch: int | None = None

    @property
    def files(self) -> tuple[ReleaseFile, ...]:
        """The files of targets and the texts of licences, sorted by path."""
        found = [*self.texts, *(file for target in self.targets for file in target.files)]
        return tuple(sorted(found, key=lambda file: file.path))
