"""IR modules as files: TVM's JSON form, without source locations.

A source span holds the absolute path and line of whatever Python file an expression came from, so the same
module made in another virtual environment would have other bytes. Spans are dropped before anything is
written; what is left is byte-identical from one process to the next.
"""

from __future__ import annotations

import json
from pathlib import Path

import tvm
from tvm_ffi.serialization import from_json_graph_str, to_json_graph_str

from mlcbuild.errors import StageError

_SPAN_MARKS = ('"type":"ir.Span"', '"type":"ir.SequentialSpan"')


def to_json(node: object) -> str:
    """The JSON form of an IR node, spans stripped."""
    text = str(to_json_graph_str(node))
    if not any(mark in text for mark in _SPAN_MARKS):
        return text
    # Numbers and strings are shared between spans and the rest, so that dropping spans in place would leave
    # an order that depends on them: load and save restore the order of a module that never had any.
    return str(to_json_graph_str(from_json_graph_str(_without_spans(text))))


def without_spans(module: tvm.IRModule) -> tvm.IRModule:
    """A copy without spans. A pass that parses TVMScript uses it, so that the module it adds to stays free of
    them, and is written without a second look."""
    return from_json_graph_str(to_json(module))


def from_json(text: str, *, where: str) -> object:
    """The IR node in its JSON form. Raises StageError, calling the text `where`, for anything else."""
    try:
        # tvm.ir.load_json does the same after a look for old formats, which takes seven times as long.
        return from_json_graph_str(text)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise StageError(f"{where} is not IR in TVM's JSON form: {reason}") from error


def save_module(module: tvm.IRModule, path: Path) -> None:
    """Write a module. Its compiled parts, if any, have to be taken out before: they have no JSON form."""
    path.write_text(to_json(module), encoding="utf-8")


def load_module(path: Path) -> tvm.IRModule:
    """Read a module. Raises StageError for a file that holds none."""
    node = from_json(_read_text(path), where=path.name)
    if not isinstance(node, tvm.IRModule):
        raise StageError(f"{path.name} holds {type(node).__name__}, not an IR module")
    return node


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise StageError(f"{path.name} is not IR in TVM's JSON form: it is not UTF-8 text") from error


def _without_spans(text: str) -> str:
    document = json.loads(text)
    nodes = document["nodes"]
    nothing = next((index for index, node in enumerate(nodes) if node["type"] == "None"), len(nodes))
    if nothing == len(nodes):
        nodes.append({"type": "None"})
    for node in nodes:
        data = node.get("data")
        if isinstance(data, dict) and "span" in data:
            data["span"] = nothing
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)
