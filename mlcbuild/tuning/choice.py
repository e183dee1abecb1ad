"""What records choose: the best shape of each kernel. Pure: the same records choose the same, in any order."""

from __future__ import annotations

import hashlib
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mlcbuild.tuning.record import Outcome, Record, Values, merged
from mlcbuild.tuning.rule_versions import is_current

_LEAST_GAIN = 0.02  # of the time; what is less is not worth another kernel
_NOISE = 0.5  # of the spread: what is less may be noise


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A shape that measurements have chosen for a kernel. `ratio` is its time as a share of that of the default shape;
    `record` is the digest of the measurements that say so."""

    rule: str
    shape: Values
    ratio: float
    record: str

    def parameter(self) -> Mapping[str, str | Mapping[str, int]]:
        """What ScheduleKernel takes as `tuned`."""
        return {"rule": self.rule, "shape": dict(self.shape), "record": self.record}


def choices(records: Iterable[Record]) -> dict[str, Choice]:
    """By kernel, for the records of one platform; kernels whose default shape is the best are left out.

    A shape that once was wrong, crashed or took too long is never chosen. Of a kernel with sizes that are known only at
    run time a shape has to be measured at all sizes at which any was, and the geometric mean of its ratios counts. More
    than one measurement at the same sizes count by their median. A gain has to be more than the noise of its
    measurements. Records of another version of their rule are left out: their default was another, or their sizes.
    Ratios of two rules have no default in common, and only one of the rules schedules the kernel: where records of
    several gain, none is chosen.
    """
    by_kernel: dict[str, list[Record]] = defaultdict(list)
    for record in merged(each for each in records if is_current(each.rule)):
        by_kernel[record.kernel].append(record)
    found = {kernel: _best(of_kernel) for kernel, of_kernel in by_kernel.items()}
    return {kernel: choice for kernel, choice in sorted(found.items()) if choice is not None}


def _best(records: Iterable[Record]) -> Choice | None:
    by_shape: dict[tuple[str, Values], list[Record]] = defaultdict(list)
    for record in records:
        by_shape[record.rule, record.shape].append(record)
    wanted: dict[str, set[Values]] = defaultdict(set)
    for (rule, _), tried in by_shape.items():
        wanted[rule] |= {record.sizes for record in tried if record.outcome is Outcome.MEASURED}
    best: dict[str, Choice] = {}
    for (rule, shape), tried in sorted(by_shape.items()):
        ratios = _ratios(tried)
        if set(ratios) != wanted[rule] or not ratios:
            continue
        ratio = math.exp(statistics.fmean(math.log(each) for each in ratios.values()))
        noise = _NOISE * statistics.fmean(record.spread for record in tried)
        if ratio < 1 - max(_LEAST_GAIN, noise) and (rule not in best or ratio < best[rule].ratio):
            digests = sorted({record.digest for record in tried})
            digest = hashlib.sha256("\n".join(digests).encode()).hexdigest() if len(digests) > 1 else digests[0]
            best[rule] = Choice(rule=rule, shape=shape, ratio=ratio, record=digest)
    return next(iter(best.values())) if len(best) == 1 else None


def _ratios(tried: Iterable[Record]) -> Mapping[Values, float]:
    """By sizes; {} where the shape has failed anywhere."""
    ratios: dict[Values, list[float]] = defaultdict(list)
    for record in tried:
        if record.outcome is not Outcome.MEASURED:
            return {}
        ratios[record.sizes].append(record.ratio)
    return {sizes: statistics.median(each) for sizes, each in ratios.items()}
