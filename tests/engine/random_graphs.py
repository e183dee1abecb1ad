"""Random graphs of actions, what these make, and a reference that evaluates them.

An action's outputs are a small function of its mnemonic and its input files, so equal contents and equal keys are
frequent. The reference evaluates by plain recursion, with no cache, no order and no faults.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass

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
from mlcbuild.engine.executor import FileEntry
from mlcbuild.engine.scheduler_events import (
    RequestedTarget,
)


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
