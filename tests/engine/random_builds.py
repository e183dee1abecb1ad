"""Random builds for the scheduler: graphs, a world that carries out instructions with failures, and a reference.

An action's outputs are a small function of its mnemonic and its input files, so equal contents and equal keys are
frequent. The reference evaluates by plain recursion, with no cache, no order and no faults.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from mlcbuild.cache.digest import Digest
from mlcbuild.engine.action import (
    Action,
    Artifact,
    CachePolicy,
    DerivedArtifact,
    DiscoveredArtifacts,
    Discovery,
    ExecutionRequirements,
    Input,
    SourceArtifact,
    ToolCall,
)
from mlcbuild.engine.executor import ExecutionOutcome, FileEntry, OutcomeKind
from mlcbuild.engine.instructions import (
    Cancel,
    Deliver,
    DigestSources,
    Discover,
    Execute,
    Finished,
    Instruction,
    LookUp,
    Publish,
    ReportAction,
    ReportTarget,
)
from mlcbuild.engine.invariants import validate
from mlcbuild.engine.scheduler import Scheduler
from mlcbuild.engine.scheduler_events import (
    ActionsDeclared,
    ActionsDiscovered,
    BlobsMissing,
    Cancelled,
    Executed,
    ExecutorLost,
    LookupSlow,
    RequestedTarget,
    ResultFound,
    ResultNotFound,
    SchedulerEvent,
    SourceDigested,
    SourceUnavailable,
    TargetDelivered,
    TargetsRequested,
)
from mlcbuild.engine.transitions import NodeState


def digest_of(text: str) -> Digest:
    return Digest(hashlib.sha256(text.encode()).hexdigest(), len(text))


def key_of(action: Action, inputs: tuple[FileEntry, ...]) -> Digest:
    """A digest of all that the outputs of an action depend on."""
    return digest_of(repr((action.mnemonic, action.outputs, inputs)))


def outputs_of(action: Action, inputs: tuple[FileEntry, ...]) -> dict[str, str] | None:
    """Contents by path; None for a failure. Contents are few, so that different inputs often give equal outputs."""
    chance = random.Random(repr((action.mnemonic, action.outputs, inputs)))
    if action.mnemonic.startswith("Fragile") and chance.random() < 0.5:
        return None
    made: dict[str, str] = {}
    for path in action.outputs:
        if path.endswith("/"):
            made |= {f"{path}p{index}": f"part {chance.randrange(3)}" for index in range(chance.randrange(4))}
    for path in action.outputs:
        if path == "manifest":
            made[path] = " ".join(sorted(made))
        elif not path.endswith("/"):
            made[path] = f"text {chance.randrange(4)}"
    return made


@dataclass(frozen=True)
class TwoStages:
    """Announces, for each part named in a manifest, two actions in a row, and both groups of their outputs."""

    def __call__(self, *, discovering: str, manifest: bytes) -> Discovery:
        firsts, seconds = [], []
        for path in manifest.decode().split():
            name = path.rpartition("/")[2]
            part = DerivedArtifact(action=discovering, path=path)
            firsts.append(_action(f"{discovering} {name} first", "First", (part,), (f"{name}.first",)))
            first = firsts[-1].output(f"{name}.first")
            seconds.append(_action(f"{discovering} {name} second", "Second", (first,), (f"{name}.second",)))
        return Discovery(
            actions=(*firsts, *seconds),
            groups=(
                ("firsts", tuple(action.output(action.outputs[0]) for action in firsts)),
                ("seconds", tuple(action.output(action.outputs[0]) for action in seconds)),
            ),
        )


def _action(
    identifier: str,
    mnemonic: str,
    inputs: Sequence[Artifact],
    outputs: tuple[str, ...],
    *,
    cache: CachePolicy = CachePolicy.ALL,
    cpus: int = 1,
    discovers: bool = False,
) -> Action:
    placed = []
    for index, artifact in enumerate(inputs):
        many = isinstance(artifact, DiscoveredArtifacts) or artifact.path.endswith("/")
        placed.append(Input(path=f"in{index}{'/' if many else ''}", artifact=artifact))
    return Action(
        identifier=identifier,
        mnemonic=mnemonic,
        owner="//random:graph",
        inputs=tuple(placed),
        outputs=outputs,
        command=ToolCall(arguments=("tool",)),
        cache=cache,
        requirements=ExecutionRequirements(cpus=cpus),
        manifest="manifest" if discovers else "",
        discoverer=TwoStages() if discovers else None,
    )


@dataclass(frozen=True)
class Graph:
    actions: tuple[Action, ...]
    targets: tuple[RequestedTarget, ...]
    sources: dict[str, str]  # contents; a source that is named but not here is missing


def random_graph(chance: random.Random, size: int, *, fragile: bool = False, measured: bool = False) -> Graph:
    """Actions in topological order; about one in six discovers. Some are needed by no target."""
    sources = {f"s{index}": f"source {chance.randrange(3)}" for index in range(1 + size // 4)}
    artifacts: list[Artifact] = [SourceArtifact(path=path) for path in sources]
    if fragile and chance.random() < 0.2:
        artifacts.append(SourceArtifact(path="absent"))
    actions: list[Action] = []
    for index in range(size):
        inputs = chance.sample(artifacts, k=min(len(artifacts), chance.randrange(4)))
        discovers = chance.random() < 0.17
        outputs: tuple[str, ...] = ("manifest", "parts/") if discovers else chance.choice([("out",), ("out", "dir/")])
        mnemonic = "Discover" if discovers else chance.choice(["Copy", "Join", "Fragile" if fragile else "Sort"])
        cache = CachePolicy.NONE if measured and chance.random() < 0.2 else CachePolicy.ALL
        cpus = chance.choice([1, 1, 1, 2, 16])
        action = _action(f"a{index}", mnemonic, inputs, outputs, cache=cache, cpus=cpus, discovers=discovers)
        actions.append(action)
        artifacts += [action.output(path) for path in outputs]
        if discovers:
            artifacts += [DiscoveredArtifacts(action=action.identifier, group=g) for g in ("firsts", "seconds")]
    targets = []
    for index in range(chance.randrange(1, 4)):
        chosen = chance.sample(artifacts[-2 * size :], k=min(chance.randrange(1, 4), len(artifacts[-2 * size :])))
        places = [
            f"out{number}{'/' if isinstance(a, DiscoveredArtifacts) or a.path.endswith('/') else ''}"
            for number, a in enumerate(chosen)
        ]
        targets.append(
            RequestedTarget(
                label=f"//random:t{index}", directory=f"t{index}", outputs=tuple(zip(places, chosen, strict=True))
            )
        )
    shuffled = list(actions)
    chance.shuffle(shuffled)
    return Graph(actions=tuple(shuffled), targets=tuple(targets), sources=sources)


class Reference:
    """What a build must lead to: the output files of each needed action, or that it cannot be made."""

    def __init__(self, graph: Graph) -> None:
        self.actions = {action.identifier: action for action in graph.actions}
        self.sources = graph.sources
        self.inputs: dict[str, tuple[FileEntry, ...]] = {}
        self.outputs: dict[str, tuple[FileEntry, ...] | None] = {}
        self.failed: set[str] = set()  # by themselves, with all their inputs there
        self.groups: dict[str, dict[str, tuple[Artifact, ...]]] = {}
        self.targets = {target.label: self.files(target.outputs) for target in graph.targets}

    def files(self, needs: Sequence[tuple[str, Artifact]]) -> tuple[FileEntry, ...] | None:
        found: list[FileEntry] = []
        broken = False
        for place, artifact in needs:
            files = self._artifact(place, artifact)
            if files is None:
                broken = True
            else:
                found += files
        return None if broken else tuple(sorted(found))

    def _artifact(self, place: str, artifact: Artifact) -> list[FileEntry] | None:
        if isinstance(artifact, SourceArtifact):
            if artifact.path not in self.sources:
                return None
            return [FileEntry(path=place, digest=digest_of(self.sources[artifact.path]))]
        outputs = self._run(artifact.action)
        if outputs is None:
            return None
        if isinstance(artifact, DiscoveredArtifacts):
            members = self.groups[artifact.action][artifact.group]
            return self._members(place, members)
        if artifact.path.endswith("/"):
            return [
                FileEntry(path=place + entry.path.removeprefix(artifact.path), digest=entry.digest)
                for entry in outputs
                if entry.path.startswith(artifact.path)
            ]
        return [FileEntry(path=place, digest=entry.digest) for entry in outputs if entry.path == artifact.path]

    def _members(self, place: str, members: Sequence[Artifact]) -> list[FileEntry] | None:
        needs = []
        for member in members:
            assert isinstance(member, DerivedArtifact)
            needs.append((place + member.path.rpartition("/")[2], member))
        files = self.files(needs)
        return None if files is None else list(files)

    def _run(self, identifier: str) -> tuple[FileEntry, ...] | None:
        if identifier not in self.outputs:
            action = self.actions[identifier]
            inputs = self.files([(item.path, item.artifact) for item in action.inputs])
            made = None if inputs is None else outputs_of(action, inputs)
            if inputs is not None:
                self.inputs[identifier] = inputs
                if made is None:
                    self.failed.add(identifier)
            self.outputs[identifier] = None if made is None else entries_of(made)
            if made is not None and action.discoverer is not None:
                discovery = action.discoverer(discovering=identifier, manifest=made["manifest"].encode())
                self.actions |= {found.identifier: found for found in discovery.actions}
                self.groups[identifier] = dict(discovery.groups)
        return self.outputs[identifier]


def entries_of(contents: dict[str, str]) -> tuple[FileEntry, ...]:
    return tuple(FileEntry(path=path, digest=digest_of(contents[path])) for path in sorted(contents))


@dataclass
class Faults:
    """How many of each may still happen, and how likely each is when it could."""

    losses: int = 0
    missing: int = 0
    shortages: int = 0  # of memory
    slow: int = 0  # lookups that are not waited for
    cancel_at: int = -1  # the step before which the build is cancelled
    likelihood: float = 0.2


@dataclass
class World:
    """Carries instructions out in random order; keeps a store and an action cache from build to build."""

    chance: random.Random
    blobs: dict[Digest, str] = field(default_factory=dict)
    results: dict[Digest, tuple[FileEntry, ...]] = field(default_factory=dict)

    def build(self, graph: Graph, *, keep_going: bool = True, jobs: int = 3, faults: Faults | None = None) -> Build:
        return Build(self, graph, keep_going=keep_going, jobs=jobs, faults=faults or Faults())


class Build:
    """One build. Making it runs the build to its end, and validates every step."""

    def __init__(self, world: World, graph: Graph, *, keep_going: bool, jobs: int, faults: Faults) -> None:
        self.world, self.graph, self.faults, self.chance = world, graph, faults, world.chance
        self.scheduler = Scheduler(key_of=key_of, jobs=jobs, keep_going=keep_going)
        self.executed: Counter[str] = Counter()
        self.finished_runs: Counter[Digest] = Counter()
        self.looked_up: Counter[Digest] = Counter()
        self.reports: dict[str, ReportAction] = {}
        self.delivered: dict[str, tuple[FileEntry, ...]] = {}
        self.undelivered: dict[str, ReportTarget] = {}
        self.published: set[Digest] = set()
        self.succeeded: set[Digest] = set()
        self.known_results = set(world.results)
        self.executed_keys: set[Digest] = set()
        self.end: Finished | None = None
        self.steps = 0
        self._open: list[Instruction] = []
        self._slow: set[int] = set()  # lookups that were told to be slow, by identity
        self._stopped: set[str] = set()  # actions that were told to stop
        self._tell(ActionsDeclared(actions=graph.actions))
        self._tell(TargetsRequested(targets=graph.targets))
        while self.end is None:
            if self.steps == faults.cancel_at:
                self._tell(Cancelled())
                self.steps += 1
                continue
            assert self._open, "the build stands still"
            self._tell(*self._carry_out(self._open.pop(self.chance.randrange(len(self._open)))))
            self.steps += 1
            assert self.steps < 100_000, "the build does not end"

    def _tell(self, *told: SchedulerEvent) -> None:
        stopped = self.scheduler.cancelled or self.scheduler.stopped_by
        for instruction in self.scheduler.handle(*told):
            assert self.end is None, "an instruction after the last one"
            match instruction:
                case Execute():
                    assert not stopped, "something started after the build was to stop"
                    graph = self.scheduler.graph
                    producers = graph.known_producers_of(graph.actions[instruction.action.identifier])
                    assert all(producer.state is NodeState.DONE for producer in producers), "run without its inputs"
                    self.executed_keys.add(instruction.key)
                    self._stopped.discard(instruction.action.identifier)
                    self._open.append(instruction)
                case Cancel(identifier=identifier):
                    self._stopped.add(identifier)
                case LookUp() | Discover() | Deliver():
                    if isinstance(instruction, LookUp):
                        self.looked_up[instruction.key] += 1
                    assert not stopped or not isinstance(instruction, LookUp)
                    self._open.append(instruction)
                case DigestSources():
                    self._open += [DigestSources(paths=(path,)) for path in instruction.paths]
                case Publish():
                    assert instruction.key in self.succeeded, "published before it succeeded"
                    self.published.add(instruction.key)
                    self.world.results[instruction.key] = instruction.outputs
                case ReportAction():
                    self.reports[instruction.action.identifier] = instruction
                case ReportTarget():
                    if not instruction.success:
                        self.undelivered[instruction.label] = instruction
                case Finished():
                    self.end = instruction
                case _:
                    pass
        validate(self.scheduler)

    def _happens(self) -> bool:
        return self.chance.random() < self.faults.likelihood

    def _cancel_pending(self) -> bool:
        return self.scheduler.cancelled and self.chance.random() < 0.7

    def _carry_out(self, instruction: Instruction) -> list[SchedulerEvent]:
        world = self.world
        match instruction:
            case DigestSources(paths=(path,)):
                if path not in self.graph.sources:
                    return [SourceUnavailable(path=path, message=f"{path} is absent")]
                text = self.graph.sources[path]
                world.blobs[digest_of(text)] = text
                return [SourceDigested(path=path, digest=digest_of(text))]
            case LookUp(action=action, key=key):
                if self.faults.slow > 0 and id(instruction) not in self._slow and self._happens():
                    self.faults.slow -= 1
                    self._slow.add(id(instruction))
                    self._open.append(instruction)
                    return [LookupSlow(identifier=action.identifier)]
                outputs = world.results.get(key)
                if outputs is None:
                    return [ResultNotFound(identifier=action.identifier, key=key)]
                self._lose_blobs(outputs)
                return [ResultFound(identifier=action.identifier, key=key, outputs=outputs)]
            case Execute():
                return self._run(instruction)
            case Discover(action=action, manifest=manifest):
                if manifest not in world.blobs:
                    return [BlobsMissing(needed_by=action.identifier, digests=(manifest,))]
                assert action.discoverer is not None
                found = action.discoverer(discovering=action.identifier, manifest=world.blobs[manifest].encode())
                return [ActionsDiscovered(identifier=action.identifier, discovery=found)]
            case Deliver(label=label, files=files):
                gone = tuple(entry.digest for entry in files if entry.digest not in world.blobs)
                if gone:
                    self._restore_sources()
                    return [BlobsMissing(needed_by=label, digests=gone)]
                self.delivered[label] = files
                return [TargetDelivered(label=label)]
        raise AssertionError(instruction)

    def _restore_sources(self) -> None:
        self.world.blobs |= {digest_of(text): text for text in self.graph.sources.values()}

    def _lose_blobs(self, outputs: tuple[FileEntry, ...]) -> None:
        if self.faults.missing > 0 and outputs and self._happens():
            self.faults.missing -= 1
            self.world.blobs.pop(self.chance.choice(outputs).digest, None)

    def _run(self, request: Execute) -> list[SchedulerEvent]:
        identifier = request.action.identifier
        self.executed[identifier] += 1
        if self._cancel_pending() or (identifier in self._stopped and self.chance.random() < 0.7):
            return [Executed(outcome=ExecutionOutcome(identifier=identifier, kind=OutcomeKind.CANCELLED))]
        if self.faults.losses > 0 and self._happens():
            self.faults.losses -= 1
            if self.chance.random() < 0.5:
                return [ExecutorLost(identifiers=(identifier,))]
            return [Executed(outcome=ExecutionOutcome(identifier=identifier, kind=OutcomeKind.LOST))]
        if self.faults.shortages > 0 and self._happens():
            self.faults.shortages -= 1
            asked = max(request.memory_bytes, 1)
            outcome = ExecutionOutcome(identifier=identifier, kind=OutcomeKind.OUT_OF_MEMORY, peak_bytes=asked)
            return [Executed(outcome=outcome)]
        self._restore_sources()
        gone = tuple(entry.digest for entry in request.inputs if entry.digest not in self.world.blobs)
        if gone:
            outcome = ExecutionOutcome(identifier=identifier, kind=OutcomeKind.INPUTS_MISSING, missing=gone)
            return [Executed(outcome=outcome)]
        made = outputs_of(request.action, request.inputs)
        if made is None:
            return [
                Executed(
                    outcome=ExecutionOutcome(identifier=identifier, kind=OutcomeKind.FAILED, message="it is fragile")
                )
            ]
        self.world.blobs |= {digest_of(text): text for text in made.values()}
        self.succeeded.add(request.key)
        self.finished_runs[request.key] += 1
        outputs = entries_of(made)
        self._lose_blobs(outputs)
        outcome = ExecutionOutcome(identifier=identifier, kind=OutcomeKind.SUCCEEDED, outputs=outputs)
        return [Executed(outcome=outcome)]


__all__ = ["Build", "Cancel", "Faults", "Graph", "Reference", "World", "digest_of", "key_of", "random_graph"]
