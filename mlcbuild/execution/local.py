"""Run actions on this machine, each in a process forked from a server that holds what it imports."""

from __future__ import annotations

import errno
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import mlcbuild
from mlcbuild.cache.digest import Digest
from mlcbuild.cache.store import BlobMissingError, LocalBlobStore
from mlcbuild.engine.action import ExecutionRequirements, StageCall, ToolCall
from mlcbuild.engine.executor import ExecutionOutcome, ExecutionRequest, FileEntry, OutcomeKind
from mlcbuild.errors import InfrastructureError
from mlcbuild.execution import environment
from mlcbuild.execution.admission import Need, Room
from mlcbuild.execution.collect import OutputProblem, collect
from mlcbuild.execution.confinement import Confinement
from mlcbuild.execution.fork_client import ForkClient, ForkedProcess
from mlcbuild.execution.kept import keep
from mlcbuild.execution.layout import LinkedBlob, MissingInputs, changed, lay_out, vanished
from mlcbuild.execution.machine import Machine, refusal, this_machine
from mlcbuild.execution.memory import FreeMemory, KernelKills, available_bytes
from mlcbuild.execution.preload import HIDDEN, Preloads
from mlcbuild.execution.scratch import Scratch, remove
from mlcbuild.execution.server_pool import IDLE_SECONDS, PooledForkClient
from mlcbuild.execution.verdict import Verdict, judge, undeclared_reads

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_MEMORY_SECONDS = 0.5  # how often memory is looked at that an action waits for


@dataclass(kw_only=True, eq=False)
class _Task:
    request: ExecutionRequest
    submitted: float
    started: float = 0.0
    directory: Path | None = None
    process: ForkedProcess | None = None
    cancelled: bool = field(default=False)
    laid_out: float = 0.0  # when its inputs were there
    ended: float = 0.0  # when its process was gone
    peak_bytes: int = 0

    def outcome(
        self,
        verdict: Verdict,
        *,
        outputs: tuple[FileEntry, ...] = (),
        log: bytes = b"",
        missing: tuple[Digest, ...] = (),
    ) -> ExecutionOutcome:
        now = time.monotonic()
        started = self.started or now
        return ExecutionOutcome(
            identifier=self.request.identifier,
            kind=verdict.kind,
            outputs=outputs,
            message=verdict.message,
            log=log,
            exit_code=verdict.exit_code,
            missing=missing,
            worker="local",
            queued_seconds=started - self.submitted,
            input_seconds=max(0.0, self.laid_out - started),
            run_seconds=now - started,
            output_seconds=now - self.ended if self.ended else 0.0,
            peak_bytes=self.peak_bytes,
        )

    @property
    def need(self) -> Need:
        asked = self.request.requirements
        memory_bytes = asked.memory_bytes or self.request.expected_bytes
        return Need(cpus=asked.cpus, gpus=asked.gpus, memory_bytes=memory_bytes)

    @property
    def unused_bytes(self) -> int:
        """What it was let in for and does not hold yet."""
        return max(0, self.need.memory_bytes - (self.process.resident_bytes if self.process else 0))


class LocalExecutor:
    """An `Executor`: `jobs` cpus, in submission order. Work files lie below `scratch`, which outlives builds.

    An action starts when its cpus and GPUs are free and its memory is there, or when nothing else runs.

    `module_paths` are directories where the modules of a workspace's own stages lie, named by their paths from there.
    Of them a stage can import what shares its first name with a module of its closure, nothing else.
    `variables` stand in for some of those that actions and servers have (`environment.FIXED`).
    `machine` is what actions may count on; by default all that is here. `available_bytes` tells how much memory is
    free. With `sandbox` actions are confined as far as this machine can, those with network aside: they see nothing of
    `module_paths`, nor of the directories `hidden`, but their inputs and the modules that their keys count. The
    directories of failed actions are kept below `keep_failed`. Fork servers are taken from the pool in `pool`, and left
    there; without one they end with this.
    Nothing is started before the first action, and no fork server before an action wants it.
    """

    name = "local"
    trip_seconds = 0.0

    def __init__(
        self,
        store: LocalBlobStore,
        *,
        jobs: int,
        scratch: Path,
        module_paths: tuple[Path, ...] = (),
        variables: Mapping[str, str] = MappingProxyType({}),
        machine: Machine | None = None,
        available_bytes: Callable[[], int] = available_bytes,
        sandbox: bool = False,
        hidden: tuple[Path, ...] = (),
        keep_failed: Path | None = None,
        pool: Path | None = None,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        if jobs < 1:
            raise ValueError(f"jobs must be at least 1, not {jobs}")
        self.slots = jobs
        self._machine = machine or this_machine()
        self._store = store
        self._parent = scratch
        self._variables = variables
        self._module_paths = tuple(path.resolve() for path in module_paths)
        self._preloads = Preloads()
        self._scratch: Scratch | None = None
        self._fork_clients: dict[tuple[str, ...], ForkClient] = {}
        self._report: Callable[[ExecutionOutcome], None] | None = None
        self._condition = threading.Condition()
        self._queue: deque[_Task] = deque()
        self._running: dict[str, _Task] = {}
        self._idle = 0
        self._room = Room(cpus=jobs, gpus=self._machine.gpus)
        self._free_memory = FreeMemory(available_bytes)
        self._kernel_kills = KernelKills()
        self._is_confining = sandbox
        self._hidden = hidden
        self._confinement: Confinement | None = None
        self._keep_failed = keep_failed
        self._pool = pool
        self._idle_seconds = idle_seconds
        self._threads: list[threading.Thread] = []
        self._closed = False

    # The executor's door.

    def refusal(self, requirements: ExecutionRequirements) -> str:
        """An action that wants more cpus than there are gets all of them, and no other beside it."""
        return refusal(self._machine, replace(requirements, cpus=min(requirements.cpus, self._machine.cpus)))

    def start(self, report: Callable[[ExecutionOutcome], None]) -> None:
        self._report = report

    def submit(self, request: ExecutionRequest) -> None:
        if self._report is None:
            raise RuntimeError("start() comes before submit()")
        with self._condition:
            if self._closed:
                raise RuntimeError(f"{request.identifier} was submitted to a closed executor")
            self._queue.append(_Task(request=request, submitted=time.monotonic()))
            if self._idle < len(self._queue) and len(self._threads) < self.slots:
                thread = threading.Thread(target=self._work, name=f"local-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._condition.notify()

    def cancel(self, identifier: str) -> None:
        """Stop an action and all its processes; its outcome says CANCELLED unless it had already ended."""
        with self._condition:
            queued = [task for task in self._queue if task.request.identifier == identifier]
            for task in queued:
                self._queue.remove(task)
            running = self._running.get(identifier)
            process = None
            if running is not None:
                running.cancelled = True
                process = running.process
        if process is not None:
            process.kill()
        for task in queued:
            self._tell(task.outcome(Verdict(kind=OutcomeKind.CANCELLED)))

    def close(self) -> None:
        """Cancel what is queued and what runs, wait for it, and leave neither process nor work file behind."""
        with self._condition:
            self._closed = True
            identifiers = [task.request.identifier for task in (*self._queue, *self._running.values())]
            self._condition.notify_all()
        for identifier in identifiers:
            self.cancel(identifier)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        for client in self._fork_clients.values():
            client.close()
        with self._condition:
            scratch, self._scratch = self._scratch, None
        if scratch is not None:
            scratch.close()

    # The threads.

    def _work(self) -> None:
        while (task := self._next()) is not None:
            try:
                outcome = self._execute(task)
            finally:
                with self._condition:
                    del self._running[task.request.identifier]
                    self._room.leave(task.need)
                    self._condition.notify_all()
            self._tell(outcome)
            if task.directory is not None:  # after the outcome, which does not need to wait for it
                remove(task.directory)

    def _next(self) -> _Task | None:
        """The next task, once there is room for it; None when the executor closes."""
        with self._condition:
            while True:
                wants_memory = False
                if self._queue and self._room.has_place_for(self._queue[0].need):
                    wants_memory = not self._has_memory_for(self._queue[0])
                    if not wants_memory:
                        task = self._queue.popleft()
                        self._room.enter(task.need)
                        self._running[task.request.identifier] = task
                        task.started = time.monotonic()
                        return task
                if self._closed:
                    return None
                self._idle += 1
                # Memory is given back by others on this machine too, who notify nobody.
                self._condition.wait(_MEMORY_SECONDS if wants_memory else None)
                self._idle -= 1

    def _has_memory_for(self, task: _Task) -> bool:
        """Whether it fits beside what runs, which may not have taken all that it was let in for. One may always run."""
        need = task.need.memory_bytes
        if not need or not self._running:
            return True
        return self._free_memory.has(need + sum(other.unused_bytes for other in self._running.values()))

    def _tell(self, outcome: ExecutionOutcome) -> None:
        assert self._report is not None
        self._report(outcome)

    def _execute(self, task: _Task) -> ExecutionOutcome:
        try:
            task.directory = self._new_directory()
            return self._run(task, task.directory)
        except MissingInputs as missing:
            verdict = Verdict(kind=OutcomeKind.INPUTS_MISSING, message=f"{task.request.identifier}: {missing}")
            return task.outcome(verdict, missing=missing.digests)
        except InfrastructureError as error:
            return task.outcome(Verdict(kind=OutcomeKind.ENVIRONMENT, message=str(error)))
        except OSError as error:
            return task.outcome(Verdict(kind=OutcomeKind.ENVIRONMENT, message=_explain(task.request, error)))
        except Exception as error:  # a bug of ours must still be an outcome, or the build would wait for ever
            message = f"{task.request.identifier}: internal error: {type(error).__name__}: {error}"
            return task.outcome(
                Verdict(kind=OutcomeKind.ENVIRONMENT, message=message), log=traceback.format_exc().encode()
            )

    def _run(self, task: _Task, directory: Path) -> ExecutionOutcome:
        request = task.request
        blobs = lay_out(request, directory, self._store)
        task.laid_out = time.monotonic()
        client = self._fork_client(self._preloads.of(request))
        body = self._body(request, directory)
        confinement = self._confinement_of(request)
        process = client.launch(
            {**body, "sandbox": confinement.policy(request, directory, blobs)} if confinement else body
        )
        with self._condition:
            task.process = process
            cancelled = task.cancelled
        if cancelled:
            process.kill()
        end = process.wait(request.requirements.timeout_seconds, memory_bytes=request.requirements.memory_bytes)
        task.ended, task.peak_bytes = time.monotonic(), end.peak_bytes
        if task.cancelled:
            return task.outcome(Verdict(kind=OutcomeKind.CANCELLED), log=end.log)
        verdict = judge(request, end, self._kernel_kills.since)
        if verdict.undeclared:  # a module is named by its name
            verdict = _check_modules(verdict, request)
        elif verdict.kind is OutcomeKind.FAILED and confinement and isinstance(request.command, ToolCall):
            refused = confinement.refused(end.log)
            verdict = replace(verdict, message=undeclared_reads(verdict.message, refused)) if refused else verdict
        if verdict.kind is OutcomeKind.LOST and (reason := client.failure()):
            message = f"a worker cannot start: {reason}\n  reinstall mlcbuild and what it depends on"
            verdict = Verdict(kind=OutcomeKind.ENVIRONMENT, message=message)
        if written := changed(blobs):
            return task.outcome(self._distrust(written, request, verdict.exit_code), log=end.log)
        if verdict.kind is OutcomeKind.FAILED and (gone := vanished(blobs)):
            raise MissingInputs(gone)
        if verdict.kind is not OutcomeKind.SUCCEEDED:
            if verdict.kind is OutcomeKind.FAILED and self._keep_failed is not None:
                kept = keep(directory, self._keep_failed, request.identifier, body)
                verdict = replace(verdict, message=f"{verdict.message}\n  kept: {kept} (run.sh in it runs it again)")
            return task.outcome(verdict, log=end.log)
        verdict = _check_modules(verdict, request)
        try:
            outputs = self._keep(directory, request.outputs) if verdict.kind is OutcomeKind.SUCCEEDED else ()
        except OutputProblem as problem:
            verdict = Verdict(kind=OutcomeKind.FAILED, message=f"{request.identifier} {problem}")
            outputs = ()
        return task.outcome(verdict, log=end.log, outputs=outputs)

    def _body(self, request: ExecutionRequest, directory: Path) -> dict[str, object]:
        """The request as the fork server's child reads it."""
        variables = (
            environment.of_network_action(request.environment)
            if request.requirements.network
            else environment.of_action(request.environment, directory, self._variables)
        )
        body: dict[str, object] = {"directory": str(directory), "environment": variables}
        call = request.command
        if not isinstance(call, StageCall):
            return {**body, "arguments": call.arguments}
        return {
            **body,
            "package_root": str(Path(mlcbuild.__file__).parents[1]),
            "module_paths": [str(path) for path in self._module_paths],
            "module_names": sorted(_first_names(request, call)),
            "bytecode": str(self._parent.resolve() / "bytecode"),
            "call": {
                "function": call.function,
                "inputs": call.inputs,
                "groups": call.groups,
                "outputs": call.outputs,
                "parameters": dict(call.parameters),
                "plugins": call.plugins,
                "hints": dict(request.requirements.execution_hints),
                "module_paths": [str(path) for path in self._module_paths],
            },
        }

    def _confinement_of(self, request: ExecutionRequest) -> Confinement | None:
        """None for what sees the user's own environment, and where nothing is to be confined."""
        if not self._is_confining or request.requirements.network:
            return None
        with self._condition:
            if self._confinement is None:
                bytecode = self._parent.resolve() / "bytecode"
                bytecode.mkdir(parents=True, exist_ok=True)  # so that it can be allowed
                self._confinement = Confinement(workspace=self._module_paths, hidden=self._hidden, bytecode=bytecode)
            return self._confinement

    def _distrust(self, written: list[LinkedBlob], request: ExecutionRequest, exit_code: int) -> Verdict:
        """What is said of an action that wrote to its inputs; the store looks at those blobs again."""
        for blob in written:
            try:
                self._store.path_of(blob.entry.digest)  # verifies, and takes a damaged blob out
            except BlobMissingError:
                pass
        paths = ", ".join(blob.entry.path for blob in written)
        message = f"{request.identifier} wrote to its input {paths}\n  inputs are read-only: write to a declared output"
        return Verdict(kind=OutcomeKind.FAILED, message=message, exit_code=exit_code)

    def _keep(self, directory: Path, outputs: tuple[str, ...]) -> tuple[FileEntry, ...]:
        stored: dict[Path, Digest] = {}
        entries = []
        for output in collect(directory, outputs):
            if output.file not in stored:
                stored[output.file] = self._store.put_file(output.file, move=True)
            entries.append(FileEntry(path=output.path, digest=stored[output.file], is_executable=output.is_executable))
        return tuple(entries)

    def _new_directory(self) -> Path:
        with self._condition:
            if self._scratch is None:
                self._scratch = Scratch(self._parent)
            scratch = self._scratch
        return scratch.new()

    def _fork_client(self, preload: tuple[str, ...]) -> ForkClient:
        with self._condition:
            assert self._scratch is not None
            if preload not in self._fork_clients:
                self._fork_clients[preload] = self._new_fork_client(preload, self._scratch.directory)
            return self._fork_clients[preload]

    def _new_fork_client(self, preload: tuple[str, ...], directory: Path) -> ForkClient:
        variables = environment.of_server(self._variables)
        if self._pool is not None:
            return PooledForkClient(
                preload=preload,
                hide=HIDDEN,
                variables=variables,
                directory=self._pool,
                idle_seconds=self._idle_seconds,
            )
        log = directory / f"server-{len(self._fork_clients)}.log"
        return ForkClient(preload=preload, hide=HIDDEN, log=log, variables=variables)


def _first_names(request: ExecutionRequest, call: StageCall) -> set[str]:
    """The first names of the workspace's modules in a stage's closure."""
    modules = request.allowed_modules.union(call.modules)
    return {module.partition(".")[0] for module in modules} - {mlcbuild.__name__}


def _check_modules(verdict: Verdict, request: ExecutionRequest) -> Verdict:
    """Fail a stage that loaded a module of ours, or of its workspace, which its key does not count."""
    if not request.allowed_modules:
        return verdict
    undeclared = [module for module in verdict.modules if module not in request.allowed_modules]
    if not undeclared:
        return verdict
    message = (
        f"{request.identifier} loaded {', '.join(undeclared)}, which its key does not count\n"
        "  import it where a static reader finds it: at the top of a module, by its full name"
    )
    return Verdict(kind=OutcomeKind.FAILED, message=message)


def _explain(request: ExecutionRequest, error: OSError) -> str:
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in _DISK_FULL:
        return f"{request.identifier}: no space left on the disk{where}\n  free some space and build again"
    return f"{request.identifier}: {error.strerror or error}{where}"
