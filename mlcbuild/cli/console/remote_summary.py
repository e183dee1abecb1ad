"""What the remote cache did for a build, told at its end."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlcbuild.cli.output import text

if TYPE_CHECKING:
    from mlcbuild.cache.remote.counters import Counters
    from mlcbuild.cache.remote.remote_store import RemoteStore


@dataclass(frozen=True, kw_only=True)
class RemoteEnd:
    """`addresses` are those that were read, without credentials; the first one is written."""

    addresses: tuple[str, ...]
    counters: Counters

    @classmethod
    def of(cls, cache: RemoteStore | None) -> RemoteEnd | None:
        """None where a build has no remote."""
        return None if cache is None else cls(addresses=cache.addresses, counters=cache.counters)


def remote_line(end: RemoteEnd) -> str:
    """Why look-ups missed, what was sent, what was not: all that the first line leaves out; "" where it is nothing."""
    counters = end.counters
    parts = []
    if counters.missed:
        reasons = [(reason.value, count) for reason, count in counters.misses if count]
        told = [f"{count:,} {reason}" if len(reasons) > 1 else reason for reason, count in reasons]
        parts.append(f"{counters.missed:,} missed ({', '.join(told)})")
    if counters.results_uploaded:
        parts.append(f"{text.plural(counters.results_uploaded, 'result')} sent")
    if counters.uploads_dropped:
        parts.append(f"{counters.uploads_dropped:,} not sent")
    if counters.blobs_wrong:
        parts.append(f"{text.plural(counters.blobs_wrong, 'blob')} damaged on the way")
    if counters.blobs_lost:
        parts.append(f"{text.plural(counters.blobs_lost, 'blob')} gone")
    return f"remote {end.addresses[0]}: {', '.join(parts)}" if parts else ""


def remote_document(end: RemoteEnd) -> dict[str, object]:
    """The `remote` of the build report. Bytes stand in its `bytes`."""
    counters = dataclasses.asdict(end.counters)
    del counters["bytes_downloaded"], counters["bytes_uploaded"]
    misses = {reason.name.lower(): count for reason, count in end.counters.misses}
    return {"addresses": list(end.addresses), **counters, "misses": misses}
