"""From `BUILD.toml` files to typed targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mlcbuild.errors import Location
from mlcbuild.workspace.configuration import DEFAULT_CONFIGURATION, Configuration
from mlcbuild.workspace.label import Label
from mlcbuild.workspace.schema import RuleSchema
from mlcbuild.workspace.target import Target

BUILD_FILE = "BUILD.toml"


@dataclass(frozen=True, kw_only=True)
class RuleFile:
    """A Python file of the workspace that defines rules: `path` is relative to the workspace root."""

    path: str
    location: Location


@dataclass(frozen=True, kw_only=True)
class WorkspaceSettings:
    """The root `BUILD.toml`'s `[workspace]` table and configurations."""

    root: Path
    name: str
    digest: str = "blake3"  # or "sha256": a DigestFunction's value
    rules: tuple[RuleFile, ...] = ()
    default_platform: Label | None = None
    output: str = "mlcbuild-out"  # a folder below the root
    configurations: Mapping[str, Configuration] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LoadedWorkspace:
    """What a load found: every target of every package that it read, and those that were asked for."""

    settings: WorkspaceSettings
    configuration: Configuration
    targets: Mapping[Label, Target]
    requested: tuple[Label, ...]  # what the patterns match, in the order of the patterns, then of names

    def target(self, label: Label) -> Target | None:
        """The target of that name; None for a label that names a file (`Label.path`), which exists."""
        return self.targets.get(label)

    def dependencies(self, label: Label) -> tuple[Label, ...]:
        """The targets that a target's attributes name, in the schema's order; files are left out."""
        return tuple(found for found in self.targets[label].referenced_labels() if found in self.targets)


def find_root(start: Path) -> Path:
    """The nearest folder at or above `start` whose `BUILD.toml` has `[workspace]`. Raises WorkspaceError."""
    raise NotImplementedError


def load_settings(root: Path) -> WorkspaceSettings:
    """Read the root `BUILD.toml` alone: it names the workspace's own rules. Raises WorkspaceErrors."""
    raise NotImplementedError


def load(
    root: Path,
    schemas: Mapping[str, RuleSchema],
    patterns: Sequence[str],
    current_package: str = "",
    *,
    configuration: str = DEFAULT_CONFIGURATION,
) -> LoadedWorkspace:
    """Load the packages that `patterns` need, and all that their labels name, transitively.

    `current_package` is the package that relative patterns are relative to. Raises WorkspaceErrors with
    every mistake in the files that were read and in the patterns.
    """
    raise NotImplementedError
