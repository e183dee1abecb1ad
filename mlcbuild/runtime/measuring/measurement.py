"""What came of one measurement of a candidate, as the process that measured it says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

VERSION = 1
MEASURED, WRONG, CRASHED, TIMED_OUT, NOT_BUILT = "measured", "wrong", "crashed", "timed out", "not built"


@dataclass(frozen=True, kw_only=True)
class MeasuringDevice:
    """What it was measured on. `threads` are those of a library for CPUs, 0 for others."""

    name: str
    driver: str = ""
    clocks: str = ""
    threads: int = 0


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """`outcome` is one of the words above. Times are seconds of one call: the median of `calls`, the distance of their
    quartiles as a share of it, and the median of the kernel with its default shape. `sizes` are those of the call that
    are known only at run time. `message` says why there is no time, or what was not as usual."""

    outcome: str
    device: MeasuringDevice
    sizes: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    spread: float = 0.0
    untuned_seconds: float = 0.0
    calls: int = 0
    message: str = ""


def to_json(measurements: Iterable[Measurement]) -> str:
    return json.dumps({"version": VERSION, "measurements": [asdict(one) for one in measurements]}) + "\n"


def from_json(text: str | bytes) -> tuple[Measurement, ...]:
    """Raises ValueError for what `to_json` has not made."""
    document: Any = json.loads(text)
    try:
        if document["version"] != VERSION:
            raise ValueError(f"measurements of version {document['version']!r}, not {VERSION}")
        return tuple(
            Measurement(**{**one, "device": MeasuringDevice(**one["device"])}) for one in document["measurements"]
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"measurements without their parts: {error!r}") from error
