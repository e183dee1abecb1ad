"""`mlcbuild cache stats`: what the disk cache holds."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from pathlib import Path

from mlcbuild.cache.disk import disk_error
from mlcbuild.cache.eviction import Limits, Plan, plan
from mlcbuild.cache.file_systems import FileSystem, file_system_of
from mlcbuild.cache.inventory import bases, progress_in, take_inventory
from mlcbuild.cache.statistics import Amount, Statistics, statistics_of
from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.cache.maintenance import store_root
from mlcbuild.cli.output import text
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.slow_progress import slow_progress
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.figures import byte_count

_KIND_NAMES = {
    "results": "results",
    "outputs": "outputs",
    "directories": "directories of outputs",
    "logs": "logs",
    "keys": "components of keys",
    "unnamed": "not named by any result",
    "quarantined": "damaged, in quarantine",
    "temporary": "being written",
    "foreign": "foreign files",
}
_WIDTH = 28
_SHOWN_DIGITS = 12


def print_stats(disk_cache: Path | None, limits: Limits, output: OutputFormat, options: GlobalOptions) -> None:
    """Print the statistics. Raises InfrastructureError for a store that cannot be read."""
    root = store_root(disk_cache)
    try:
        with slow_progress(options) as progress:
            stores = bases(root)
            inventories = [
                take_inventory(base, function, progress_in(progress, function, len(stores)))
                for base, function in stores
            ]
    except OSError as error:
        raise disk_error(error, Path(error.filename or root), "reading") from error
    now = time.time_ns()
    statistics = statistics_of(inventories, now=now)
    is_limited = limits != Limits()
    plans = plan(inventories, limits, now=now) if is_limited else []
    file_system, free = file_system_of(root), _free_bytes(root)
    if output is OutputFormat.JSON:
        document: dict[str, object] = {
            "disk_cache": str(root),
            "file_system": {**asdict(file_system), "is_network": file_system.is_network, "free_bytes": free},
            "bytes": statistics.bytes,
            **asdict(statistics),
        }
        if is_limited:
            document["gc"] = {
                "results": sum(len(each.results) for each in plans),
                "blobs": sum(len(each.named_blobs) + len(each.unnamed_blobs) for each in plans),
                "files": sum(len(each.leftovers) for each in plans),
                "bytes": sum(each.freed_bytes for each in plans),
            }
        print_json(document)
        return
    print("\n".join(_lines(root, statistics, plans if is_limited else None, file_system, free)))


def _lines(
    root: Path, statistics: Statistics, plans: list[Plan] | None, file_system: FileSystem, free: int
) -> list[str]:
    lines = [f"{root} ({file_system.kind}, {byte_count(free)} free)"]
    if file_system.is_network:
        lines.append("  a network file system: slower than a local disk, with less reliable locks")
    if not any(amount.files for amount in statistics.kinds.values()):
        return [*lines, "  empty"]
    lines += ["", *_table("what", {_KIND_NAMES[name]: amount for name, amount in statistics.kinds.items()})]
    lines += ["", *_table("used", statistics.ages)]
    if statistics.largest:
        lines += ["", "largest"]
    for blob in statistics.largest:
        named = f"{blob.path or '-'} of {text.plural(blob.results, 'result')}"
        lines.append(f"  {byte_count(blob.size_bytes):>8}  {blob.hash[:_SHOWN_DIGITS]}  {named}")
    if statistics.lacking:
        lines += ["", f"{text.plural(statistics.lacking, 'result')} with missing blobs"]
    if plans is not None:
        results = sum(len(each.results) for each in plans)
        blobs = sum(len(each.named_blobs) + len(each.unnamed_blobs) for each in plans)
        freed = byte_count(sum(each.freed_bytes for each in plans))
        removed = f"{text.plural(results, 'result')}, {text.plural(blobs, 'blob')}: {freed}"
        lines += ["", f"a gc with these limits would remove {removed}"]
    return lines


def _table(title: str, amounts: dict[str, Amount]) -> list[str]:
    lines = [f"{title:<{_WIDTH}}{'files':>10}{'on disk':>10}"]
    for name, amount in amounts.items():
        if amount.files:
            lines.append(f"  {name:<{_WIDTH - 2}}{amount.files:>10,}{byte_count(amount.bytes):>10}")
    return lines


def _free_bytes(root: Path) -> int:
    for folder in (root, *root.parents):
        try:
            status = os.statvfs(folder)
        except OSError:
            continue
        return status.f_bavail * status.f_frsize
    return 0
