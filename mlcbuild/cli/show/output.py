"""Prints actions: one whole, many as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mlcbuild.cli.log.listings import STATUSES, build_title, moment, place_of, table
from mlcbuild.cli.output import text
from mlcbuild.cli.output.terminal import Style
from mlcbuild.cli.show.shown_action import InputFiles, ShownAction
from mlcbuild.engine.action import StageCall, ToolCall
from mlcbuild.engine.executor import FileEntry
from mlcbuild.engine.keys import KeySource, canonical_json
from mlcbuild.engine.survey import ActionState, SurveyedAction
from mlcbuild.figures import byte_count

_WIDTH = 13  # columns of the names of rows
_SHOWN_DIGITS = 12
_MOST_PLUGINS = 4  # of one argument: Export has each family
_MOST_FILES = 10
_NONE = "-"
_GOOD = (ActionState.UP_TO_DATE, ActionState.CACHED)


def state_text(surveyed: SurveyedAction) -> str:
    """`up to date`, `waits for //:x Export`, `no key: …`."""
    if surveyed.waits_for:
        return f"{surveyed.state.value} for {surveyed.waits_for}"
    if surveyed.message and surveyed.state is ActionState.NO_KEY:
        return f"{surveyed.state.value}: {surveyed.message}"
    return surveyed.state.value


def state_counts(actions: Sequence[ShownAction]) -> str:
    """`62 up to date, 1 would run`."""
    counts = Counter(each.surveyed.state for each in actions)
    return ", ".join(f"{counts[state]:,} {state.value}" for state in ActionState if counts[state])


def action_lines(
    shown: ShownAction,
    source: KeySource,
    version_of: Callable[[str], str],
    blob_path: Callable[[FileEntry], str],
    style: Style,
) -> list[str]:
    """Everything about one action. `source` is what its key is made from."""
    lines = [style.bold(text.printable(shown.action.title))]
    for name, value in _rows(shown, source, version_of):
        first, *rest = text.printable(value).splitlines() or [""]
        lines += [f"  {name:<{_WIDTH}}{first}".rstrip(), *(" " * (_WIDTH + 2) + line.strip() for line in rest)]
    if shown.inputs:
        lines += ["", style.bold("inputs"), *_input_lines(shown.inputs)]
    lines += ["", style.bold("outputs"), *_output_lines(shown, blob_path)]
    if shown.log:
        lines += ["", style.bold("log"), *log_lines(shown.log)]
    return lines


def log_lines(log: str) -> list[str]:
    """A log behind a bar, without control characters."""
    return [f"  │ {line}".rstrip() for line in text.printable(log).rstrip().splitlines()]


def _rows(shown: ShownAction, source: KeySource, version_of: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    surveyed, action = shown.surveyed, shown.action
    yield "state", state_text(surveyed)
    if shown.ended is not None:
        how = STATUSES.get(shown.ended.action["status"], shown.ended.action["status"])
        if how != "ran":
            yield "result", f"{how}, in the build of {build_title(shown.ended.build)}"
        if message := shown.ended.action.get("message"):
            yield "message", message
    if shown.last is None:
        yield "last run", "in no recorded build of this workspace"
    else:
        ran = shown.last.action
        memory = f", {byte_count(ran['peak_bytes'])} of memory" if ran.get("peak_bytes") else ""
        why = f" ({ran['cause']})" if ran.get("cause") else ""
        yield "last run", f"{build_title(shown.last.build, ran)}{why}"
        yield "took", f"{shown.seconds:.2f} s, {place_of(ran)}{memory}"
    yield "key", surveyed.key.hash if surveyed.key else "not known yet"
    if surveyed.shared_with:
        yield "shared with", f"{surveyed.shared_with}, which has the same key"
    match action.command:
        case StageCall() as call:
            yield "function", call.function
            for name, value in call.plugins:
                given = (value,) if isinstance(value, str) else value
                yield from (("plug-in", f"{name} = {each}") for each in given[:_MOST_PLUGINS])
                if len(given) > _MOST_PLUGINS:
                    yield "plug-in", f"{name}: {len(given) - _MOST_PLUGINS} more, which --output=json has"
            for name, parameter in call.parameters:
                yield from (("parameter", f"{path} = {value}") for path, value in _leaves(name, parameter))
        case ToolCall(arguments=arguments):
            yield from (("argument", argument) for argument in arguments)
    yield from (("environment", f"{name}={value}") for name, value in action.environment)
    for name, fingerprint in source.toolchains:
        version = version_of(name)
        yield "toolchain", f"{name} {fingerprint[:_SHOWN_DIGITS]}" + (f", {version}" if version else "")
    if source.implementation:
        yield "code", source.implementation[:_SHOWN_DIGITS]
    if action.cache.value != "all":
        yield "cache", action.cache.value


def _leaves(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """The values inside the objects of a parameter, by their paths, as `explain` names them."""
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _leaves(f"{path}.{name}", inner)
    else:
        yield path, canonical_json(value)


def _input_lines(inputs: Sequence[InputFiles]) -> list[str]:
    rows = []
    for each in inputs:
        total = byte_count(sum(entry.digest.size_bytes for entry in each.files)) if each.files else _NONE
        if len(each.files) == 1:
            content = each.files[0].digest.hash[:_SHOWN_DIGITS]
        else:
            content = text.plural(len(each.files), "file") if each.files else _NONE
        rows.append((text.printable(each.item.path), total, content, text.printable(each.source)))
    return [f"  {line}" for line in table(("path", "size", "content", "from"), rows, right={1})]


def _output_lines(shown: ShownAction, blob_path: Callable[[FileEntry], str]) -> list[str]:
    if shown.outputs is None:
        return [f"  {text.printable(path)}" for path in shown.action.outputs] + ["  the disk cache has no result"]
    lines = []
    for declared in shown.action.outputs:
        files = [
            each for each in shown.outputs if each.path == declared or each.path.startswith(f"{declared.rstrip('/')}/")
        ]
        if not declared.endswith("/"):
            for entry in files:
                digest = entry.digest.hash[:_SHOWN_DIGITS]
                lines += [f"  {text.printable(entry.path)}  {byte_count(entry.digest.size_bytes)}  {digest}"]
                lines += [f"    {blob_path(entry) or 'not in the disk cache'}"]
            continue
        total = byte_count(sum(entry.digest.size_bytes for entry in files))
        lines.append(f"  {text.printable(declared)}  {text.plural(len(files), 'file')}, {total}")
        for entry in files[:_MOST_FILES]:
            name = text.printable(entry.path.removeprefix(declared))
            lines.append(f"    {name}  {byte_count(entry.digest.size_bytes)}  {entry.digest.hash[:_SHOWN_DIGITS]}")
        if len(files) > _MOST_FILES:
            lines.append(f"    and {len(files) - _MOST_FILES:,} more; --output=json has all")
    return lines + [f"  placed at {text.printable(path)}" for path in shown.placed]


def target_table(label: str, actions: Sequence[ShownAction], style: Style) -> list[str]:
    """The actions of a target, those of one mnemonic in one row."""
    groups: dict[str, list[ShownAction]] = {}
    for each in actions:
        groups.setdefault(each.action.mnemonic, []).append(each)
    rows = []
    for mnemonic, group in groups.items():
        name = f"{mnemonic} ×{len(group):,}" if len(group) > 1 else mnemonic
        state = state_counts(group) if len(group) > 1 else group[0].surveyed.state.value
        rows.append((name, *_figures(group), state))
    titles = ("ACTION", "LAST RUN", "SECONDS", "OUTPUTS", "STATE")
    head = f"{style.bold(label)}  {text.plural(len(actions), 'action')}: {state_counts(actions)}"
    return [head, *table(titles, rows, right={2, 3})]


def list_of_mnemonic(label: str, actions: Sequence[ShownAction], style: Style) -> list[str]:
    """Actions of one mnemonic, one a line, by their names."""
    mnemonic = actions[0].action.mnemonic
    has_one_state = len({each.surveyed.state for each in actions}) == 1
    rows = []
    for each in actions:
        _, seconds, size = _figures([each])
        name = text.printable(each.action.title.removeprefix(f"{each.action.owner} {mnemonic}").strip())
        state = () if has_one_state else (each.surveyed.state.value,)
        rows.append((seconds, size, *state, name))
    titles = ("SECONDS", "OUTPUTS", *(() if has_one_state else ("STATE",)), "NAME")
    head = f"{style.bold(f'{label} {mnemonic}')}  {text.plural(len(actions), 'action')}: {state_counts(actions)}"
    return [head, *table(titles, rows, right={0, 1})]


def _figures(group: Sequence[ShownAction]) -> tuple[str, str, str]:
    """When the last of some actions ran, the seconds of their last runs, and the bytes of their outputs."""
    began = [each.last.build.began + float(each.last.action.get("start", 0.0)) for each in group if each.last]
    seconds = [each.seconds for each in group if each.seconds is not None]
    sizes = [each.output_bytes for each in group if each.output_bytes is not None]
    return (
        moment(max(began)) if began else _NONE,
        f"{sum(seconds):.2f}" if seconds else _NONE,
        byte_count(sum(sizes)) if sizes else _NONE,
    )
