"""Configurations: named sets of settings. `--config=NAME` selects one for a whole build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mlcbuild.workspace.label import Label
from mlcbuild.workspace.toml import Origin

DEFAULT_CONFIGURATION = "default"


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """The settings of a build: `[configuration.NAME]` in the root `BUILD.toml`.

    The loader has already applied `defaults` and `overrides` to the targets that it returns. Rules need only `name`,
    which is part of output paths, and `environment`.
    """

    name: str = DEFAULT_CONFIGURATION
    platform: Label | None = None  # of targets that set none; takes precedence over the workspace's default_platform
    environment: Mapping[str, str] = field(default_factory=dict)  # variables of every tool
    defaults: Mapping[str, object] = field(default_factory=dict)  # by attribute, as written
    overrides: Mapping[str, object] = field(default_factory=dict)  # by attribute, as written
    origin: Origin | None = field(default=None, repr=False, compare=False)  # None if no file defines it

    @property
    def has_values(self) -> bool:
        """Whether it sets any attributes."""
        return bool(self.defaults or self.overrides)

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name or self.name in (".", ".."):
            raise ValueError(f"a configuration's name is one path segment, not {self.name!r}")
