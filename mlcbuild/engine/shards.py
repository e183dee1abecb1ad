"""Splits targets into shards of about equal time, each for a machine of its own.

An action that several targets of a shard need runs once there; in another shard it runs again. So targets that share
long actions belong together. The best split is that with the shortest longest shard, and among those the one with the
least work in all. To find it is NP-hard: see `split` for what is done instead.

The result depends on the arguments alone. Sums are of whole milliseconds, so that the order of an addition cannot
matter, and ties are decided by the order of labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_Moves = tuple[tuple[int, int], ...]  # targets, and the shards that they come to
_Cost = tuple[int, int]
_MOST_TRIALS = 10_000  # of moving a target, from each first split
_LARGEST_CLUSTERS = (1.0, 1.1, 1.3)  # in equal parts of the whole


@dataclass(frozen=True, kw_only=True)
class Work:
    """The actions that each target needs, by name, and the seconds of each action. Equal names mean one action."""

    needs: Mapping[str, frozenset[str]]
    seconds: Mapping[str, float]

    def on_one_machine(self, labels: Iterable[str]) -> float:
        """The seconds of targets, each action once."""
        needed = frozenset[str]().union(*(self.needs[label] for label in labels))
        return sum(round(1000 * self.seconds[name]) for name in needed) / 1000


@dataclass(frozen=True, kw_only=True)
class Shard:
    """`labels` are sorted. `seconds` are those of all actions that they need, each once."""

    labels: tuple[str, ...]
    seconds: float


def split(work: Work, count: int) -> tuple[Shard, ...]:
    """Split the targets into `count` shards; some are empty if there are fewer targets.

    Several first splits are made: one target after the other, the longest first, goes where the load is smallest with
    it; and the same with clusters of targets, which are joined along the longest shared actions as long as a cluster
    is about an equal part of the whole. Each is improved by moving and exchanging targets of the longest shard while
    that makes it shorter. The best one counts.
    """
    if count < 1:
        raise ValueError(f"there is at least 1 shard, not {count}")
    problem = _Problem(work)
    units = [problem.singles(), *(problem.clusters(part * problem.whole / count) for part in _LARGEST_CLUSTERS)]
    best = min((_improved(_placed(problem, each, count)) for each in units), key=lambda partition: partition.cost)
    members: list[list[str]] = [[] for _ in range(count)]
    for target, shard in enumerate(best.shard_of):
        members[shard].append(problem.labels[target])
    # The first label decides the order of the shards, so that equal splits have equal numbers.
    order = sorted(range(count), key=lambda shard: (not members[shard], members[shard]))
    return tuple(Shard(labels=tuple(members[shard]), seconds=best.loads[shard] / 1000) for shard in order)


class _Problem:
    """The targets by number in the order of labels. Actions that the same targets need are one group."""

    def __init__(self, work: Work) -> None:
        self.labels = sorted(work.needs)
        users: dict[str, list[int]] = {}
        for target, label in enumerate(self.labels):
            for action in work.needs[label]:
                users.setdefault(action, []).append(target)
        weights: dict[tuple[int, ...], int] = {}
        for action, targets in users.items():
            group = tuple(targets)
            weights[group] = weights.get(group, 0) + round(1000 * work.seconds[action])
        self.members = sorted(weights)  # of each group
        self.weights = [weights[group] for group in self.members]
        self.groups: list[list[int]] = [[] for _ in self.labels]  # of each target
        for number, group in enumerate(self.members):
            for target in group:
                self.groups[target].append(number)

    def weight(self, targets: Iterable[int]) -> int:
        """The milliseconds of targets on one machine."""
        return sum(self.weights[group] for group in {group for each in targets for group in self.groups[each]})

    def singles(self) -> list[tuple[int, ...]]:
        return [(target,) for target in range(len(self.labels))]

    @property
    def whole(self) -> int:
        """The milliseconds of everything."""
        return sum(self.weights)

    def clusters(self, most: float) -> list[tuple[int, ...]]:
        """Clusters of at most so many milliseconds, joined along the longest groups first."""
        cluster_of: dict[int, tuple[int, ...]] = {target: (target,) for target in range(len(self.labels))}
        shared = [number for number, group in enumerate(self.members) if len(group) > 1 and self.weights[number]]
        for number in sorted(shared, key=lambda number: (-self.weights[number], self.members[number])):
            first, *others = self.members[number]
            for other in others:
                if cluster_of[first] is cluster_of[other]:
                    continue
                joined = cluster_of[first] + cluster_of[other]
                if self.weight(joined) > most:
                    first = other
                    continue
                for target in joined:
                    cluster_of[target] = joined
        return list({min(cluster): cluster for cluster in cluster_of.values()}.values())


class _Partition:
    """Which shard each target is in, -1 for none. `_uses` counts, for each shard, the targets that need a group."""

    def __init__(self, problem: _Problem, count: int) -> None:
        self._problem = problem
        self.shard_of = [-1] * len(problem.labels)
        self.loads = [0] * count
        self._uses = [[0] * len(problem.weights) for _ in range(count)]

    @property
    def cost(self) -> _Cost:
        """What is to be small: first the longest shard, then the work in all."""
        return max(self.loads), sum(self.loads)

    def put(self, target: int, shard: int) -> None:
        """Move a target, or place it for the first time."""
        self.take_out(target)
        self._count(target, shard, 1)
        self.shard_of[target] = shard

    def take_out(self, target: int) -> None:
        if self.shard_of[target] >= 0:
            self._count(target, self.shard_of[target], -1)
            self.shard_of[target] = -1

    def _count(self, target: int, shard: int, step: int) -> None:
        uses, weights = self._uses[shard], self._problem.weights
        for group in self._problem.groups[target]:
            uses[group] += step
            if uses[group] == (step > 0):
                self.loads[shard] += step * weights[group]


def _placed(problem: _Problem, units: Sequence[tuple[int, ...]], count: int) -> _Partition:
    """Units, the longest first, each where the load is smallest with it."""
    partition = _Partition(problem, count)
    for unit in sorted(units, key=lambda unit: (-problem.weight(unit), unit)):
        loads = []
        for shard in range(count):
            before = partition.loads[shard]
            for target in unit:
                partition.put(target, shard)
            loads.append((partition.loads[shard], partition.loads[shard] - before, shard))
            for target in unit:
                partition.take_out(target)
        best = min(loads)[2]
        for target in unit:
            partition.put(target, best)
    return partition


def _improved(partition: _Partition) -> _Partition:
    """Move or exchange targets of the longest shard while that makes the split better."""
    trials = _MOST_TRIALS
    while trials > 0:
        cost = partition.cost
        longest = partition.loads.index(cost[0])
        inside = [target for target, shard in enumerate(partition.shard_of) if shard == longest]
        outside = [target for target, shard in enumerate(partition.shard_of) if shard != longest]
        best: tuple[_Cost, _Moves] | None = None
        for target in inside:
            for shard in range(len(partition.loads)):
                if shard != longest:
                    trials -= 1
                    best = _better(best, _cost_with(partition, ((target, shard),)), ((target, shard),))
        if best is None or best[0] >= cost:
            for target in inside:
                for other in outside:
                    trials -= 1
                    moves = ((target, partition.shard_of[other]), (other, longest))
                    best = _better(best, _cost_with(partition, moves), moves)
                    if trials <= 0:
                        break
        if best is None or best[0] >= cost:
            break
        for target, shard in best[1]:
            partition.put(target, shard)
    return partition


def _better(
    best: tuple[_Cost, _Moves] | None,
    cost: _Cost,
    moves: _Moves,
) -> tuple[_Cost, _Moves]:
    return (cost, moves) if best is None or (cost, moves) < best else best


def _cost_with(partition: _Partition, moves: _Moves) -> _Cost:
    """The cost of a partition after moves, which are taken back."""
    former = [(target, partition.shard_of[target]) for target, _ in moves]
    for target, shard in moves:
        partition.put(target, shard)
    cost = partition.cost
    for target, shard in former:
        partition.put(target, shard)
    return cost
