"""The interface to where actions run: requests in, outcomes out.

The engine submits a request; its inputs are known by digest, and the store has them. An executor lays out the inputs,
runs the action, stores every output, and reports. It does not decide about keys, caching or retries: the engine does.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from mlcbuild.cache.digest import Digest
from mlcbuild.engine.action import Action, ExecutionRequirements, StageCall, ToolCall


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class FileEntry:
    """A file by path, content and executable bit."""

    path: str
    digest: Digest
    is_executable: bool = False
    stands_for: Digest | None = None  # of an input that differs from run to run: a digest of what it was made from
    is_remade: bool = False  # of an input: its action makes it again on each machine, as no remote has it

    @property
    def in_key(self) -> Digest:
        """What the key of an action counts, where this file is its input."""
        return self.stands_for or self.digest


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionRequest:
    """All that an executor needs. `inputs` are files, sorted by path; `outputs` that end in "/" are directories."""

    identifier: str
    mnemonic: str
    command: StageCall | ToolCall
    inputs: tuple[FileEntry, ...]
    outputs: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    requirements: ExecutionRequirements  # with the memory of this attempt, which grows after an attempt had too little
    expected_bytes: int = 0  # of memory, as actions of its kind used before; 0: unknown
    is_deterministic: bool = True  # the same inputs give the same result: no fetch, no measurement
    is_reproducible: bool = True  # the same inputs give the same bytes
    allowed_modules: frozenset[str] = field(default_factory=frozenset)  # the closure of its code; empty: not checked
    toolchains: tuple[str, ...] = ()  # that the action declares, by name
    distributions: tuple[str, ...] = ()  # that a stage's code imports, by their normalized names
    code: tuple[str, ...] = ()  # the workspace's files that belong to the code, by their paths from its root
    is_test: bool = False  # where it fails, the outputs that it made are stored all the same
    in_place: tuple[tuple[Digest, str], ...] = ()  # inputs that the store lacks: the workspace's files that they are


class OutcomeKind(enum.Enum):
    """How an execution ended, and what caused it."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  # by the action: its input, the exit code of its tool, a crash of its code
    LOST = "lost"  # the executor went away; the action may be run again
    OUT_OF_MEMORY = "out of memory"  # killed; may be run again with more memory
    INPUTS_MISSING = "inputs missing"  # blobs named in `missing` have gone from the store
    CANCELLED = "cancelled"
    ENVIRONMENT = "environment"  # the machine failed: disk full, tool missing
    NO_EXECUTOR = "no executor"  # no machine that the build may use can ever run it


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionOutcome:
    """What a request led to. `outputs` are files, sorted; those in output directories have their full path. A test that
    failed may have some."""

    identifier: str
    kind: OutcomeKind
    outputs: tuple[FileEntry, ...] = ()
    message: str = ""  # for people: one paragraph, no traceback
    notice: str = ""  # for people: what fails nothing, and should be known
    log: bytes = b""  # what the action printed, with tracebacks and crash notes
    exit_code: int = 0
    timed_out: bool = False  # FAILED: it ran longer than it may
    missing: tuple[Digest, ...] = ()
    worker: str = ""  # where one action runs at a time; a lane of the profile
    node: str = ""  # the machine, where it is not this one
    queued_seconds: float = 0.0
    input_seconds: float = 0.0  # of the run: until the inputs lay in the action's directory
    run_seconds: float = 0.0  # from its start to its outcome, inputs and outputs included
    output_seconds: float = 0.0  # of the run: for storing, and sending, what was made
    peak_bytes: int = 0  # the largest resident set of its processes; 0: not measured


class Executor(Protocol):
    """Runs requests. It is thread-safe, and may call `report` from any thread, once for each submitted request."""

    name: str  # "local", "ray"
    trip_seconds: float  # what an action costs besides its work

    @property
    def slots(self) -> int:
        """How many actions it takes at once. The number may grow during the build."""
        ...

    def unmet_requirement(self, action: Action) -> str:
        """Why no machine of this executor can ever run an action; "" where one can.

        Called from the thread of the build, before each submission. Raises InfrastructureError where the executor
        cannot start.
        """
        ...

    def start(self, report: Callable[[ExecutionOutcome], None]) -> None: ...

    def submit(self, request: ExecutionRequest) -> None: ...

    def cancel(self, identifier: str) -> None: ...

    def close(self) -> None: ...


@runtime_checkable
class FetchesInputs(Protocol):
    """What an executor may offer besides: it fetches inputs itself, so they need not come to this machine first."""

    def can_fetch(self, digests: Sequence[Digest]) -> frozenset[Digest]:
        """The blobs that it can get without this machine's store. It reports one that has gone since as missing."""
        ...


@runtime_checkable
class ReadsInPlace(Protocol):
    """What an executor may offer besides: it takes `ExecutionRequest.in_place`, so large sources need not be stored."""

    @property
    def reads_in_place(self) -> bool: ...
