"""What one `compare` found, as values and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Case:
    """A build at one size: the medians of rounds, and how far the slowest round is from the fastest as a share."""

    size: int
    failure: str = ""  # why there is nothing else
    first_seconds: float = 0.0
    seconds: float = 0.0
    spread: float = 0.0
    calls: int = 0
    error: float = 0.0  # the largest distance of an output from that of float64
    largest: float = 0.0  # output of float64

    @property
    def samples_a_second(self) -> float:
        return self.size / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, kw_only=True)
class ComparedBuild:
    """`compile_seconds` is None where its own actions did not run; `cached_seconds` are those of a build of it in which
    nothing ran."""

    label: str
    compiler: str
    version: str
    bytes: int
    failure: str = ""  # why it has no cases
    load_seconds: float = 0.0
    peak_bytes: int = 0
    cases: tuple[Case, ...] = ()
    compile_seconds: float | None = None
    cached_seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    label: str
    machine: str
    threads: int
    rounds: int
    builds: tuple[ComparedBuild, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(case.size for build in self.builds for case in build.cases))


def read_comparison(
    document: Mapping[str, Any],
    *,
    label: str,
    machine: str,
    compile_seconds: Mapping[str, float],
    cached_seconds: Mapping[str, float],
) -> Comparison:
    """From what MeasureModels wrote, and the seconds of builds by their labels."""
    return Comparison(
        label=label,
        machine=machine,
        threads=document["threads"],
        rounds=document["rounds"],
        builds=tuple(
            ComparedBuild(
                **{name: value for name, value in each.items() if name != "cases"},
                cases=tuple(Case(**case) for case in each.get("cases", ())),
                compile_seconds=compile_seconds.get(each["label"]),
                cached_seconds=cached_seconds.get(each["label"]),
            )
            for each in document["models"]
        ),
    )


def fastest(builds: Sequence[ComparedBuild], size: int) -> float:
    """The seconds of the fastest build at a size; 0 where none runs."""
    found = [case.seconds for build in builds for case in build.cases if case.size == size and not case.failure]
    return min(found, default=0.0)
