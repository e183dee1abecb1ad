"""What the remote cache did for a build, for its summary and its report."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlcbuild.cli.output import text

if TYPE_CHECKING:
    from mlcbuild.cache.remote.counters import Counters
    from mlcbuild.cache.remote.remote_store import RemoteStore


@dataclass(frozen=True, kw_only=True)
class RemoteSummary:
    """`addresses` are those that were read, without credentials; the build writes to the first."""

    addresses: tuple[str, ...]
    counters: Counters

    @classmethod
    def of(cls, cache: RemoteStore | None) -> RemoteSummary | None:
        """None if the build has no remote."""
        return None if cache is None else cls(addresses=cache.addresses, counters=cache.counters)


def remote_line(end: RemoteSummary) -> str:
    """The third line of the summary: why lookups missed, what was sent and what was not; "" if there is nothing."""
    counters = end.counters
    parts = []
    if counters.missed:
        reasons = [(reason.value, count) for reason, count in counters.misses if count]
        words = [f"{count:,} {reason}" if len(reasons) > 1 else reason for reason, count in reasons]
        parts.append(f"{counters.missed:,} missed ({', '.join(words)})")
    if counters.results_uploaded:
        parts.append(f"{text.plural(counters.results_uploaded, 'result')} sent")
    if counters.uploads_dropped:
        parts.append(f"{counters.uploads_dropped:,} not sent")
    if counters.blobs_wrong:
        parts.append(f"{text.plural(counters.blobs_wrong, 'blob')} damaged in transfer")
    if counters.blobs_lost:
        parts.append(f"{text.plural(counters.blobs_lost, 'blob')} missing")
    return f"remote {end.addresses[0]}: {', '.join(parts)}" if parts else ""


def remote_document(end: RemoteSummary) -> dict[str, object]:
    """The field `remote` of the build report, without bytes, which are in its field `bytes`."""
    counters = dataclasses.asdict(end.counters)
    del counters["bytes_downloaded"], counters["bytes_uploaded"]
    misses = {reason.name.lower(): count for reason, count in end.counters.misses}
    return {"addresses": list(end.addresses), **counters, "misses": misses}
