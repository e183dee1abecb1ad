"""What targets hand to the targets that depend on them: frozen values, found by type.

`noun` names the kind in messages; `name` is what schemas ask for (`Attribute.provides`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mlcbuild.engine.action import Artifact, DerivedArtifact, DiscoveredArtifacts, SourceArtifact

if TYPE_CHECKING:
    from mlcbuild.rules.backend import PlatformInfo
    from mlcbuild.rules.known_model import KnownModel


@dataclass(frozen=True, kw_only=True)
class Provider:
    """The base of all providers."""

    name: ClassVar[str] = ""
    noun: ClassVar[str] = "provider"


@dataclass(frozen=True, kw_only=True)
class FilesInfo(Provider):
    """What building the target puts in place: paths below its output folder, and what lies there.

    A directory's path ends in "/", and so does that of a discovered group, whose members lie below by base name; ""
    puts the content right into the target's folder.
    """

    name: ClassVar[str] = "files"
    noun: ClassVar[str] = "target with files"

    files: tuple[tuple[str, Artifact], ...] = ()

    @property
    def is_single_file(self) -> bool:
        return len(self.files) == 1 and not self.files[0][0].endswith("/") and self.files[0][0] != ""


@dataclass(frozen=True, kw_only=True)
class TestInfo(Provider):
    """A test: its action, which `mlcbuild test` runs and `mlcbuild build` does not, and what it leaves."""

    __test__ = False  # pytest takes classes of such names for tests

    name: ClassVar[str] = "test"
    noun: ClassVar[str] = "test"

    action: str  # its identifier
    files: FilesInfo  # of a test that passed
    builds: tuple[Artifact, ...]  # what it runs: all that a build makes of it
    size: str


@dataclass(frozen=True, kw_only=True)
class ExecutableInfo(Provider):
    """What `mlcbuild run` does with the target: exec a file of it, or generate text with a package."""

    name: ClassVar[str] = "executable"
    noun: ClassVar[str] = "target that can be run"

    program: str = ""  # a path below the target's folder; "" where the folder is a model package


@dataclass(frozen=True, kw_only=True)
class ToolInfo(Provider):
    """A program: a file of the workspace or of another target, or one that the machine has, by absolute path."""

    name: ClassVar[str] = "tool"
    noun: ClassVar[str] = "tool"

    executable: SourceArtifact | DerivedArtifact | None = None
    path: str = ""
    arguments: tuple[str, ...] = ()  # always given first


@dataclass(frozen=True, kw_only=True)
class LoraInfo:
    """Adapters of a model: their files, those of the first below `0/`, and how much of each is added."""

    adapters: FilesInfo = FilesInfo()
    shares: tuple[float, ...] = ()

    @property
    def each(self) -> tuple[FilesInfo, ...]:
        """The files of each adapter."""
        return tuple(
            FilesInfo(
                files=tuple(
                    (path.removeprefix(f"{number}/"), artifact)
                    for path, artifact in self.adapters.files
                    if path.startswith(f"{number}/")
                )
            )
            for number in range(len(self.shares))
        )


@dataclass(frozen=True, kw_only=True)
class ModelInfo(Provider):
    """A model: its config.json, what its family made of it, and, unless it is a shape alone, its weights and
    tokenizer."""

    name: ClassVar[str] = "model"
    noun: ClassVar[str] = "model"

    config: SourceArtifact | DerivedArtifact
    known: KnownModel | None = None  # where config.json is a file of the workspace
    model: DerivedArtifact  # model.json of ResolveModel
    parameters: DerivedArtifact  # parameters.json of ResolveModel
    tokenizer: DerivedArtifact | None = None
    vocabulary: DerivedArtifact | None = None  # vocabulary.json of ImportConfig
    source: FilesInfo | None = None
    lora: LoraInfo = LoraInfo()


@dataclass(frozen=True, kw_only=True)
class LicenseInfo(Provider):
    """A model's licence: what its attributes say, and the folder in which ImportConfig writes what the source says."""

    name: ClassVar[str] = "license"
    noun: ClassVar[str] = "target with a licence"

    expression: str = ""  # SPDX; "" if the attribute is left out
    files: FilesInfo = FilesInfo()
    stated: DerivedArtifact | None = None  # a folder with stated.json and texts/; None without a source


@dataclass(frozen=True, kw_only=True)
class WeightsInfo(Provider):
    """Quantized weights: the index, and the group of shards that it names."""

    name: ClassVar[str] = "weights"
    noun: ClassVar[str] = "quantized_weights target"

    index: DerivedArtifact
    shards: DiscoveredArtifacts


@dataclass(frozen=True, kw_only=True)
class LibraryInfo(Provider):
    """A compiled model library."""

    name: ClassVar[str] = "library"
    noun: ClassVar[str] = "model_library"

    library: DerivedArtifact


@dataclass(frozen=True, kw_only=True)
class PackageInfo(Provider):
    """A directory, the target's files, that the runtime loads."""

    name: ClassVar[str] = "package"
    noun: ClassVar[str] = "model_package"

    platform: PlatformInfo
