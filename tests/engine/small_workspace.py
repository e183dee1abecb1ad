"""A workspace in a folder, with a real store, and an executor that runs shell scripts in threads of this process."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.cache.file_digests import FileDigests
from mlcbuild.cache.store import BlobMissingError, LocalBlobStore
from mlcbuild.engine.action import (
    Action,
    Artifact,
    CachePolicy,
    DerivedArtifact,
    DiscoveredArtifacts,
    Discoverer,
    Discovery,
    Input,
    SourceArtifact,
    ToolCall,
)
from mlcbuild.engine.build_events import ActionFinished, ActionStatus, BuildEvent
from mlcbuild.engine.build_result import BuildResult
from mlcbuild.engine.driver import Driver
from mlcbuild.engine.executor import ExecutionOutcome, ExecutionRequest, FileEntry, OutcomeKind
from mlcbuild.engine.last_build import LastBuild
from mlcbuild.engine.outputs import OutputPlacer
from mlcbuild.engine.remote import RemoteCache
from mlcbuild.engine.scheduler_events import RequestedTarget


class ShellExecutor:
    """Runs `ToolCall(("sh", "-c", script))` in a directory of the inputs; each action in a thread of its own."""

    name = "local"
    trip_seconds = 0.0

    def __init__(self, store: LocalBlobStore, *, slots: int = 2) -> None:
        self.slots = slots
        self._store = store
        self._report: Callable[[ExecutionOutcome], None] = lambda _: None
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._cancelled: set[str] = set()
        self._threads: list[threading.Thread] = []
        self.before: Callable[[ExecutionRequest], ExecutionOutcome | None] = lambda _: None
        self.after: Callable[[ExecutionRequest], None] = lambda _: None
        self.most_at_once = 0
        self.runs: Counter[str] = Counter()

    def start(self, report: Callable[[ExecutionOutcome], None]) -> None:
        self._report = report

    def unmet_requirement(self, action: Action) -> str:
        return "no GPU is here" if action.requirements.gpus else ""

    def submit(self, request: ExecutionRequest) -> None:
        self.runs[request.identifier] += 1
        thread = threading.Thread(target=lambda: self._report(self._run(request)))
        self._threads.append(thread)
        thread.start()

    def cancel(self, identifier: str) -> None:
        self._cancelled.add(identifier)
        process = self._processes.get(identifier)
        if process is not None:
            os.killpg(process.pid, signal.SIGKILL)

    def close(self) -> None:
        for identifier in list(self._processes):
            self.cancel(identifier)
        for thread in self._threads:
            thread.join()

    def _run(self, request: ExecutionRequest) -> ExecutionOutcome:
        outcome = self.before(request)
        if outcome is not None:
            return outcome
        assert isinstance(request.command, ToolCall)
        with tempfile.TemporaryDirectory() as folder:
            top = Path(folder)
            missing = []
            for entry in request.inputs:
                path = top / entry.path
                path.parent.mkdir(parents=True, exist_ok=True)
                try:
                    path.write_bytes(self._store.read(entry.digest))
                except BlobMissingError as error:
                    missing.append(error.digest)
            if missing:
                return ExecutionOutcome(
                    identifier=request.identifier, kind=OutcomeKind.INPUTS_MISSING, missing=tuple(missing)
                )
            for output in request.outputs:
                (top / output if output.endswith("/") else (top / output).parent).mkdir(parents=True, exist_ok=True)
            with subprocess.Popen(
                request.command.arguments,
                cwd=top,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ) as process:
                self._processes[request.identifier] = process
                self.most_at_once = max(self.most_at_once, len(self._processes))
                log, _ = process.communicate()
            del self._processes[request.identifier]
            if request.identifier in self._cancelled:
                return ExecutionOutcome(identifier=request.identifier, kind=OutcomeKind.CANCELLED)
            self.after(request)
            if process.returncode:
                return ExecutionOutcome(
                    identifier=request.identifier,
                    kind=OutcomeKind.FAILED,
                    message=f"exit code {process.returncode}",
                    log=log,
                    exit_code=process.returncode,
                )
            return ExecutionOutcome(
                identifier=request.identifier,
                kind=OutcomeKind.SUCCEEDED,
                outputs=tuple(sorted(self._keep(top, request.outputs))),
                log=log,
                worker="shell",
                run_seconds=0.01,
            )

    def _keep(self, top: Path, outputs: Iterable[str]) -> Iterable[FileEntry]:
        for output in outputs:
            paths = (top / output).rglob("*") if output.endswith("/") else [top / output]
            for path in paths:
                if path.is_file():
                    yield FileEntry(path=str(path.relative_to(top)), digest=self._store.put_file(path))


class NoToolchains:
    def fingerprint(self, name: str) -> str:
        raise AssertionError(f"no action here uses {name}")


@dataclass(frozen=True)
class NoCode:
    digest: str = ""
    modules: frozenset[str] = frozenset()
    distributions: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


class NoStages:
    def of(self, *modules: str) -> NoCode:
        raise AssertionError(f"no action here is a stage: {modules}")

    def listing(self, *modules: str) -> bytes:
        raise AssertionError(f"no action here is a stage: {modules}")

    def changed(self, *modules: str) -> str:
        raise AssertionError(f"no action here is a stage: {modules}")


def shell(
    identifier: str,
    script: str,
    inputs: Sequence[tuple[str, Artifact]] = (),
    outputs: Sequence[str] = ("out",),
    *,
    mnemonic: str = "Shell",
    cache: CachePolicy = CachePolicy.ALL,
    discoverer: Discoverer | None = None,
) -> Action:
    return Action(
        identifier=identifier,
        mnemonic=mnemonic,
        owner="//test:owner",
        inputs=tuple(Input(path=path, artifact=artifact) for path, artifact in inputs),
        outputs=tuple(outputs),
        command=ToolCall(arguments=("sh", "-ec", script)),
        cache=cache,
        manifest="manifest" if discoverer else "",
        discoverer=discoverer,
    )


def target(label: str, *artifacts: Artifact) -> RequestedTarget:
    places = []
    for index, artifact in enumerate(artifacts):
        many = isinstance(artifact, DiscoveredArtifacts) or artifact.path.endswith("/")
        places.append((f"out{index}{'/' if many else ''}", artifact))
    return RequestedTarget(
        label=label, directory=f"out/{label.removeprefix('//').replace(':', '/')}", outputs=tuple(places)
    )


@dataclass
class Workspace:
    """Runs builds one after another, each with a new driver, as separate processes would."""

    root: Path
    events: list[BuildEvent] = field(default_factory=list)
    executor: ShellExecutor = field(init=False)
    store: DiskStore = field(init=False)
    remote: RemoteCache | None = None
    keep_going: bool = False
    jobs: int = 2

    def __post_init__(self) -> None:
        (self.root / "workspace").mkdir(parents=True, exist_ok=True)
        self.store = DiskStore(self.root / "store", DigestFunction.BLAKE3)
        self.driver = self.new_driver()

    def write(self, path: str, text: str) -> None:
        file = self.root / "workspace" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def new_driver(self) -> Driver:
        state = self.root / "workspace" / ".mlcbuild"
        self.executor = ShellExecutor(self.store)
        return Driver(
            workspace=self.root / "workspace",
            store=self.store,
            toolchains=NoToolchains(),
            implementations=NoStages(),
            executors=(self.executor,),
            digests=FileDigests(self.root / "workspace", DigestFunction.BLAKE3, state / "sources"),
            placer=OutputPlacer(self.root / "workspace", self.store, state / "outputs"),
            last_build=LastBuild(state / "last-build.json"),
            listeners=(self.events.append,),
            jobs=self.jobs,
            keep_going=self.keep_going,
            remote=self.remote,
        )

    def build(self, actions: Sequence[Action], *targets: RequestedTarget) -> BuildResult:
        self.events.clear()
        result = self.driver.build(actions, targets)
        self.last_executor = self.executor
        self.driver = self.new_driver()
        return result

    def statuses(self) -> dict[str, ActionStatus]:
        """The statuses of the last build by action. The last one counts."""
        return {event.identifier: event.status for event in self.events if isinstance(event, ActionFinished)}

    def executed(self) -> set[str]:
        return {name for name, status in self.statuses().items() if status is ActionStatus.EXECUTED_LOCAL}

    def text(self, path: str) -> str:
        return (self.root / "workspace" / path).read_text()


def chain() -> list[Action]:
    upper = shell("upper", "tr a-z A-Z < in > out", [("in", SourceArtifact(path="a.txt"))])
    first = shell("first", "head -c 1 in > out", [("in", upper.output("out"))])
    double = shell("double", "cat x x > out", [("x", first.output("out"))])
    other = shell("other", "cat y > out", [("y", SourceArtifact(path="b.txt"))])
    return [double, upper, other, first]


@dataclass(frozen=True)
class OneAPart:
    """Announces two actions in a row for each part named in a manifest, and the group of what the second ones make."""

    def __call__(self, *, discovering: str, manifest: bytes) -> Discovery:
        actions = tuple(
            shell(f"{discovering} {name}", "cat in in > out", [("in", DerivedArtifact(action=discovering, path=name))])
            for name in manifest.decode().split()
        )
        renamed = tuple(
            shell(f"{a.identifier} named", f"cat in > n{i}", [("in", a.output("out"))], (f"n{i}",))
            for i, a in enumerate(actions)
        )
        members = tuple(action.output(action.outputs[0]) for action in renamed)
        return Discovery(actions=(*actions, *renamed), groups=(("doubled", members),))
