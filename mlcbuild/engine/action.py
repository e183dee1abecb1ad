"""Actions and artifacts: the values that rules make and the engine runs.

An action is a function from files to files. Values describe it completely. Its key is computed from them and from the
digests of its inputs, once those are known (`mlcbuild.engine.keys`).

Values of which an action has many have no slots: Python restores a frozen object with slots by running code for it,
which would be a third of the time to read the actions of a workspace back.
"""

from __future__ import annotations

import copy
import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

# An empty path, one from the root, or one with a segment that is empty, "." or ".."; a directory ends in one slash.
_NO_RELATIVE_PATH = re.compile(r"(?:^|/)(?:\.{0,2}/|\.{1,2}\Z)|^\Z")

JsonValue = None | bool | int | float | str | Sequence["JsonValue"] | Mapping[str, "JsonValue"]


@dataclass(frozen=True, kw_only=True, order=True)
class SourceArtifact:
    """A file of the workspace, by its path relative to the workspace root, with `/`."""

    path: str


@dataclass(frozen=True, kw_only=True, order=True)
class DerivedArtifact:
    """An output of an action: a file, a directory (its path ends in `/`), or a file inside such a directory.

    `path` is one of `Action.outputs`, or a path below a declared directory.
    """

    action: str
    path: str


@dataclass(frozen=True, kw_only=True, order=True)
class DiscoveredArtifacts:
    """All artifacts of a named group, which the manifest of a discovering action will announce."""

    action: str
    group: str


Artifact = SourceArtifact | DerivedArtifact | DiscoveredArtifacts


@dataclass(frozen=True, kw_only=True)
class Input:
    """Where an artifact lies in the action's directory.

    A file lies at `path`. The files of a directory lie below `path`, which then ends in `/`. The members of a
    discovered group lie at `path` + their base name; `path` ends in `/` then too.
    """

    path: str
    artifact: Artifact


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCall:
    """Calls a Python function, of mlcbuild or of the workspace, in a worker.

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
        """The modules of the function and of its plug-ins, sorted."""
        named = [name for _, value in self.plugins for name in ((value,) if isinstance(value, str) else value)]
        return tuple(sorted({name.partition(":")[0] for name in (self.function, *named)}))


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """Runs a program. `arguments` are those of exec; the first is a path in the action's directory."""

    arguments: tuple[str, ...]


class CachePolicy(enum.Enum):
    """Which caches may keep a result, and whether its bytes say anything."""

    ALL = "all"  # all: the action is a pure function
    NON_REPRODUCIBLE = "non-reproducible"  # all, though two runs differ in bytes: any of their results is as good
    REMADE = "remade"  # all, but of its directories the digests alone: their bytes are made again on each machine
    LOCAL = "local"  # this machine's only: the result is not true of others, and is never uploaded
    NONE = "none"  # none: a measurement, or a tool whose output differs from run to run; it is never looked up


MORE_CPUS_THAN_ANY = 1 << 16
"""Of processors: an action that requires more than any machine has runs alone on one, and nothing of mlcbuild's
measures there meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionRequirements:
    """What an action needs in order to run. This is policy, and never part of the key."""

    cpus: int = 1
    memory_bytes: int = 0  # 0: unknown
    gpus: float = 0.0  # a fraction shares one. Compiling for a GPU needs none
    labels: tuple[tuple[str, str], ...] = ()  # that a machine must have, such as ("arch", "sm_90"); sorted
    timeout_seconds: float = 0.0  # 0: no limit
    network: bool = False  # may use the network and the user's environment: only for fetches
    execution_hints: tuple[tuple[str, JsonValue], ...] = ()  # passed to the stage; they do not change its result

    def __post_init__(self) -> None:
        if self.cpus < 1 or self.memory_bytes < 0 or self.gpus < 0 or self.timeout_seconds < 0:
            raise ValueError(f"invalid execution requirements: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """What the manifest of a discovering action announces: more actions, and named groups of artifacts."""

    actions: tuple[Action, ...] = ()
    groups: tuple[tuple[str, tuple[Artifact, ...]], ...] = ()


class Discoverer(Protocol):
    """A pure function from the bytes of a manifest to what it announces. Raises ValueError for an invalid manifest."""

    def __call__(self, *, discovering: str, manifest: bytes) -> Discovery: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionDescription:
    """What an action does, where its identifier alone would tell nobody.

    `text` is for people: a few words that stand after the mnemonic. `details` are the same for programs, JSON values by
    name.
    """

    text: str
    details: tuple[tuple[str, JsonValue], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Action:
    """One node of the action graph.

    `identifier` is unique in a build (`//models:llama-70b-cuda Phase2`). The key contains neither it nor `owner`,
    `requirements`, `discoverer`, `is_test` and `description`. Two actions that differ in nothing but their description
    are equal.
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
    pinned_content: str = ""  # the declared SHA-256 of the only output; it then makes up the whole key
    manifest: str = ""  # the output that `discoverer` reads; "" without one
    discoverer: Discoverer | None = None
    is_test: bool = False  # its failure is an answer: it stops no build, and what it wrote until then is kept
    description: ActionDescription | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if (self.discoverer is None) != (self.manifest == ""):
            raise ValueError(f"{self.identifier}: a manifest needs a discoverer, and a discoverer needs a manifest")
        if self.manifest and self.manifest not in self.outputs:
            raise ValueError(f"{self.identifier}: the manifest {self.manifest!r} is not a declared output")
        if not self.outputs:
            raise ValueError(f"{self.identifier}: an action without outputs")
        for path in (*self.outputs, *(item.path for item in self.inputs)):
            if _NO_RELATIVE_PATH.search(path):
                raise ValueError(f"{self.identifier}: not a relative path below the action's directory: {path!r}")

    @property
    def title(self) -> str:
        """The action for people: its owner, its mnemonic and its description; the identifier where it has none."""
        if self.description is None:
            return self.identifier
        return f"{self.owner} {self.mnemonic} {self.description.text}"

    def described(self, description: ActionDescription) -> Action:
        """The same action with a description."""
        made = copy.copy(self)  # `replace` would check everything again, for each kernel of each model
        object.__setattr__(made, "description", description)
        return made

    def output(self, path: str) -> DerivedArtifact:
        """The artifact for a declared output. Raises ValueError for another path."""
        if path not in self.outputs:
            raise ValueError(f"{self.identifier} has no output {path!r}; it has {', '.join(self.outputs)}")
        return DerivedArtifact(action=self.identifier, path=path)
