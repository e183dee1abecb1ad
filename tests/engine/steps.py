"""A scheduler that a test gives events one by one, and small actions for it."""

from __future__ import annotations

from collections.abc import Sequence

from mlcbuild.cache.digest import Digest
from mlcbuild.engine.action import (
    Action,
    Artifact,
    CachePolicy,
    DerivedArtifact,
    DiscoveredArtifacts,
    Discoverer,
    ExecutionRequirements,
    Input,
    ToolCall,
)
from mlcbuild.engine.executor import ExecutionOutcome, FileEntry, OutcomeKind
from mlcbuild.engine.instructions import (
    Execute,
    Instruction,
    LookUp,
    ReportAction,
)
from mlcbuild.engine.invariants import validate
from mlcbuild.engine.scheduler import Scheduler
from mlcbuild.engine.scheduler_events import (
    ActionsDeclared,
    Executed,
    RequestedTarget,
    ResultFound,
    ResultNotFound,
    SchedulerEvent,
    TargetsRequested,
)
from tests.engine.random_graphs import digest_of, key_of


def action(
    identifier: str,
    *inputs: Artifact,
    mnemonic: str = "",
    outputs: tuple[str, ...] = ("out",),
    cpus: int = 1,
    cache: CachePolicy = CachePolicy.ALL,
    discoverer: Discoverer | None = None,
    owner: str = "//a:b",
) -> Action:
    placed = []
    for index, artifact in enumerate(inputs):
        many = isinstance(artifact, DiscoveredArtifacts) or artifact.path.endswith("/")
        placed.append(Input(path=f"in{index}/" if many else f"in{index}", artifact=artifact))
    return Action(
        identifier=identifier,
        mnemonic=mnemonic or identifier,
        owner=owner,
        inputs=tuple(placed),
        outputs=outputs,
        command=ToolCall(arguments=("tool",)),
        cache=cache,
        requirements=ExecutionRequirements(cpus=cpus),
        manifest="manifest" if discoverer else "",
        discoverer=discoverer,
    )


def out(identifier: str, path: str = "out") -> DerivedArtifact:
    return DerivedArtifact(action=identifier, path=path)


class Steps:
    """Gives a scheduler events, and keeps its answer to the last ones."""

    def __init__(self, actions: Sequence[Action], *wanted: Artifact, jobs: int = 2, keep_going: bool = False) -> None:
        self.scheduler = Scheduler(
            key_of=key_of,
            jobs=jobs,
            keep_going=keep_going,
            seconds_of=lambda action: {"slow": 100.0}.get(action.mnemonic, 1.0),
            rewind_limit=3,
            loss_limit=2,
        )
        outputs = tuple((f"o{index}", artifact) for index, artifact in enumerate(wanted))
        self.answers: list[Instruction] = []
        self.reports: dict[str, ReportAction] = {}
        self.tell(ActionsDeclared(actions=tuple(actions)))
        self.tell(TargetsRequested(targets=(RequestedTarget(label="//t:t", directory="t", outputs=outputs),)))

    def tell(self, *told: SchedulerEvent) -> list[Instruction]:
        self.answers = self.scheduler.handle(*told)
        validate(self.scheduler)
        self.reports |= {a.action.identifier: a for a in self.answers if isinstance(a, ReportAction)}
        return self.answers

    def miss(self, *identifiers: str) -> list[Instruction]:
        """The lookups of these actions find nothing."""
        return self.tell(*(ResultNotFound(identifier=i, key=self._key(i)) for i in identifiers))

    def hit(self, identifier: str, text: str) -> list[Instruction]:
        entries = (FileEntry(path="out", digest=digest_of(text)),)
        return self.tell(ResultFound(identifier=identifier, key=self._key(identifier), outputs=entries))

    def succeed(self, identifier: str, **texts: str) -> list[Instruction]:
        entries = tuple(FileEntry(path=path, digest=digest_of(text)) for path, text in sorted(texts.items()))
        return self.end(identifier, OutcomeKind.SUCCEEDED, outputs=entries)

    def end(
        self,
        identifier: str,
        kind: OutcomeKind,
        *,
        outputs: tuple[FileEntry, ...] = (),
        missing: Sequence[str] = (),
    ) -> list[Instruction]:
        gone = tuple(digest_of(text) for text in missing)
        outcome = ExecutionOutcome(identifier=identifier, kind=kind, outputs=outputs, missing=gone, message="it broke")
        return self.tell(Executed(outcome=outcome))

    def started(self) -> list[str]:
        return [a.action.identifier for a in self.answers if isinstance(a, Execute)]

    def looked_up(self) -> list[str]:
        return [a.action.identifier for a in self.answers if isinstance(a, LookUp)]

    def kinds(self) -> list[type]:
        return [type(answer) for answer in self.answers]

    def _key(self, identifier: str) -> Digest:
        key = self.scheduler.graph.actions[identifier].key
        assert key is not None
        return key
