"""Records that mlcbuild brings along: `database/*.jsonl`, as `tune export` writes them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

from mlcbuild.tuning.record import Record

DATABASE = Path(__file__).parent / "database"


def shipped_records(platform: str) -> tuple[Record, ...]:
    """Those of a platform."""
    return _by_platform().get(platform, ())


@functools.cache
def _by_platform() -> Mapping[str, tuple[Record, ...]]:
    found: dict[str, tuple[Record, ...]] = {}
    for path in sorted(DATABASE.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            record = Record.read(line)
            found[record.platform] = (*found.get(record.platform, ()), record)
    return found
