"""Which candidates are measured next: decided by values alone.

A kernel is tried once before any is tried twice, those of the most bytes first. Then trials go where the time is: to
each kernel by its share of the time that was measured, and to the shapes that differ least from the best one known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from statistics import fmean

from mlcbuild.rules.tuning_actions import TunedLibrary
from mlcbuild.runtime.measuring.candidate_list import CandidateList
from mlcbuild.tuning.choice import choices
from mlcbuild.tuning.record import Outcome, Record, Values

_MOST_AT_ONCE = 6  # trials of a kernel before what they tell is taken into account


@dataclass(frozen=True, kw_only=True)
class TunableKernel:
    """A kernel whose shape can be chosen. `calls` is how often a token's decoding calls it, as far as can be told."""

    library: TunedLibrary
    text: str
    listed: CandidateList
    calls: int

    @property
    def name(self) -> str:
        return self.listed.kernel

    @property
    def size_bytes(self) -> float:
        """Those of what its calls of a token take and fill, on an average of the sizes at which it is measured."""
        listed = self.listed
        return self.calls * fmean(sum(each.size_bytes(sizes) for each in listed.arguments) for sizes in listed.sizes)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A candidate to be measured: a kernel with the `number`-th of its shapes."""

    kernel: TunableKernel
    number: int

    @property
    def shape(self) -> Mapping[str, int]:
        return self.kernel.listed.shapes[self.number]


def values_of(shape: Mapping[str, int]) -> Values:
    return tuple(sorted(shape.items()))


def untuned_seconds(kernel: TunableKernel, records: Iterable[Record]) -> float:
    """The time of the kernel's calls of one token with its default shape, as its records have it; 0 without any. Of a
    kernel that is called for any number of tokens, it is the average of the sizes that it was measured at."""
    by_sizes: dict[Values, list[float]] = defaultdict(list)
    for record in records:
        if record.outcome is Outcome.MEASURED:
            by_sizes[record.sizes].append(record.untuned_seconds)
    return kernel.calls * fmean(min(each) for each in by_sizes.values()) if by_sizes else 0.0


def tried_shapes(kernel: TunableKernel, records: Iterable[Record]) -> set[Values]:
    """The shapes that need no trial: measured at all sizes, or failed at one."""
    found: dict[Values, set[Values]] = defaultdict(set)
    failed = set()
    for record in records:
        if record.rule == kernel.listed.rule:
            found[record.shape].add(record.sizes)
            if record.outcome is not Outcome.MEASURED:
                failed.add(record.shape)
    wanted = {values_of(sizes) for sizes in kernel.listed.sizes}
    return failed | {shape for shape, sizes in found.items() if sizes >= wanted}


def next_trials(
    kernels: Sequence[TunableKernel],
    records: Mapping[str, Sequence[Record]],
    budget: int,
    *,
    failed: Set[tuple[str, int]] = frozenset(),
) -> tuple[Trial, ...]:
    """The trials of the next round, at most `budget`; none when all shapes of all kernels were tried. `records` are by
    kernel; `failed` are trials without a record, by kernel and number, which are not made again."""
    left = {kernel.name: _untried(kernel, records.get(kernel.name, ()), failed) for kernel in kernels}
    seen = {name for name, _ in failed} | {name for name, found in records.items() if found}
    new = [kernel for kernel in kernels if kernel.name not in seen and left[kernel.name]]
    if new:
        new.sort(key=lambda kernel: -kernel.size_bytes)
        return tuple(left[kernel.name][0] for kernel in new[:budget])
    return spread_trials(kernels, records, budget, most=_MOST_AT_ONCE, failed=failed)


def spread_trials(
    kernels: Sequence[TunableKernel],
    records: Mapping[str, Sequence[Record]],
    budget: int,
    *,
    most: int | None = None,
    failed: Set[tuple[str, int]] = frozenset(),
) -> tuple[Trial, ...]:
    """At most `budget` trials, `most` of a kernel: each goes to the kernel that has the largest share of the time for
    each of its trials. Of a kernel that was never measured the bytes tell the time, as they do of the others."""
    untried = {kernel.name: _untried(kernel, records.get(kernel.name, ()), failed)[:most] for kernel in kernels}
    seconds = {kernel.name: untuned_seconds(kernel, records.get(kernel.name, ())) for kernel in kernels}
    known = sum(kernel.size_bytes for kernel in kernels if seconds[kernel.name])
    a_byte = sum(seconds.values()) / known if known else 1.0
    share = {kernel.name: seconds[kernel.name] or a_byte * kernel.size_bytes for kernel in kernels}
    taken = dict.fromkeys(untried, 0)
    chosen: list[Trial] = []
    while len(chosen) < budget:
        left = [name for name in sorted(untried) if taken[name] < len(untried[name])]
        if not left:
            break
        name = max(left, key=lambda each: share[each] / (taken[each] + 1))
        chosen.append(untried[name][taken[name]])
        taken[name] += 1
    return tuple(chosen)


def _untried(kernel: TunableKernel, records: Sequence[Record], failed: Set[tuple[str, int]]) -> list[Trial]:
    """In the order in which they are worth a trial."""
    tried = tried_shapes(kernel, records)
    best = choices(records).get(kernel.name)
    near = dict(best.shape) if best is not None else kernel.listed.shapes[0]
    trials = [
        Trial(kernel=kernel, number=number)
        for number, shape in enumerate(kernel.listed.shapes)
        if number and values_of(shape) not in tried and (kernel.name, number) not in failed
    ]
    return sorted(
        trials, key=lambda trial: (sum(near.get(name) != value for name, value in trial.shape.items()), trial.number)
    )
