"""The build report and the events, from the docstring of the one and the classes of the others."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any, get_args

from mlcbuild.cli.reports import build_report, event_log
from mlcbuild.engine import build_events
from website.reference.tables import table

_HEAD = """\
# The build report and events

Made from the code. [The command line](command-line.md#the-build-report---build-report-file) says when they are written.

## The build report
"""
_JSON = {"str": "string", "bytes": "string", "int": "integer", "float": "number", "bool": "boolean", "JsonValue": "any"}
_FILE = (
    ("field", "type", "meaning"),
    (
        ("`path`", "string", "from the workspace, or in the result of an action"),
        ("`digest`", "string", "`hash/size`, by the build's `digest_function`; the size is in bytes"),
        ("`executable`", "boolean", "whether it is a program"),
    ),
)
_EVENTS = """
## Events

One JSON object a line. Its `event` is the name below, and its other fields are these. Times are seconds since the
build began. The first line is a `header` with `format`, `version` ({version}) and the command's arguments; the last one
is `command_finished` with `exit_code`, `error` and `wall_seconds`. The version rises when a field is removed or changes
its meaning.
"""


def reports_page() -> str:
    """The page, in Markdown."""
    parts = [_HEAD, _report(), _EVENTS.format(version=event_log.VERSION)]
    source = ast.parse(inspect.getsource(build_events))
    lines = inspect.getsource(build_events).splitlines()
    classes = {node.name: node for node in source.body if isinstance(node, ast.ClassDef)}
    events = [event.__name__ for event in get_args(build_events.BuildEvent)]
    others = [name for name in classes if name not in events and name not in ("ActionStatus", "Cause")]
    for name in events:
        parts.append(f"### {_snake_case(name)}\n\n{_fields(classes[name], lines)}")
    parts.append("## Values within events\n")
    for name in ("ActionStatus", "Cause"):
        parts.append(f"### {name}\n\n{_members(classes[name], lines)}")
    for name in others:
        parts.append(f"### {name}\n\n{_fields(classes[name], lines)}")
    parts.append(f"### FileEntry\n\n{inspect.getdoc(event_log.file_document)}\n\n{table(*_FILE)}")
    return "\n".join(parts)


def _report() -> str:
    text = inspect.getdoc(build_report) or ""
    before, _, after = text.partition("::\n\n")
    shape, _, explained = after.partition("\n\n")
    summary = before.strip().splitlines()[0].removeprefix("The build report: ")
    return f"{summary[0].upper()}{summary[1:]}\n\n```text\n{textwrap.dedent(shape)}\n```\n\n{explained}\n"


def _fields(node: ast.ClassDef, lines: list[str]) -> str:
    rows = [
        (f"`{child.target.id}`", _json_type(ast.unparse(child.annotation)), _comment(child, lines))
        for child in node.body
        if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name)
    ]
    rows += [
        (f"`{child.name}`", _json_type(ast.unparse(child.returns)), ast.get_docstring(child) or "")
        for child in node.body
        if isinstance(child, ast.FunctionDef) and child.returns is not None  # a property, which is written too
    ]
    doc = ast.get_docstring(node)
    return (f"{doc}\n\n" if doc else "") + table(("field", "type", "meaning"), rows)


def _json_type(annotation: str) -> str:
    """How a value of the type is written in JSON."""
    if annotation.endswith(" | None"):
        return f"{_json_type(annotation.removesuffix(' | None'))} or null"
    if match := re.fullmatch(r"tuple\[(.+), \.\.\.\]", annotation):
        return f"list of {_json_type(match[1])}"
    if match := re.fullmatch(r"Mapping\[str, (.+)\]", annotation):
        return f"object of {_json_type(match[1])}"
    # `counts` alone holds pairs, and is written as an object.
    return {"tuple[tuple[ActionStatus, int], ...]": "object"}.get(annotation) or _JSON.get(annotation, annotation)


def _members(node: ast.ClassDef, lines: list[str]) -> str:
    return f"{ast.get_docstring(node)}\n\n" + table(("value", "meaning"), _values(node, lines))


def _values(node: ast.ClassDef, lines: list[str]) -> Iterator[tuple[str, str]]:
    for child in node.body:
        if isinstance(child, ast.Assign) and isinstance(child.value, ast.Constant):
            value: Any = child.value.value
            yield f"`{value}`", _comment(child, lines)


def _comment(node: ast.stmt, lines: list[str]) -> str:
    return lines[(node.end_lineno or node.lineno) - 1].partition("  # ")[2]


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
