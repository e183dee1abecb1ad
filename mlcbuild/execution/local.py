"""Runs actions on this machine, each in a process that is forked from a server with the libraries it imports."""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import mlcbuild
from mlcbuild.cache.store import BlobMissingError, LocalBlobStore
from mlcbuild.engine.action import Action, ToolCall
from mlcbuild.engine.executor import ExecutionOutcome, ExecutionRequest, FileEntry, OutcomeKind
from mlcbuild.errors import InfrastructureError, LocalEnvironmentError
from mlcbuild.execution import source_loader
from mlcbuild.execution.admission import FreeResources
from mlcbuild.execution.child_request import child_request
from mlcbuild.execution.diagnosis import (
    Diagnosis,
    check_modules,
    denied_paths_of_tool,
    diagnose,
    explain_sharing,
    explain_system_error,
    input_was_written,
)
from mlcbuild.execution.failed_sandbox import keep_failed_sandbox
from mlcbuild.execution.fork_client import ProcessEnd
from mlcbuild.execution.fork_clients import ForkClients
from mlcbuild.execution.input_trees import InputTrees
from mlcbuild.execution.layout import LinkedBlob, MissingInputsError, changed, lay_out, vanished
from mlcbuild.execution.local_task import LocalTask
from mlcbuild.execution.machine_resources import MachineResources, this_machine, unmet_requirement
from mlcbuild.execution.measuring_lock import alone_on_machine
from mlcbuild.execution.memory import FreeMemory, KernelKills, available_bytes
from mlcbuild.execution.output_files import OutputError, store_made, store_outputs
from mlcbuild.execution.preload import Preloads
from mlcbuild.execution.sandbox import landlock_version
from mlcbuild.execution.sandbox_policy import SandboxPolicies
from mlcbuild.execution.scratch import Scratch, remove
from mlcbuild.execution.server_pool import IDLE_SECONDS
from mlcbuild.regular_files import read_regular

_TREES = "trees"  # the folder of large inputs, beside those of actions
_MEMORY_SECONDS = 0.5  # how often free memory is read while an action waits for it


class LocalExecutor:
    """An `Executor` with `jobs` cpus, which runs actions in the order of submission.

    An action starts when its cpus and GPUs are free and its memory is available, or when nothing else runs. One that
    asks for MORE_CPUS_THAN_ANY runs alone, and waits until nothing else of mlcbuild's measures on this machine; `say`
    tells that.

    `scratch` is the folder for work files; it outlives builds. `module_paths` are folders that hold the modules of a
    workspace's own stages, named by their paths from there. A stage can import from them only modules that share their
    top-level name with a module of its closure.
    `variables` replace some of the variables that actions and servers have (`environment.FIXED`).
    `resources` are what actions may request; the default is all that this machine has. `available_bytes` reads how much
    memory is free. With `sandbox`, actions are confined as far as this machine supports it, except those with network:
    of `module_paths` and of the folders `hidden` they can read only their inputs and the modules that their keys count.
    The directories of failed actions are kept in `failed_sandboxes`. Fork servers are taken from the pool in the folder
    `pool` and stay in it; without a pool they end with this executor.
    No process starts before the first action, and no fork server before an action needs it.
    """

    name = "local"
    trip_seconds = 0.0
    reads_in_place = True

    def __init__(
        self,
        store: LocalBlobStore,
        *,
        jobs: int,
        scratch: Path,
        module_paths: tuple[Path, ...] = (),
        variables: Mapping[str, str] = MappingProxyType({}),
        resources: MachineResources | None = None,
        available_bytes: Callable[[], int] = available_bytes,
        sandbox: bool = False,
        hidden: tuple[Path, ...] = (),
        failed_sandboxes: Path | None = None,
        pool: Path | None = None,
        idle_seconds: float = IDLE_SECONDS,
        say: Callable[[str], object] = lambda _: None,
    ) -> None:
        if jobs < 1:
            raise ValueError(f"jobs must be at least 1, not {jobs}")
        self.slots = jobs
        self._resources = resources or this_machine()
        self._store = store
        self._parent = scratch
        self._variables = variables
        self._module_paths = tuple(path.resolve() for path in module_paths)
        self._preloads = Preloads()
        self._fork_clients = ForkClients(variables=variables, pool=pool, idle_seconds=idle_seconds)
        self._scratch: Scratch | None = None
        self._report: Callable[[ExecutionOutcome], None] | None = None
        self._condition = threading.Condition()
        self._queue: deque[LocalTask] = deque()
        self._running: dict[str, LocalTask] = {}
        self._idle = 0
        self._free_resources = FreeResources(cpus=jobs, gpus=self._resources.gpus)
        self._free_memory = FreeMemory(available_bytes)
        self._kernel_kills = KernelKills()
        self._is_sandboxed = sandbox
        self._say = say
        self._package = f"{Path(mlcbuild.__file__).parent}/"
        self._hidden = hidden
        self._policies: SandboxPolicies | None = None
        self._trees = InputTrees(scratch.resolve() / _TREES)
        self._failed_sandboxes = failed_sandboxes
        self._threads: list[threading.Thread] = []
        self._closed = False

    # The interface of an executor

    def unmet_requirement(self, action: Action) -> str:
        """An action that requests more cpus than there are gets all of them, and runs alone."""
        requirements = action.requirements
        return unmet_requirement(
            self._resources, replace(requirements, cpus=min(requirements.cpus, self._resources.cpus))
        )

    def start(self, report: Callable[[ExecutionOutcome], None]) -> None:
        self._report = report

    def submit(self, request: ExecutionRequest) -> None:
        if self._report is None:
            raise RuntimeError("start() comes before submit()")
        with self._condition:
            if self._closed:
                raise RuntimeError(f"{request.identifier} was submitted to a closed executor")
            self._queue.append(LocalTask(request=request, submitted=time.monotonic()))
            if self._idle < len(self._queue) and len(self._threads) < self.slots:
                thread = threading.Thread(target=self._work, name=f"local-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._condition.notify()

    def cancel(self, identifier: str) -> None:
        """Stop an action and all its processes. Its outcome is CANCELLED, unless it had already ended."""
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
            self._tell(task.outcome(Diagnosis(kind=OutcomeKind.CANCELLED)))

    def close(self) -> None:
        """Cancel all actions, wait for their ends, and remove all processes and work files."""
        with self._condition:
            self._closed = True
            identifiers = [task.request.identifier for task in (*self._queue, *self._running.values())]
            self._condition.notify_all()
        for identifier in identifiers:
            self.cancel(identifier)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        self._fork_clients.close()
        self._trees.close()
        with self._condition:
            scratch, self._scratch = self._scratch, None
        if scratch is not None:
            scratch.close()

    # The threads

    def _work(self) -> None:
        while (task := self._next()) is not None:
            try:
                outcome = self._execute(task)
            finally:
                with self._condition:
                    del self._running[task.request.identifier]
                    self._free_resources.release(task.resources)
                    self._condition.notify_all()
            self._tell(outcome)
            self._keep_compiled(task.compiled)
            if task.directory is not None:  # after the outcome, which does not need to wait for it
                remove(task.directory)

    def _next(self) -> LocalTask | None:
        """The next task, once its resources are free; None when the executor closes."""
        with self._condition:
            while True:
                waits_for_memory = False
                if self._queue and self._free_resources.fits(self._queue[0].resources):
                    waits_for_memory = not self._has_memory_for(self._queue[0])
                    if not waits_for_memory:
                        task = self._queue.popleft()
                        self._free_resources.acquire(task.resources)
                        self._running[task.request.identifier] = task
                        task.started = time.monotonic()
                        return task
                if self._closed:
                    return None
                self._idle += 1
                # Other programs on this machine free memory too, and they notify nobody.
                self._condition.wait(_MEMORY_SECONDS if waits_for_memory else None)
                self._idle -= 1

    def _has_memory_for(self, task: LocalTask) -> bool:
        """Whether its memory is free beside what running actions may still take. One action may always run."""
        request = task.resources.memory_bytes
        if not request or not self._running:
            return True
        return self._free_memory.has(request + sum(other.unused_bytes for other in self._running.values()))

    def _tell(self, outcome: ExecutionOutcome) -> None:
        assert self._report is not None
        self._report(outcome)

    # One action

    def _execute(self, task: LocalTask) -> ExecutionOutcome:
        try:
            asked = task.request.requirements
            with alone_on_machine(asked, waits=self._say, is_given_up=lambda: task.cancelled):
                task.started = time.monotonic()  # it did not run while it waited for others
                task.directory = self._new_directory()
                return self._run(task, task.directory)
        except MissingInputsError as missing:
            diagnosis = Diagnosis(kind=OutcomeKind.INPUTS_MISSING, message=f"{task.request.identifier}: {missing}")
            return task.outcome(diagnosis, missing=missing.digests)
        except InfrastructureError as error:
            return task.outcome(Diagnosis(kind=OutcomeKind.ENVIRONMENT, message=str(error)))
        except OSError as error:
            return task.outcome(
                Diagnosis(kind=OutcomeKind.ENVIRONMENT, message=explain_system_error(task.request, error))
            )
        except Exception as error:  # A bug of ours must still be an outcome, or the build would wait for ever.
            message = f"{task.request.identifier}: internal error: {type(error).__name__}: {error}"
            return task.outcome(
                Diagnosis(kind=OutcomeKind.ENVIRONMENT, message=message), log=traceback.format_exc().encode()
            )

    def _run(self, task: LocalTask, directory: Path) -> ExecutionOutcome:
        request = task.request
        policies = self._policies_for(request)
        # Without the sandbox nothing keeps an action from writing into a folder which others read.
        layout = lay_out(request, directory, self._store, self._trees if policies and landlock_version() else None)
        task.laid_out = time.monotonic()
        client = self._fork_clients.get(self._preloads.of(request), logs=directory.parent)
        body = child_request(
            request,
            directory,
            variables=self._variables,
            module_paths=self._module_paths,
            bytecode=self._bytecode,
        )
        process = client.launch({**body, "sandbox": policies.of(request, directory, layout)} if policies else body)
        with self._condition:
            task.process = process
            cancelled = task.cancelled
        if cancelled:
            process.kill()
        end = process.wait(request.requirements.timeout_seconds, memory_bytes=request.requirements.memory_bytes)
        task.ended, task.peak_bytes = time.monotonic(), end.peak_bytes
        if task.cancelled:
            return task.outcome(Diagnosis(kind=OutcomeKind.CANCELLED), log=end.log)
        diagnosis = self._diagnose(request, end, policies)
        task.compiled = diagnosis.compiled
        if diagnosis.kind is OutcomeKind.LOST and (reason := client.start_error()):
            message = f"a worker cannot start: {reason}\n  reinstall mlcbuild and what it depends on"
            diagnosis = Diagnosis(kind=OutcomeKind.ENVIRONMENT, message=message)
        if written := [blob for blob in changed(layout.blobs) if not self._was_stored_again(blob)]:
            diagnosis = input_was_written(request, [blob.entry.path for blob in written], diagnosis.exit_code)
            return task.outcome(diagnosis, log=end.log)
        outputs: tuple[FileEntry, ...] = ()
        if diagnosis.kind is OutcomeKind.SUCCEEDED:
            try:
                inputs = (entry.path for entry in request.inputs)
                outputs = store_outputs(self._store, directory, request.outputs, inputs=inputs)
            except OutputError as error:
                diagnosis = Diagnosis(kind=OutcomeKind.FAILED, message=f"{request.identifier} {error}")
        if diagnosis.kind is OutcomeKind.FAILED:
            if not directory.parent.is_dir():  # An action cannot remove it, as its own directory is all that it has.
                raise LocalEnvironmentError(f"{request.identifier}: {directory.parent} disappeared while it ran")
            if gone := vanished(layout.blobs):
                raise MissingInputsError(gone)
            if request.is_test:
                outputs = store_made(self._store, directory, request.outputs)
            if self._failed_sandboxes is not None:
                kept = keep_failed_sandbox(directory, self._failed_sandboxes, request.identifier, body)
                told = f"{diagnosis.message}\n  its directory was kept: {kept} (run.sh in it runs the action again)"
                diagnosis = replace(diagnosis, message=told)
        return task.outcome(diagnosis, log=end.log, outputs=outputs)

    def _diagnose(self, request: ExecutionRequest, end: ProcessEnd, policies: SandboxPolicies | None) -> Diagnosis:
        diagnosis = diagnose(request, end, self._kernel_kills.since)
        if diagnosis.kind is OutcomeKind.FAILED and policies and isinstance(request.command, ToolCall):
            denied = policies.denied_paths(end.log)
            diagnosis = replace(diagnosis, message=denied_paths_of_tool(diagnosis, denied)) if denied else diagnosis
        if diagnosis.kind is OutcomeKind.SUCCEEDED or diagnosis.undeclared:
            # A module that the key does not count is named as a module, not as a path that was denied.
            diagnosis = check_modules(diagnosis, request)
        if diagnosis.kind is OutcomeKind.FAILED and policies:
            diagnosis = explain_sharing(diagnosis, end.log)
        return diagnosis

    def _policies_for(self, request: ExecutionRequest) -> SandboxPolicies | None:
        """None for an action with network, which sees the user's own environment, and without the sandbox."""
        if not self._is_sandboxed or request.requirements.network:
            return None
        with self._condition:
            if self._policies is None:
                self._bytecode.mkdir(parents=True, exist_ok=True)  # A policy can only allow what exists.
                self._policies = SandboxPolicies(
                    workspace=self._module_paths, hidden=self._hidden, bytecode=self._bytecode
                )
            return self._policies

    def _was_stored_again(self, blob: LinkedBlob) -> bool:
        """Whether the file was replaced by an equal one, as by a build that stores the same blob at the same time.

        The store verifies the blob, and takes a damaged one out.
        """
        try:
            return self._store.path_of(blob.entry.digest).stat().st_ino != blob.inode
        except (BlobMissingError, FileNotFoundError):
            return False

    def _keep_compiled(self, paths: Iterable[str]) -> None:
        """Compile for the next stages what one had to compile itself. What it says may be wrong."""
        roots = (self._package, *(f"{root}/" for root in self._module_paths))
        for path in paths:
            if path.startswith(roots) and path.endswith(".py"):
                with contextlib.suppress(OSError):
                    source_loader.keep_compiled(path, read_regular(path), str(self._bytecode))

    @property
    def _bytecode(self) -> Path:
        return self._parent.resolve() / "bytecode"

    def _new_directory(self) -> Path:
        with self._condition:
            if self._scratch is None:
                self._scratch = Scratch(self._parent)
            scratch = self._scratch
        return scratch.new()
