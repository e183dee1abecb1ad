"""The door to where actions run: requests in, outcomes out.

The engine hands over a request whose input digests are known and present in the store; an executor lays out the
inputs, runs, stores every output, and reports. It decides nothing: keys, caching and retries are the engine's.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from mlcbuild.cache.digest import Digest
from mlcbuild.engine.action import ExecutionRequirements, StageCall, ToolCall


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class FileEntry:
    """A file by path, content and executable bit."""

    path: str
    digest: Digest
    is_executable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionRequest:
    """All an executor needs. `inputs` are files, sorted by path; `outputs` are declared, directories ending in "/"."""

    identifier: str
    mnemonic: str
    command: StageCall | ToolCall
    inputs: tuple[FileEntry, ...]
    outputs: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    requirements: ExecutionRequirements  # its memory is what this attempt gets: more after it was too little
    expected_bytes: int = 0  # of memory: what its kind was seen to use, where it asks for nothing; 0: not known
    is_deterministic: bool = True  # the same inputs give the same bytes: no fetch, no measurement
    allowed_modules: frozenset[str] = field(default_factory=frozenset)  # the implementation's closure; empty: unchecked
    toolchains: tuple[str, ...] = ()  # that the action declares, by name
    distributions: tuple[str, ...] = ()  # that a stage's code imports, by their normalized names
    code: tuple[str, ...] = ()  # the workspace's files that a stage's code is made of, by their paths from its root


class OutcomeKind(enum.Enum):
    """How an execution ended, and whose fault it was."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  # the action's own failure: its input, its tool's exit code, a crash of its code
    LOST = "lost"  # the executor went away; the action may be run again
    OUT_OF_MEMORY = "out of memory"  # killed for it; may be run again where there is more
    INPUTS_MISSING = "inputs missing"  # blobs named in `missing` have gone from the store
    CANCELLED = "cancelled"
    ENVIRONMENT = "environment"  # the machine failed: disk full, tool missing


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionOutcome:
    """What came of a request. `outputs` lists files, those of output directories by full path, sorted."""

    identifier: str
    kind: OutcomeKind
    outputs: tuple[FileEntry, ...] = ()
    message: str = ""  # for people: one paragraph, no traceback
    log: bytes = b""  # what the action printed, tracebacks and crash notes too
    exit_code: int = 0
    missing: tuple[Digest, ...] = ()
    worker: str = ""  # a lane of the profile: where one action runs at a time
    node: str = ""  # the machine, where it is not this one
    queued_seconds: float = 0.0
    input_seconds: float = 0.0  # of the run: until the inputs lay in the action's directory
    run_seconds: float = 0.0  # from its start to its outcome, inputs and outputs included
    output_seconds: float = 0.0  # of the run: for storing, and sending, what was made
    peak_bytes: int = 0  # the largest resident set of its processes; 0 where nobody measured


class Executor(Protocol):
    """Runs requests; thread-safe. `report` may be called from any thread, once per submitted request."""

    name: str  # "local", "ray"
    trip_seconds: float  # what an action costs here besides its work

    @property
    def slots(self) -> int:
        """How many actions may be given to it at once; it may say more later than at first."""
        ...

    def refusal(self, requirements: ExecutionRequirements) -> str:
        """Why no machine of this executor can ever run an action with these requirements; "" where one can.

        Called from the thread of the build, before each submission. Raises InfrastructureError where it cannot start.
        """
        ...

    def start(self, report: Callable[[ExecutionOutcome], None]) -> None: ...

    def submit(self, request: ExecutionRequest) -> None: ...

    def cancel(self, identifier: str) -> None: ...

    def close(self) -> None: ...


@runtime_checkable
class FarReaching(Protocol):
    """What an executor may offer besides: inputs of its actions need not come to this machine first."""

    def reaches(self, digests: Sequence[Digest]) -> frozenset[Digest]:
        """Those blobs that it can get at without this machine's store. One that has gone since is told as missing."""
        ...
