"""A store, an executor with two slots, and requests for it."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.disk import DiskStore
from mlcbuild.engine.action import ExecutionRequirements, JsonValue, StageCall, ToolCall
from mlcbuild.engine.executor import ExecutionOutcome, ExecutionRequest, FileEntry
from mlcbuild.execution import environment
from mlcbuild.execution.fork_client import ForkClient
from mlcbuild.execution.local import LocalExecutor

STAGES = Path(__file__).parent / "stages"
_SECONDS = 60.0


@dataclass(kw_only=True)
class World:
    """What an execution test needs. Outcomes are taken in the order in which they come."""

    store: DiskStore
    executor: LocalExecutor
    directory: Path
    scratch: Path
    outcomes: queue.Queue[ExecutionOutcome] = field(default_factory=queue.Queue)

    def entry(self, path: str, content: str, *, is_executable: bool = False) -> FileEntry:
        digest = self.store.put_bytes(content.encode())
        return FileEntry(path=path, digest=digest, is_executable=is_executable)

    def stage(
        self,
        function: str,
        *,
        identifier: str = "//t:x Stage",
        inputs: tuple[FileEntry, ...] = (),
        arguments: tuple[tuple[str, str | tuple[str, ...]], ...] = (),
        groups: tuple[tuple[str, str], ...] = (),
        plugins: tuple[tuple[str, str | tuple[str, ...]], ...] = (),
        output: str = "out.txt",
        requirements: ExecutionRequirements | None = None,
        environment: tuple[tuple[str, str], ...] = (),
        allowed_modules: frozenset[str] = frozenset(),
        toolchains: tuple[str, ...] = (),
        distributions: tuple[str, ...] = (),
        **parameters: JsonValue,
    ) -> ExecutionRequest:
        """A call of a function of `sample_stages` with one output, its argument `out`."""
        return ExecutionRequest(
            identifier=identifier,
            mnemonic="Stage",
            command=StageCall(
                function=function if ":" in function else f"sample_stages:{function}",
                inputs=arguments,
                groups=groups,
                outputs=(("out", output),),
                parameters=tuple(parameters.items()),
                plugins=plugins,
            ),
            inputs=inputs,
            outputs=(output,),
            environment=environment,
            requirements=requirements or ExecutionRequirements(),
            allowed_modules=allowed_modules,
            toolchains=toolchains,
            distributions=distributions,
        )

    def tool(
        self,
        *arguments: str,
        identifier: str = "//t:x Command",
        inputs: tuple[FileEntry, ...] = (),
        outputs: tuple[str, ...] = ("out.txt",),
        environment: tuple[tuple[str, str], ...] = (),
        requirements: ExecutionRequirements | None = None,
    ) -> ExecutionRequest:
        return ExecutionRequest(
            identifier=identifier,
            mnemonic="Command",
            command=ToolCall(arguments=arguments),
            inputs=inputs,
            outputs=outputs,
            environment=environment,
            requirements=requirements or ExecutionRequirements(),
        )

    def run(self, request: ExecutionRequest) -> ExecutionOutcome:
        self.executor.submit(request)
        return self.next()

    def next(self) -> ExecutionOutcome:
        return self.outcomes.get(timeout=_SECONDS)

    def content(self, outcome: ExecutionOutcome, path: str = "out.txt") -> str:
        """The text of an output. If there is none, the test fails with the outcome's message and log."""
        digests: dict[str, Digest] = {entry.path: entry.digest for entry in outcome.outputs}
        assert path in digests, f"{outcome.kind} {outcome.message}\n{outcome.log.decode()}"
        return self.store.read(digests[path]).decode()

    @staticmethod
    def wait_for(path: Path) -> str:
        """The text of a file that a stage will write."""
        deadline = time.monotonic() + _SECONDS
        while not path.exists():
            assert time.monotonic() < deadline, f"{path} did not come"
            time.sleep(0.01)
        return path.read_text()

    @staticmethod
    def is_gone(pid: int) -> bool:
        """Whether a process ends within five seconds (a zombie has ended)."""
        for _ in range(500):
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            except (ProcessLookupError, FileNotFoundError):
                return True
            if state == "Z":
                return True
            time.sleep(0.01)
        return False


def make_world(directory: Path, *, jobs: int = 2) -> World:
    store = DiskStore(directory / "cache", DigestFunction.BLAKE3)
    scratch = directory / "scratch"
    executor = LocalExecutor(store, jobs=jobs, scratch=scratch, module_paths=(STAGES,))
    world = World(store=store, executor=executor, directory=directory, scratch=scratch)
    executor.start(world.outcomes.put)
    return world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = make_world(tmp_path)
    yield world
    world.executor.close()
    assert [path.name for path in world.scratch.glob("run-*")] == []


def tool_in(directory: Path, *arguments: str, **variables: str) -> dict[str, object]:
    return {"directory": str(directory), "environment": {**environment.FIXED, **variables}, "arguments": arguments}


def pid_of(server: ForkClient) -> int:
    return int(str(server.hello()["ready"]))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ForkClient]:
    server = ForkClient(preload=(), log=tmp_path / "log")
    yield server
    server.close()
