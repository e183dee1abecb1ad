"""From what came of candidates to records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import metadata

import mlcbuild
from mlcbuild.runtime.measuring.measurement import Measurement
from mlcbuild.tuning.record import Outcome, Record


def tools() -> str:
    """What compiles candidates here, for records."""
    return f"mlcbuild {mlcbuild.__version__}, apache-tvm {metadata.version('apache-tvm')}"


def records_of(
    measurements: Iterable[Measurement],
    *,
    kernel: str,
    rule: str,
    shape: Mapping[str, int],
    platform: str,
    compiled_by: str,
) -> tuple[Record, ...]:
    """Raises ValueError for measurements that contradict themselves."""
    return tuple(
        Record(
            kernel=kernel,
            rule=rule,
            shape=tuple(sorted(shape.items())),
            sizes=tuple(sorted(each.sizes.items())),
            platform=platform,
            device=each.device.name,
            driver=each.device.driver,
            clocks=each.device.clocks,
            threads=each.device.threads,
            tools=compiled_by,
            outcome=Outcome(each.outcome),
            seconds=each.seconds,
            spread=each.spread,
            untuned_seconds=each.untuned_seconds,
            calls=each.calls,
            message=each.message,
        )
        for each in measurements
    )
