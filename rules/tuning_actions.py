"""The actions of `mlcbuild tune`: what may be chosen of each kernel of a library, candidates, and their measurement.

ListCandidates → for each candidate ScheduleKernel → what the platform has for a kernel → LinkKernel → TuneKernel. But
for the last two and the first they are those of a build, which finds what a chosen candidate was compiled to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mlcbuild.compiler.kernel_description import KernelDescription
from mlcbuild.compiler.manifest import read_manifest
from mlcbuild.engine.action import (
    MORE_CPUS_THAN_ANY,
    Action,
    CachePolicy,
    DerivedArtifact,
    Discovery,
    ExecutionRequirements,
    JsonValue,
)
from mlcbuild.rules.backend import PlatformInfo
from mlcbuild.rules.kernels import KernelActions, of_part, schedule_action
from mlcbuild.rules.rule import stage_action

CANDIDATES = "candidates"
_GRACE_SECONDS = 30.0  # of TuneKernel, beside its measurements


@dataclass(frozen=True, kw_only=True)
class TunedLibrary:
    """A library whose kernels can be tuned: its target, its platform, and its Partition."""

    owner: str
    platform: PlatformInfo
    partition: Action

    @staticmethod
    def of(action: Action) -> TunedLibrary | None:
        """None for another action than the Partition of a library whose kernels are scheduled."""
        kernels = action.discoverer
        if not isinstance(kernels, KernelActions) or not kernels.optimized or kernels.part:
            return None
        return TunedLibrary(owner=kernels.owner, platform=kernels.platform, partition=action)

    @property
    def listing(self) -> Action:
        """The library's Partition, which announces a ListCandidates for each kernel instead of what builds it."""
        return replace(self.partition, discoverer=_Listing(owner=self.owner, platform=self.platform))

    def kernel(self, name: str) -> DerivedArtifact:
        return DerivedArtifact(action=self.partition.identifier, path=f"out/kernels/{name}.json")

    def candidate(self, kernel: str, tuned: Mapping[str, JsonValue] | None, *, number: int) -> Candidate:
        """The actions of a kernel with a shape, which is the `number`-th; None stands for the default."""
        schedule = schedule_action(
            kernel, self.kernel(kernel), owner=self.owner, platform=self.platform, optimized=True, tuned=tuned
        )
        compiled = self.platform.compile_kernel(kernel, schedule.output(f"out/{kernel}.json"), owner=self.owner)
        beside = self.platform.compile_libraries(self.owner)
        link = stage_action(
            f"{self.owner} LinkKernel {kernel}",
            "LinkKernel",
            "mlcbuild.compiler.stages.link_kernel:run",
            owner=self.owner,
            inputs={
                group: [*compiled.groups[group], *beside.groups.get(group, ())] for group in self.platform.kernel_groups
            },
            outputs={"library": f"{kernel}{self.platform.library_suffix}"},
            parameters={"target": self.platform.target},
            plugins={"backend": self.platform.plugin("link:LINKING")},
            toolchains=self.platform.link_toolchains,
        )
        part = f"candidate {number}" if tuned is not None else "untuned"
        actions = of_part(Discovery(actions=(schedule, *compiled.actions, *beside.actions, link)), part).actions
        return Candidate(actions=actions, library=actions[-1].output(actions[-1].outputs[0]))

    def measurement(
        self,
        kernel: str,
        candidate: Candidate,
        untuned: Candidate,
        *,
        number: int,
        sizes: Sequence[Mapping[str, int]],
        seconds: float,
        alone: bool,
    ) -> Action:
        """TuneKernel of a candidate. With `alone` nothing else runs on the machine meanwhile; else it takes the device
        of the platform, and a kernel for processors takes all of a machine's."""
        needed = self.platform.run_requirements
        return stage_action(
            f"{self.owner} TuneKernel {kernel} candidate {number}",
            "TuneKernel",
            "mlcbuild.compiler.stages.tune_kernel:run",
            owner=self.owner,
            inputs={
                "candidate": candidate.library,
                "untuned": untuned.library,
                "candidates": self._list(kernel).output(f"out/{kernel}.candidates.json"),
            },
            outputs={"measured": "measured.json"},
            parameters={"sizes": [dict(each) for each in sizes], "seconds": seconds},
            toolchains=("tvm",),
            cache=CachePolicy.NONE,
            requirements=ExecutionRequirements(
                cpus=MORE_CPUS_THAN_ANY if alone or not needed.gpus else 1,
                gpus=needed.gpus,
                labels=needed.labels,
                timeout_seconds=len(sizes) * seconds + _GRACE_SECONDS,
            ),
        )

    def _list(self, kernel: str) -> Action:
        return _Listing(owner=self.owner, platform=self.platform).action(kernel, self.kernel(kernel))

    def list_action(self, kernel: str) -> Action:
        """ListCandidates of a kernel, as `listing` announces it."""
        return self._list(kernel)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A kernel with a shape: its actions, and the library that they make."""

    actions: tuple[Action, ...]
    library: DerivedArtifact


@dataclass(frozen=True, kw_only=True)
class _Listing:
    """Announces ListCandidates for every kernel of a manifest; the group is CANDIDATES."""

    owner: str
    platform: PlatformInfo

    def __call__(self, *, discovering: str, manifest: bytes) -> Discovery:
        document = read_manifest(manifest)
        started = document.get("device_kernels", {})
        actions = [
            self.action(name, DerivedArtifact(action=discovering, path=f"out/kernels/{name}.json"))
            for name in document["kernels"]
            if name not in started
        ]
        artifacts = tuple(action.output(action.outputs[0]) for action in actions)
        return Discovery(actions=tuple(actions), groups=((CANDIDATES, artifacts),))

    def action(self, kernel: str, artifact: DerivedArtifact) -> Action:
        return stage_action(
            f"{self.owner} ListCandidates {kernel}",
            "ListCandidates",
            "mlcbuild.compiler.stages.list_candidates:run",
            owner=self.owner,
            inputs={"kernel": artifact},
            outputs={"candidates": f"{kernel}.candidates.json"},
            parameters={"target": self.platform.target},
            plugins={"backend": self.platform.scheduling},
            toolchains=("tvm",),
        )


@dataclass(frozen=True, kw_only=True)
class DescribedKernel:
    """A kernel of a library as its manifest describes it: `text` is for people; `is_repeated` says that layers have
    it, so that a model calls it once for each."""

    name: str
    text: str
    is_repeated: bool


def described_kernels(manifest: bytes) -> tuple[DescribedKernel, ...]:
    """The kernels of a manifest of Partition. Raises ValueError for another file."""
    document = read_manifest(manifest)
    found = []
    for name in document["kernels"]:
        written = document.get("descriptions", {}).get(name)
        description = KernelDescription.read(written) if written else KernelDescription(operation=name)
        parameters = description.parameters
        repeated = not parameters or any("*" in parameter for parameter in parameters)
        found.append(DescribedKernel(name=name, text=description.text(name), is_repeated=repeated))
    return tuple(found)


def with_listings(actions: Sequence[Action], libraries: Sequence[TunedLibrary]) -> list[Action]:
    """The actions of an analysis, of which the libraries' Partitions announce candidates."""
    listings = {library.partition.identifier: library.listing for library in libraries}
    return [listings.get(action.identifier, action) for action in actions]
