"""`mlcbuild aquery`: the actions of targets, with their keys, inputs, parameters and toolchains."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.inspection.query import answer
from mlcbuild.cli.inspection.survey import SurveyRequest, surveying
from mlcbuild.cli.output import text
from mlcbuild.cli.output.json_output import print_json_by_rows
from mlcbuild.cli.output.terminal import OutputFormat
from mlcbuild.cli.workspace.opening import open_workspace
from mlcbuild.cli.workspace.skipped import skipped_notes
from mlcbuild.engine.action import Artifact, DerivedArtifact, Input, SourceArtifact, StageCall, ToolCall
from mlcbuild.engine.code_listing import CodeListing, code_document
from mlcbuild.engine.keys import canonical_json, components_of
from mlcbuild.engine.survey import ActionState, Survey, SurveyedAction, all_wanted
from mlcbuild.query.expression import parse_action_query
from mlcbuild.workspace.collector import without_collector
from mlcbuild.workspace.label import Label

# Names of rows, in a column of 13 characters.
_BEGINNING = {
    name: f"  {name:<13}"
    for name in (
        *("mnemonic", "target", "state", "key", "shared with", "input", "output", "function", "plug-in", "parameter"),
        *("argument", "environment", "toolchain", "code", "cache"),
    )
}
_SHOWN_DIGITS = 16

Filters = Sequence[tuple[str, re.Pattern[str]]]


@without_collector()
def print_actions(expression: str, request: SurveyRequest, output: OutputFormat, options: GlobalOptions) -> None:
    """Print the actions that the targets of `expression` own. Raises UsageError, WorkspaceErrors."""
    query, filters = parse_action_query(expression)
    workspace = open_workspace(options.directory, to_load=True)
    found, graph = answer(query, workspace, request.configuration, request.overrides)
    labels = tuple(node for node in found if isinstance(node, Label))
    analysis = workspace.analyse(graph.loaded, request.disk_cache, requested=labels, expression=expression)
    for note in skipped_notes(analysis):
        options.note(note)
    owners = frozenset(map(str, labels))
    wanted = all_wanted(action for action in analysis.actions if action.owner in owners)
    remote = request.remote(workspace, options)
    with surveying(
        workspace, analysis, wanted, disk_cache=request.disk_cache, remote=remote, say=options.note
    ) as parts:
        survey = parts.survey
        known = [each for each in survey.actions.values() if each.action.owner in owners]
        actions = [each for each in known if _matches(each, filters)]
        unknown = [each for each in known if announces_unknown(each)]
        if output is OutputFormat.JSON:
            print_json_by_rows(
                {
                    "actions": [action_document(each, survey) for each in actions],
                    "not_known": [{"announced_by": each.action.identifier} for each in unknown],
                    "code": code_document(_listings(actions, survey)),
                }
            )
            return
        blocks = ["\n".join(_lines(each, survey)) for each in actions]
    if blocks:
        print("\n\n".join(blocks))
    for each in unknown:
        options.note(f"{each.action.title} would run; what it announces is not known yet")
    if not blocks:
        options.note("no actions match")


def announces_unknown(surveyed: SurveyedAction) -> bool:
    """Whether it has no result, and so no manifest of the actions that it would announce."""
    has_result = surveyed.state in (ActionState.UP_TO_DATE, ActionState.CACHED)
    return surveyed.action.discoverer is not None and not has_result


def artifact_name(artifact: Artifact) -> str:
    """A file by its path from the root; an output as `//models:x Export: out/module.json`."""
    match artifact:
        case SourceArtifact(path=path):
            return path
        case DerivedArtifact(action=action, path=path):
            return f"{action}: {path}"
        case _:
            return f"{artifact.action}: all {artifact.group}"


def action_document(surveyed: SurveyedAction, survey: Survey) -> dict[str, Any]:
    """An action as JSON. `key` and `files` are null if they are not known."""
    action = surveyed.action
    source = survey.keys.source_of(action, surveyed.inputs)
    document: dict[str, Any] = {
        "action": action.identifier,
        "title": action.title,
        "mnemonic": action.mnemonic,
        "target": action.owner,
        "state": surveyed.state.value,
        "waits_for": surveyed.waits_for,
        "message": surveyed.message,
        "key": surveyed.key.hash if surveyed.key else None,
        "shared_with": surveyed.shared_with,
        "inputs": [{"path": item.path, "artifact": artifact_name(item.artifact)} for item in action.inputs],
        "files": None if surveyed.key is None else {entry.path: str(entry.digest) for entry in surveyed.inputs},
        "outputs": list(action.outputs),
        "environment": dict(action.environment),
        "toolchains": dict(source.toolchains),
        "implementation": source.implementation,
        "cache": action.cache.value,
        "details": dict(action.description.details) if action.description else {},
        "key_components": None if surveyed.key is None else dict(components_of(source)),
    }
    match action.command:
        case StageCall() as call:
            document["stage"] = {
                "function": call.function,
                "parameters": dict(call.parameters),
                "plugins": {name: value if isinstance(value, str) else list(value) for name, value in call.plugins},
            }
        case ToolCall(arguments=arguments):
            document["arguments"] = list(arguments)
    return document


def _listings(actions: Sequence[SurveyedAction], survey: Survey) -> list[CodeListing]:
    """What the code of the actions' stages consists of, each implementation once."""
    encoded = {survey.keys.listing_of(each.action) for each in actions} - {b""}
    return [CodeListing.decode(data) for data in sorted(encoded)]


def _lines(surveyed: SurveyedAction, survey: Survey) -> list[str]:
    action = surveyed.action
    source = survey.keys.source_of(action, surveyed.inputs)
    state = surveyed.state.value
    if surveyed.waits_for:
        state += f" for {_title(surveyed.waits_for, survey)}"
    if surveyed.message and surveyed.state is ActionState.NO_KEY:
        state += f": {surveyed.message}"
    rows = [
        ("mnemonic", action.mnemonic),
        ("target", action.owner),
        ("state", state),
        ("key", surveyed.key.hash if surveyed.key else "not known yet"),
    ]
    if surveyed.shared_with:
        rows.append(("shared with", _title(surveyed.shared_with, survey)))
    rows += [("input", _input(item, survey)) for item in action.inputs]
    rows += [("output", path) for path in action.outputs]
    match action.command:
        case StageCall() as call:
            rows.append(("function", call.function))
            for name, value in call.plugins:
                rows.append(("plug-in", f"{name} = {value if isinstance(value, str) else ', '.join(value)}"))
            rows += [("parameter", f"{name} = {canonical_json(value)}") for name, value in call.parameters]
        case ToolCall(arguments=arguments):
            rows += [("argument", argument) for argument in arguments]
    rows += [("environment", f"{name}={value}") for name, value in action.environment]
    rows += [("toolchain", f"{name} {fingerprint[:_SHOWN_DIGITS]}") for name, fingerprint in source.toolchains]
    if source.implementation:
        rows.append(("code", source.implementation[:_SHOWN_DIGITS]))
    if action.cache.value != "all":
        rows.append(("cache", action.cache.value))
    lines = [action.title, *[_BEGINNING[name] + value for name, value in rows]]
    # Nearly all are printable, and one look at all of them is much quicker than one at each.
    return lines if "".join(lines).isprintable() else [text.printable(line) for line in lines]


def _input(item: Input, survey: Survey) -> str:
    name = artifact_name(item.artifact)
    if not isinstance(item.artifact, SourceArtifact):
        maker = item.artifact.action
        name = _title(maker, survey) + name.removeprefix(maker)
    return f"{item.path}  ←  {name}"


def _title(identifier: str, survey: Survey) -> str:
    """An action's name for people, where it is known."""
    surveyed = survey.actions.get(identifier)
    return surveyed.action.title if surveyed else identifier


def _matches(surveyed: SurveyedAction, filters: Filters) -> bool:
    return all(any(regex.search(candidate) for candidate in _candidates(name, surveyed)) for name, regex in filters)


def _candidates(name: str, surveyed: SurveyedAction) -> Iterator[str]:
    action = surveyed.action
    match name:
        case "mnemonic":
            yield action.mnemonic
        case "outputs":
            yield from action.outputs
        case _:
            for item in action.inputs:
                yield item.path
                yield artifact_name(item.artifact)
            yield from (entry.path for entry in surveyed.inputs)
