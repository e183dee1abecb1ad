"""`mlcbuild show --build`: actions as a recorded build has them, without the workspace, which may be broken by now."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlcbuild.cli.arguments.options import LOG_DIRECTORY, GlobalOptions
from mlcbuild.cli.console.action_logs import log_path
from mlcbuild.cli.console.action_names import recorded_title
from mlcbuild.cli.log.listings import STATUSES, build_title, described, place_of, record_directory, seconds_of, table
from mlcbuild.cli.log.records import BuildRecord, chosen
from mlcbuild.cli.log.stored_results import StoredResults
from mlcbuild.cli.output import text
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.cli.show.output import log_lines
from mlcbuild.cli.show.wanted import Wanted, chosen_of
from mlcbuild.errors import UsageError
from mlcbuild.figures import byte_count
from mlcbuild.suggestions import known_values
from mlcbuild.workspace.label import parse_label
from mlcbuild.workspace.settings import find_root, package_of

_NARROWEST = 9  # columns of the names of rows


def print_recorded(
    wanted: Wanted, build: str, *, disk_cache: Path | None, output: OutputFormat, options: GlobalOptions
) -> None:
    """Print the actions that are meant in a recorded build. Raises UsageError if it has none, WorkspaceError."""
    directory = record_directory(options)
    record = chosen(directory, build)
    label = _label(wanted.target, options)
    own = [action for action in record.actions() if action["owner"] == label]
    if not own:
        owners = dict.fromkeys(action["owner"] for action in record.actions())
        raise UsageError(f"that build has no actions of {label}", advice=(known_values(label, owners),))
    found = chosen_of(
        wanted,
        label,
        own,
        mnemonic=lambda action: action["mnemonic"],
        names=lambda action: (recorded_title(action), action["identifier"]),
    )
    stored = StoredResults(disk_cache)
    # An action whose result was lost has run again: its last end counts.
    found = list({action["identifier"]: action for action in found}.values())
    if output is OutputFormat.JSON:
        logs = directory.parent / LOG_DIRECTORY
        print_json({"build": record.invocation, "actions": [_document(record, each, stored, logs) for each in found]})
    elif len(found) == 1 and wanted.mnemonic:
        (action,) = found
        log = _log(action, stored, directory.parent / LOG_DIRECTORY)
        components = stored.components(action.get("key", ""))
        before = stored.components(action.get("previous_key", ""))
        options.show(_lines(record, action, components, before, log))
    else:
        style = options.style(sys.stdout)
        print(f"{style.bold(label)}  {text.plural(len(found), 'action')} in the build of {build_title(record)}")
        options.show(_table(found))


def _label(target: str, options: GlobalOptions) -> str:
    """The whole label of the target. The workspace's settings are not read."""
    root = find_root(options.directory)
    return str(parse_label(target, package=package_of(root, options.directory)))


def _table(actions: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [
        (
            STATUSES.get(action["status"], action["status"]),
            f"{seconds_of(action):.2f}" if action.get("executor") else "-",
            action.get("cause") or "-",
            text.printable(recorded_title(action).removeprefix(f"{action['owner']} ")),
        )
        for action in actions
    ]
    return table(("STATUS", "SECONDS", "WHY", "ACTION"), rows, right={1})


def _document(record: BuildRecord, action: Mapping[str, Any], stored: StoredResults, logs: Path) -> dict[str, Any]:
    return {
        **described(action, record),
        "previous_key": action.get("previous_key", ""),
        "key_components": stored.components(action.get("key", "")),
        "previous_key_components": stored.components(action.get("previous_key", "")),
        "log": _log(action, stored, logs),
    }


def _log(action: Mapping[str, Any], stored: StoredResults, logs: Path) -> str:
    return stored.log(action.get("key", "")) or _failed_log(logs, action)


def _lines(
    record: BuildRecord,
    action: Mapping[str, Any],
    components: Mapping[str, str] | None,
    before: Mapping[str, str] | None,
    log: str,
) -> list[str]:
    rows = [("build", build_title(record)), ("status", STATUSES.get(action["status"], action["status"]))]
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
    elif action["status"] in STATUSES:
        lines += ["", "the components of the key are no longer in the disk cache"]
    if log:
        lines += ["", "log", *log_lines(log)]
    return lines


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _component(name: str, value: str, before: Mapping[str, str] | None) -> str:
    line = f"  {name}: {text.printable(value)}"
    if before is None or before.get(name) == value:
        return line
    return f"{line}   was: {text.printable(before.get(name, 'none'))}"


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
