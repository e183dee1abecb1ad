"""Actions and artifacts: the values that rules make and the engine runs.

An action is a function from files to files. It is described wholly by values; its key is computed from them
and from the digests of its inputs once those are known (`mlcbuild.engine.keys`).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

JsonValue = None | bool | int | float | str | Sequence["JsonValue"] | Mapping[str, "JsonValue"]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SourceArtifact:
    """A file of the workspace, by its path relative to the workspace root, with `/`."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class DerivedArtifact:
    """A file or directory (path ends in `/`) that an action makes, or one file inside such a directory.

    `path` is as the action declares it in `Action.outputs`, or a path below a declared directory.
    """

    action: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class DiscoveredArtifacts:
    """Every artifact in a named group that a discovering action's manifest will announce."""

    action: str
    group: str


Artifact = SourceArtifact | DerivedArtifact | DiscoveredArtifacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """Where artifacts lie in the action's directory.

    One file lies at `path`; a directory artifact's files lie below `path`, which then ends in `/`. A discovered
    group's members lie at `path` + their base name, and `path` ends in `/`.
    """

    path: str
    artifact: Artifact


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCall:
    """Call a Python function of ours, or of the workspace, in a worker.

    `function` is `package.module:name`; a module of the workspace is named by its path from the root. `inputs`
    and `outputs` map the function's keyword arguments to paths in the action's directory: a single path arrives as
    a `Path`, a tuple as a sorted tuple of `Path`s; a directory (trailing `/`) as the `Path` of that directory; the
    members of an `Input` whose path ends in `/` and whose artifact is a group as a tuple, by naming the argument in
    `groups`. `parameters` is everything else, JSON values only.

    `plugins` maps further arguments to objects in other modules, each written `package.module:name`: one arrives as
    that object, a tuple as a tuple of objects. So a stage works with a model family, a quantization scheme or a backend
    without importing it. The key counts the plug-in modules with everything that they import, and no others.
    """

    function: str
    inputs: tuple[tuple[str, str | tuple[str, ...]], ...] = ()
    groups: tuple[tuple[str, str], ...] = ()
    outputs: tuple[tuple[str, str], ...] = ()
    parameters: tuple[tuple[str, JsonValue], ...] = ()
    plugins: tuple[tuple[str, str | tuple[str, ...]], ...] = ()

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules that the call starts from, sorted: the function's and those of its plug-ins."""
        named = [name for _, value in self.plugins for name in ((value,) if isinstance(value, str) else value)]
        return tuple(sorted({name.partition(":")[0] for name in (self.function, *named)}))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """Run a program: the arguments as given to exec, the first one a path in the action's directory."""

    arguments: tuple[str, ...]


class CachePolicy(enum.Enum):
    """Where a result may be kept."""

    ALL = "all"  # a pure function: everywhere
    LOCAL = "local"  # true on this machine only: never uploaded
    NONE = "none"  # a measurement, or a tool that differs from run to run: never looked up, never kept


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionRequirements:
    """What an action runs with. Policy, never part of the key."""

    cpus: int = 1
    memory_bytes: int = 0  # 0: unknown
    gpus: float = 0.0  # a fraction shares one; compiling for a GPU needs none
    labels: tuple[tuple[str, str], ...] = ()  # what a machine must say of itself, such as ("arch", "sm_90"); sorted
    timeout_seconds: float = 0.0  # 0: no limit
    network: bool = False  # may reach the network, and sees the user's own environment: fetches alone
    execution_hints: tuple[tuple[str, JsonValue], ...] = ()  # passed to the stage, and named irrelevant to its result

    def __post_init__(self) -> None:
        if self.cpus < 1 or self.memory_bytes < 0 or self.gpus < 0 or self.timeout_seconds < 0:
            raise ValueError(f"not what an action can run with: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """What a discovering action's manifest announces: further actions, and named groups of artifacts."""

    actions: tuple[Action, ...] = ()
    groups: tuple[tuple[str, tuple[Artifact, ...]], ...] = ()


class Discoverer(Protocol):
    """A pure function from a manifest's bytes to what it announces. Raises ValueError for a manifest it cannot read."""

    def __call__(self, *, discovering: str, manifest: bytes) -> Discovery: ...


@dataclass(frozen=True, kw_only=True)
class Action:
    """One node of the action graph.

    `identifier` is unique in a build and for people (`//models:llama-70b-cuda Phase2`); it is not in the key,
    nor are `owner`, `requirements` and `discoverer`.
    """

    identifier: str
    mnemonic: str
    owner: str  # the label that first asked for it
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]  # relative paths; a directory ends in "/"
    command: StageCall | ToolCall
    environment: tuple[tuple[str, str], ...] = ()
    toolchains: tuple[str, ...] = ()  # names, each fingerprinted into the key
    salt: str = ""
    cache: CachePolicy = CachePolicy.ALL
    requirements: ExecutionRequirements = field(default_factory=ExecutionRequirements)
    pinned_content: str = ""  # SHA-256 of the only output, where that is declared: it is then all of the key
    manifest: str = ""  # the output that `discoverer` reads; "" where nothing is discovered
    discoverer: Discoverer | None = None

    def __post_init__(self) -> None:
        if (self.discoverer is None) != (self.manifest == ""):
            raise ValueError(f"{self.identifier}: a manifest and a discoverer come together")
        if self.manifest and self.manifest not in self.outputs:
            raise ValueError(f"{self.identifier}: the manifest {self.manifest!r} is not a declared output")
        if not self.outputs:
            raise ValueError(f"{self.identifier}: an action without outputs")
        for path in (*self.outputs, *(item.path for item in self.inputs)):
            parts = path.removesuffix("/").split("/")
            if path.startswith("/") or any(part in ("", ".", "..") for part in parts):
                raise ValueError(f"{self.identifier}: not a relative path below the action's directory: {path!r}")

    def output(self, path: str) -> DerivedArtifact:
        """The artifact for a declared output. Raises ValueError for another path."""
        if path not in self.outputs:
            raise ValueError(f"{self.identifier} has no output {path!r}; it has {', '.join(self.outputs)}")
        return DerivedArtifact(action=self.identifier, path=path)
