"""`tune stats`, `export` and `import`: what records there are, and how they go from one disk cache to another."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.output import text
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.cli.tune.folder import records_in
from mlcbuild.errors import LocalEnvironmentError, UsageError
from mlcbuild.tuning.choice import choices
from mlcbuild.tuning.record import Outcome, Record, merged
from mlcbuild.tuning.store import RecordStore


def print_stats(disk_cache: Path | None, output: OutputFormat, options: GlobalOptions) -> None:
    """A block for each platform."""
    store = RecordStore.of(disk_cache)
    platforms = {platform: store.records(platform) for platform in store.platforms()}
    platforms = {platform: records for platform, records in platforms.items() if records}
    if output is OutputFormat.JSON:
        print_json({"platforms": [_document(platform, records) for platform, records in platforms.items()]})
        return
    if not platforms:
        options.note("no records: `mlcbuild tune` makes them, and `mlcbuild tune import` takes those of others")
    style = options.style(sys.stdout)
    for platform, records in platforms.items():
        print(style.bold(platform))
        kernels = {record.kernel for record in records}
        chosen = choices(records)
        print(f"  {text.plural(len(records), 'record')} of {text.plural(len(kernels), 'kernel')}, {len(chosen)} tuned")
        failed = Counter(record.outcome.value for record in records if record.outcome is not Outcome.MEASURED)
        if failed:
            print(f"  failed: {', '.join(f'{count} {name}' for name, count in sorted(failed.items()))}")
        devices = Counter((record.device, record.driver) for record in records if record.device)
        for (device, driver), count in sorted(devices.items()):
            print(f"  {', '.join(part for part in (device, driver) if part)}: {text.plural(count, 'record')}")
        if chosen:
            ratios = sorted(choice.ratio for choice in chosen.values())
            print(f"  a tuned kernel takes {ratios[0]:.2f} to {ratios[-1]:.2f} of its time")


def export_records(to: str, disk_cache: Path | None, platforms: tuple[str, ...], options: GlobalOptions) -> None:
    """Write all records as lines of JSON, sorted: the same records are the same bytes. `-` is standard output."""
    store = RecordStore.of(disk_cache)
    known = store.platforms()
    for platform in platforms:
        if platform not in known:
            raise UsageError(
                f"there are no records of the platform {platform}", advice=(f"known: {', '.join(known) or 'none'}",)
            )
    records = merged(*(store.records(platform) for platform in platforms or known))
    lines = "".join(record.line() for record in records)
    if to == "-":
        sys.stdout.write(lines)
        return
    try:
        Path(to).write_text(lines, encoding="utf-8")
    except OSError as error:
        raise LocalEnvironmentError(f"{to} cannot be written: {error.strerror or error}") from error
    options.note(f"{to}: {text.plural(len(records), 'record')}")


def import_records(paths: tuple[Path, ...], disk_cache: Path | None, output: OutputFormat) -> None:
    """Add the records of files that `tune export` wrote, and of folders that `tune measure` has measured. Raises
    UsageError for any that cannot be read, and then adds none."""
    found = merged(*(records_in(path) if path.is_dir() else _of_file(path) for path in paths))
    added = RecordStore.of(disk_cache).add(found)
    if output is OutputFormat.JSON:
        print_json({"added": added, "known": len(found) - added})
        return
    print(f"{text.plural(added, 'record')} added, {len(found) - added} known before")


def _of_file(path: Path) -> tuple[Record, ...]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"{path} cannot be read: {reason}") from error
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(Record.read(line))
        except ValueError as error:
            raise UsageError(
                f"{path}:{number}: no record: {error}", advice=("give a file that `mlcbuild tune export` has written",)
            ) from error
    return tuple(found)


def _document(platform: str, records: tuple[Record, ...]) -> dict[str, object]:
    outcomes = Counter(record.outcome for record in records)
    return {
        "platform": platform,
        "records": len(records),
        "kernels": len({record.kernel for record in records}),
        "outcomes": {outcome.value: outcomes[outcome] for outcome in Outcome},
        "devices": sorted({record.device for record in records if record.device}),
        "chosen": {
            kernel: {"rule": one.rule, "shape": dict(one.shape), "ratio": one.ratio, "record": one.record}
            for kernel, one in choices(records).items()
        },
    }
