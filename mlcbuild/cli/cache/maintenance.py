"""`mlcbuild cache gc` and `mlcbuild cache verify`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

from mlcbuild.cache.disk import default_root, disk_error
from mlcbuild.cache.eviction import CollectionReport, Limits, collect
from mlcbuild.cache.inventory import bases, progress_in
from mlcbuild.cache.verification import VerificationReport, merged, verify
from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.exit_codes import ExitCode, retry_line
from mlcbuild.cli.output import text
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.slow_progress import slow_progress
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.figures import byte_count


def store_root(disk_cache: Path | None) -> Path:
    """The folder of the disk cache, found as for a build."""
    return disk_cache.absolute() if disk_cache else default_root()


def collect_garbage(disk_cache: Path | None, limits: Limits, output: OutputFormat, options: GlobalOptions) -> None:
    """Remove results until the store is within the limits, and print what was removed. Raises InfrastructureError."""
    root = store_root(disk_cache)

    def on_wait() -> None:
        options.note(f"waiting for another gc of {root}")

    try:
        with slow_progress(options) as progress:
            collected = collect(root, limits, progress=progress, on_wait=on_wait)
    except OSError as error:
        raise disk_error(error, Path(error.filename or root), "reading") from error
    if output is OutputFormat.JSON:
        print_json({"disk_cache": str(root), **asdict(collected)})
        return
    print(_collected_line(collected))
    if collected.failed:
        failed = text.plural(collected.failed, "file")
        options.note(f"{failed} could not be removed: {collected.reason}")
    if collected.over_bytes:
        options.note(
            f"{byte_count(collected.over_bytes)} above the limit remain: running builds use them, or are writing them"
        )


def _collected_line(collected: CollectionReport) -> str:
    kept = f"{byte_count(collected.kept_bytes)} kept"
    counts = ((collected.results, "result"), (collected.blobs, "blob"), (collected.leftovers, "file"))
    removed = [text.plural(count, noun) for count, noun in counts if count]
    if not removed:
        return f"nothing to remove · {kept}"
    return f"removed {', '.join(removed)}: {byte_count(collected.freed_bytes)} · {kept}"


def verify_cache(disk_cache: Path | None, output: OutputFormat, options: GlobalOptions) -> ExitCode:
    """Check the store and print what was found. Returns LOCAL_ENVIRONMENT if something is damaged."""
    root = store_root(disk_cache)
    try:
        with slow_progress(options) as progress:
            stores = bases(root)
            found = merged(
                verify(root, base, function, progress_in(progress, function, len(stores))) for base, function in stores
            )
    except OSError as error:
        raise disk_error(error, Path(error.filename or root), "reading") from error
    code = ExitCode.LOCAL_ENVIRONMENT if found.damaged else ExitCode.OK
    if output is OutputFormat.JSON:
        print_json({"disk_cache": str(root), **asdict(found)})
        return code
    style = options.style(sys.stderr)
    for damage in found.damaged:
        options.tell([f"{style.error('damaged:')} {damage.kind} {damage.hash}: {damage.reason}"])
    if found.damaged:
        options.tell([f"  moved to quarantine below {root}; the next build that needs them makes them again"])
    print(_findings(found))
    if line := retry_line(code):
        options.tell([line])
    return code


def _findings(found: VerificationReport) -> str:
    looked_at = f"{text.plural(found.results, 'result')}, {text.plural(found.blobs, 'blob')}"
    parts = [f"{looked_at}, {byte_count(found.bytes)}"]
    parts.append(f"{len(found.damaged):,} damaged" if found.damaged else "no damage")
    if found.lacking:
        parts.append(f"{text.plural(len(found.lacking), 'result')} with missing blobs")
    if found.foreign:
        parts.append(f"{text.plural(found.foreign, 'foreign file')}")
    return " · ".join(parts)
