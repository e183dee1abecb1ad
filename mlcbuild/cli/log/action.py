"""`mlcbuild log show`: everything about one action of a recorded build."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlcbuild.cli.arguments.options import LOG_DIRECTORY, GlobalOptions
from mlcbuild.cli.console.action_logs import log_path
from mlcbuild.cli.console.action_names import recorded_title
from mlcbuild.cli.log.listings import build_title, described, place_of, record_directory, seconds_of
from mlcbuild.cli.log.records import BuildRecord, chosen, records
from mlcbuild.cli.log.stored_results import StoredResults
from mlcbuild.cli.output import text
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.errors import UsageError
from mlcbuild.figures import byte_count

_FEWEST_DIGITS = 4
_MOST_SHOWN = 10
_NARROWEST = 9  # columns of the names of rows
_STATUSES = {
    "up_to_date": "up to date",
    "disk_hit": "from disk",
    "remote_hit": "from remote",
    "executed_local": "ran",
    "executed_ray": "ran",
    "not_cached": "not cached",
}


def print_action(
    wanted: str, build: str, *, disk_cache: Path | None, output: OutputFormat, options: GlobalOptions
) -> None:
    """Print the action. Raises UsageError if no recorded build has it, or several actions match."""
    directory = record_directory(options)
    record, action = _find(wanted, [chosen(directory, build)] if build else records(directory))
    stored = StoredResults(disk_cache)
    components = stored.components(action.get("key", ""))
    before = stored.components(action.get("previous_key", ""))
    log = stored.log(action.get("key", "")) or _failed_log(directory.parent / LOG_DIRECTORY, action)
    if output is OutputFormat.JSON:
        print_json(
            {
                "build": record.invocation,
                **described(action, record),
                "previous_key": action.get("previous_key", ""),
                "key_components": components,
                "previous_key_components": before,
                "log": log,
            }
        )
        return
    print("\n".join(_lines(record, action, components, before, log)))


def _lines(
    record: BuildRecord,
    action: Mapping[str, Any],
    components: Mapping[str, str] | None,
    before: Mapping[str, str] | None,
    log: str,
) -> list[str]:
    rows = [("build", build_title(record)), ("status", _STATUSES.get(action["status"], action["status"]))]
    rows += [(name, text.printable(_shown(value))) for name, value in action.get("details", {}).items() if value]
    if action.get("shared_with"):
        rows.append(("shared with", f"{action['shared_with']}, which has the same key"))
    if action.get("shared_by"):
        rows.append(("shared by", ", ".join(action["shared_by"])))
    if action.get("message"):
        rows.append(("message", text.printable(action["message"])))
    if action.get("executor"):
        parts = ", ".join(
            f"{word} {action[name]:.2f}"
            for word, name in (("queued", "queued_seconds"), ("input", "input_seconds"), ("output", "output_seconds"))
            if action.get(name)
        )
        rows.append(("why", action.get("cause", "-")))
        worker = action.get("worker", "")
        named = worker not in ("", action["executor"], action.get("node"))
        rows.append(("where", place_of(action) + (f", worker {worker}" if named else "")))
        rows.append(("began", f"{action.get('start', 0.0):.2f} s into the build"))
        rows.append(("seconds", f"{seconds_of(action):.2f}" + (f" ({parts})" if parts else "")))
        if action.get("peak_bytes"):
            rows.append(("memory", byte_count(action["peak_bytes"])))
        slack = record.slacks.get(action["identifier"])
        rows.append(("slack", "none: on the critical path" if slack is None else f"{slack:.2f} s"))
    rows.append(("key", action.get("key") or "none"))
    width = max(_NARROWEST, *(len(name) + 2 for name, _ in rows))
    lines = [recorded_title(action), *(f"  {name:<{width}}{value}" for name, value in rows)]
    if components is not None:
        lines += ["", "components of the key"]
        lines += [_component(name, value, before) for name, value in components.items()]
        gone = [name for name in before or () if name not in components]
        lines += [f"  {name}: none   was: {before[name]}" for name in gone if before]
    elif action["status"] in _STATUSES:
        lines += ["", "the components of the key are no longer in the disk cache"]
    if log:
        lines += ["", "log", *(f"  │ {line}".rstrip() for line in text.printable(log).rstrip().splitlines())]
    return lines


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _component(name: str, value: str, before: Mapping[str, str] | None) -> str:
    line = f"  {name}: {text.printable(value)}"
    if before is None or before.get(name) == value:
        return line
    return f"{line}   was: {text.printable(before.get(name, 'none'))}"


def _find(wanted: str, builds: list[BuildRecord]) -> tuple[BuildRecord, dict[str, Any]]:
    """The action in the newest build that has it, by its name, the first digits of its key, or a part of its name."""
    for record in builds:
        actions = list(record.actions())
        exact = [action for action in actions if wanted in (action["identifier"], recorded_title(action))]
        if not exact and len(wanted) >= _FEWEST_DIGITS:
            exact = [action for action in actions if action.get("key", "").startswith(wanted.lower())]
            # Equal actions of several targets share a key; at most one of them ran.
            exact = [action for action in exact if action.get("executor")] or exact[:1]
        found = exact or [
            action for action in actions if wanted in action["identifier"] or wanted in recorded_title(action)
        ]
        if len({action["identifier"] for action in found}) > 1:
            names = [recorded_title(action) for action in found]
            raise UsageError(
                f'"{wanted}" matches {len(names)} actions',
                advice=(*names[:_MOST_SHOWN], *(["…"] if len(names) > _MOST_SHOWN else []), "give more of the name"),
            )
        if found:
            return record, found[0]
    raise UsageError(f'no recorded build has an action "{wanted}"', advice=("`mlcbuild log what-ran` lists what ran",))


def _failed_log(directory: Path, action: Mapping[str, Any]) -> str:
    """The log file of a failed action, which has no result. It may be of a later build."""
    if action["status"] != "failed":
        return ""
    try:
        return (directory / log_path(action.get("shared_with") or action["identifier"])).read_text(
            encoding="utf-8", errors="backslashreplace"
        )
    except OSError:
        return ""
