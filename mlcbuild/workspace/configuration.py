"""Configurations: named sets of settings that `--config=NAME` chooses for a whole build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mlcbuild.workspace.label import Label
from mlcbuild.workspace.toml import Origin

DEFAULT_CONFIGURATION = "default"


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """The settings of a build: `[configuration.NAME]` in the root `BUILD.toml`.

    Attributes named in `defaults` and `overrides` are already in the targets that the loader returns; rules
    need only what concerns no single target: `name`, which is in output paths, and `environment`.
    """

    name: str = DEFAULT_CONFIGURATION
    platform: Label | None = None  # for targets that name none; before the workspace's default_platform
    environment: Mapping[str, str] = field(default_factory=dict)  # variables for every tool that is run
    defaults: Mapping[str, object] = field(default_factory=dict)  # by attribute, as written
    overrides: Mapping[str, object] = field(default_factory=dict)  # by attribute, as written
    origin: Origin | None = field(default=None, repr=False, compare=False)  # None where no file says anything

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name or self.name in (".", ".."):
            raise ValueError(f"a configuration's name is one path segment, not {self.name!r}")
