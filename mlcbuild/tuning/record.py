"""A record: what came of measuring one kernel with one shape, once, on one device.

Records are never changed. A record's digest is that of its line of JSON, so equal records are one, and any two sets of
records merge by their union.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

VERSION = 1
Values = tuple[tuple[str, int], ...]
"""Integers by name, sorted: the values of a shape, or the sizes that are known only at run time."""

_KERNEL = re.compile(r"kernel_[0-9a-f]{32}")


class Outcome(enum.Enum):
    """What came of a candidate. All but the first are never chosen."""

    MEASURED = "measured"
    WRONG = "wrong"  # other results than the kernel with its default shape
    CRASHED = "crashed"
    TIMED_OUT = "timed out"
    NOT_BUILT = "not built"  # it does not compile, or cannot be loaded


@dataclass(frozen=True, kw_only=True, order=True)
class Record:
    """`kernel` is the name of the kernel's content, before it is scheduled; `rule` and `shape` are what was tried,
    the rule with its version (`tuning/rule_versions.py`).

    `sizes` are those at which it was measured, of the kernel's sizes that are known only at run time. `platform` is
    `platform_key` of what it was compiled for. `device`, `driver`, `clocks` and `threads` tell where it ran, `tools`
    what compiled it. `seconds` is the median of the time of one call, 0.0 unless it was measured, `spread` the distance
    of its quartiles as a share of it, `untuned_seconds` the median of the kernel with its default shape, called in turn
    with it; `calls` is how often each was called. `message` says why there is no time,
    or what was not as usual.
    """

    kernel: str
    rule: str
    shape: Values
    sizes: Values
    platform: str
    device: str
    driver: str
    clocks: str
    threads: int
    tools: str
    outcome: Outcome
    seconds: float = 0.0
    spread: float = 0.0
    untuned_seconds: float = 0.0
    calls: int = 0
    message: str = ""

    def __post_init__(self) -> None:
        if not _KERNEL.fullmatch(self.kernel):
            raise ValueError(f"no name of a kernel: {self.kernel!r}")
        if list(self.shape) != sorted(self.shape) or list(self.sizes) != sorted(self.sizes):
            raise ValueError(f"values that are not sorted: {self.shape}, {self.sizes}")
        measured = self.outcome is Outcome.MEASURED
        times = (self.seconds, self.untuned_seconds)
        if measured != (min(times) > 0) or min(*times, self.spread) < 0 or max(*times, self.spread) > 1e9:
            raise ValueError(f"{self.outcome.value}, with times of {times} and a spread of {self.spread}")

    @property
    def ratio(self) -> float:
        """Its time as a share of that of the default shape, measured beside it."""
        return self.seconds / self.untuned_seconds

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.line().encode()).hexdigest()

    def line(self) -> str:
        """The record as one line of JSON; equal records have equal lines."""
        document = {
            **{field.name: getattr(self, field.name) for field in dataclasses.fields(self)},
            "version": VERSION,
            "shape": dict(self.shape),
            "sizes": dict(self.sizes),
            "outcome": self.outcome.value,
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":")) + "\n"

    @staticmethod
    def read(line: str) -> Record:
        """Raises ValueError for what `line` has not made."""
        document = json.loads(line)
        if not isinstance(document, dict) or document.pop("version", None) != VERSION:
            raise ValueError("no record of this version")
        names = {field.name for field in dataclasses.fields(Record)}
        if set(document) != names:
            raise ValueError(f"a record with other fields: {sorted(set(document) ^ names)}")
        try:
            return Record(
                **{
                    **document,
                    **{name: _values(document[name]) for name in ("shape", "sizes")},
                    **{name: float(document[name]) for name in ("seconds", "spread", "untuned_seconds")},
                    "outcome": Outcome(document["outcome"]),
                }
            )
        except (TypeError, AttributeError) as error:
            raise ValueError(f"a record with a field of another type: {error}") from error


def _values(document: Mapping[str, Any]) -> Values:
    return tuple(sorted((str(name), int(value)) for name, value in document.items()))


def merged(*sets: Iterable[Record]) -> tuple[Record, ...]:
    """The union, sorted."""
    return tuple(sorted({record for records in sets for record in records}, key=lambda record: record.line()))


def platform_key(target: Mapping[str, Any]) -> str:
    """The name of what kernels are compiled for, of TVM's target as a JSON object: what a person recognizes of it, and
    a digest of all that decides the code. A device's host does not."""
    own = {name: value for name, value in target.items() if name != "host"}
    digest = hashlib.sha256(json.dumps(own, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    shown = "-".join(str(own[name]) for name in ("kind", "arch", "mcpu") if own.get(name))
    return f"{re.sub(r'[^A-Za-z0-9_.-]', '_', shown)}-{digest[:12]}"
