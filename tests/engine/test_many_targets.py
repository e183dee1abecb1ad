"""A workspace of a thousand actions in a random graph, built with real files, against a plain reference."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.file_digests import FileDigests
from mlcbuild.cache.store import LocalBlobStore
from mlcbuild.engine.action import Action, Artifact, DerivedArtifact, Input, SourceArtifact, ToolCall
from mlcbuild.engine.build_events import ActionFinished, ActionStatus, BuildEvent
from mlcbuild.engine.driver import Driver
from mlcbuild.engine.executor import ExecutionOutcome, ExecutionRequest, FileEntry, OutcomeKind
from mlcbuild.engine.last_build import LastBuild
from mlcbuild.engine.outputs import OutputPlacer
from mlcbuild.engine.scheduler_events import RequestedTarget
from tests.engine.small_workspace import NoStages, NoToolchains, ShellExecutor, Workspace

SOURCES = 60


class Adder(ShellExecutor):
    """Runs `ToolCall(("sum", modulus))`: adds the numbers in its input files, in this thread."""

    def __init__(self, store: LocalBlobStore) -> None:
        super().__init__(store, slots=4)
        self.executed: list[str] = []

    def submit(self, request: ExecutionRequest) -> None:
        assert isinstance(request.command, ToolCall)
        self.executed.append(request.identifier)
        total = sum(int(self._store.read(entry.digest)) for entry in request.inputs)
        text = str(total % int(request.command.arguments[1]))
        entry = FileEntry(path="out", digest=self._store.put_bytes(text.encode(), durable=False))
        outcome = ExecutionOutcome(identifier=request.identifier, kind=OutcomeKind.SUCCEEDED, outputs=(entry,))
        self._report(outcome)


class Graph:
    """Each action adds up to four numbers of sources and earlier actions, modulo a small number."""

    def __init__(self, seed: int, size: int) -> None:
        chance = random.Random(seed)
        self.values = {f"s/{index}": chance.randrange(100) for index in range(SOURCES)}
        self.needs: list[list[str | int]] = []
        self.moduli = [chance.choice([3, 5, 1000]) for _ in range(size)]
        for index in range(size):
            candidates: list[str | int] = [*chance.sample(sorted(self.values), 3), *range(max(0, index - 40), index)]
            self.needs.append(chance.sample(candidates, k=min(len(candidates), chance.randrange(1, 5))))
        self.wanted = chance.sample(range(size), k=size // 5)

    def reference(self) -> list[int]:
        values: list[int] = []
        for needs, modulus in zip(self.needs, self.moduli, strict=True):
            total = sum(values[need] if isinstance(need, int) else self.values[need] for need in needs)
            values.append(total % modulus)
        return values

    def closure(self) -> set[int]:
        found, waiting = set[int](), list(self.wanted)
        while waiting:
            index = waiting.pop()
            if index not in found:
                found.add(index)
                waiting += [need for need in self.needs[index] if isinstance(need, int)]
        return found

    def keys(self) -> list[tuple[object, ...]]:
        """What distinguishes executions: modulus and the numbers added, place by place."""
        values = self.reference()
        return [
            (modulus, tuple(values[need] if isinstance(need, int) else self.values[need] for need in needs))
            for needs, modulus in zip(self.needs, self.moduli, strict=True)
        ]

    def actions(self) -> list[Action]:
        def artifact(need: str | int) -> Artifact:
            if isinstance(need, str):
                return SourceArtifact(path=need)
            return DerivedArtifact(action=f"a{need}", path="out")

        return [
            Action(
                identifier=f"a{index}",
                mnemonic="Sum",
                owner=f"//p:a{index}",
                inputs=tuple(Input(path=f"i{n}", artifact=artifact(need)) for n, need in enumerate(needs)),
                outputs=("out",),
                command=ToolCall(arguments=("sum", str(modulus))),
            )
            for index, (needs, modulus) in enumerate(zip(self.needs, self.moduli, strict=True))
        ]

    def targets(self) -> list[RequestedTarget]:
        return [
            RequestedTarget(
                label=f"//p:a{index}",
                directory=f"out/a{index}",
                outputs=(("out", DerivedArtifact(action=f"a{index}", path="out")),),
            )
            for index in self.wanted
        ]


def build(workspace: Workspace, graph: Graph) -> tuple[Adder, dict[str, ActionStatus]]:
    for path, value in graph.values.items():
        workspace.write(path, str(value))
    state = workspace.root / "workspace" / ".mlcbuild"
    executor, events = Adder(workspace.store), list[BuildEvent]()
    driver = Driver(
        workspace=workspace.root / "workspace",
        store=workspace.store,
        toolchains=NoToolchains(),
        implementations=NoStages(),
        executors=(executor,),
        digests=FileDigests(workspace.root / "workspace", DigestFunction.BLAKE3, state / "sources"),
        placer=OutputPlacer(workspace.root / "workspace", workspace.store, state / "outputs"),
        last_build=LastBuild(state / "last-build.json"),
        listeners=(events.append,),
    )
    assert driver.build(graph.actions(), graph.targets()).success
    reference = graph.reference()
    for index in graph.wanted:
        assert workspace.text(f"out/a{index}/out") == str(reference[index])
    return executor, {event.identifier: event.status for event in events if isinstance(event, ActionFinished)}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(1, 4))])
def test_a_thousand_actions_run_once_each_kind_and_only_where_a_number_changed(tmp_path: Path, seed: int) -> None:
    workspace, graph = Workspace(tmp_path), Graph(seed, 1000)
    needed = graph.closure()
    known = {graph.keys()[index] for index in needed}
    executor, statuses = build(workspace, graph)
    assert set(statuses) == {f"a{index}" for index in needed}
    assert len(executor.executed) == len(known)

    executor, statuses = build(workspace, graph)
    assert executor.executed == []
    assert set(statuses.values()) == {ActionStatus.UP_TO_DATE}

    chance = random.Random(seed)
    for _ in range(3):
        graph.values[chance.choice(sorted(graph.values))] = chance.randrange(100)
        new = {graph.keys()[index] for index in needed} - known
        executor, statuses = build(workspace, graph)
        assert len(executor.executed) == len(new)
        known |= new
