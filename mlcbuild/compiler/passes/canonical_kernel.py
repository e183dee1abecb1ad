"""The canonical form of a kernel: equal bodies give equal bytes, in every process and model.

TVM's JSON is a graph of typed nodes. It is rewritten here in one walk over what the kernel refers to: source spans and
attributes that say nothing of the computation are left out, names are replaced by numbers in order of appearance, map
entries are sorted, and nodes are numbered in the order of the walk. A variable keeps its identity; any other value is
written once, however often the original shared or repeated it.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm_ffi.serialization import from_json_graph_str, to_json_graph_str

from mlcbuild.compiler.kernel_attributes import DEVICE_KERNELS
from mlcbuild.errors import InternalError

ROOT = "kernel"
_DROPPED_ATTRIBUTES = frozenset({"global_symbol", "target", "op_pattern"})
_INLINE_SCHEMAS = frozenset({"bool", "int", "float", "DataType", "dtype", "Device", "device"})
_SEQUENCES = frozenset({"ffi.Array", "ffi.List"})
_MAPS = frozenset({"ffi.Map", "ffi.Dict"})
# The schedule tells statements apart by address, so that one statement may not stand in two places.
_STATEMENTS = frozenset({"tirx.For", "s_tir.SBlock", "s_tir.SBlockRealize", "tirx.SeqStmt"})
_NAMED = {"ir.Var": ("name", "v"), "s_tir.SBlock": ("name_hint", "block")}
_NOT_WALKED = {"ir.Var": "name", "s_tir.SBlock": "name_hint", "ir.GlobalVar": "name_hint"}

Node = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class CanonicalKernel:
    """`data` is TVM JSON of a module whose function `kernel` is the PrimFunc; `name` is `kernel_` and 32 hex digits
    of the SHA-256 of `data`."""

    name: str
    data: bytes
    device_kernels: tuple[dict[str, Any], ...] = ()  # what the kernel's attribute says of those that it starts

    def __post_init__(self) -> None:
        if self.name != kernel_name(self.data):
            raise ValueError(f"the name {self.name!r} is not that of the kernel's bytes, {kernel_name(self.data)!r}")


def kernel_name(data: bytes) -> str:
    """The content name of a canonical kernel: what the VM calls, and what its symbols derive from."""
    return f"kernel_{hashlib.sha256(data).hexdigest()[:32]}"


def canonicalize(func: tirx.PrimFunc, *, module: tvm.IRModule | None = None) -> CanonicalKernel:
    """The canonical form of `func`, an unscheduled PrimFunc; parameters keep their order.

    `module` is where functions that `func` calls are found; they become part of the kernel. Raises InternalError
    where `func` calls a function that `module` lacks.
    """
    functions = {tvm.ir.GlobalVar(ROOT): func}
    pending = [func]
    names: dict[str, str] = {}
    while pending:
        for name in _callees(pending.pop(0)):
            if name in names:
                continue
            if module is None or name not in module.global_var_map_:
                raise InternalError(f"a kernel calls the function {name!r}, which its module lacks")
            names[name] = f"callee{len(names)}"
            variable = module.get_global_var(name)
            functions[variable] = module[variable]
            pending.append(module[variable])
    data = canonical_bytes(tvm.IRModule(functions), function_names=names)
    started = json.loads(str((func.attrs or {}).get(DEVICE_KERNELS, "[]")))
    return CanonicalKernel(name=kernel_name(data), data=data, device_kernels=tuple(started))


def load_kernel(data: bytes) -> tvm.IRModule:
    """The module that `canonicalize` wrote; its function `kernel` is the kernel, any other a callee."""
    return from_json_graph_str(data.decode())


def canonical_bytes(module: tvm.IRModule, *, function_names: Mapping[str, str] | None = None) -> bytes:
    """The canonical JSON of a module of PrimFuncs. Functions not in `function_names` keep their name."""
    document = json.loads(to_json_graph_str(module))
    writer = _Writer(nodes=document["nodes"], function_names=function_names or {})
    root = writer.write(document["root_index"])
    graph = {"root_index": root, "nodes": writer.written}
    return json.dumps(graph, separators=(",", ":"), sort_keys=True).encode()


def _callees(func: tirx.PrimFunc) -> list[str]:
    nodes = json.loads(to_json_graph_str(func))["nodes"]
    return [nodes[node["data"]["name_hint"]]["data"] for node in nodes if node["type"] == "ir.GlobalVar"]


@functools.cache
def _reference_fields(type_key: str) -> tuple[tuple[str, bool], ...]:
    """The fields of a TVM type, its own before its parents', each with whether it holds the number of another node."""
    fields: list[tuple[str, bool]] = []
    info = tvm_ffi.core._lookup_or_register_type_info_from_type_key(type_key)
    while info is not None:
        for field in info.fields:
            schema = json.loads(field.metadata.get("type_schema", "{}")).get("type", "Any")
            fields.append((field.name, schema not in _INLINE_SCHEMAS))
        info = info.parent_type_info
    return tuple(fields)


class _Writer:
    """Copies a graph of nodes into canonical order. The walk keeps its own stack: loop nests may be deep."""

    def __init__(self, *, nodes: list[Node], function_names: Mapping[str, str]) -> None:
        self.written: list[Node] = []
        self._nodes = nodes
        self._function_names = function_names
        self._number_of: dict[int, int] = {}  # of the original node that was copied
        self._equal: dict[str, int] = {}  # by content
        self._counters: dict[str, int] = {}
        self._none = self._share({"type": "None"})

    def write(self, root: int) -> int:
        stack: list[tuple[int, Iterator[int]]] = [(root, iter(self._children(root)))]
        while stack:
            index, children = stack[-1]
            child = next(children, None)
            if child is None:
                stack.pop()
                self._number_of[index] = self._copy(index)
            elif self._nodes[child]["type"] in _STATEMENTS or child not in self._number_of:
                stack.append((child, iter(self._children(child))))
        return self._number_of[root]

    def _children(self, index: int) -> list[int]:
        node = self._nodes[index]
        data: Any = node.get("data")
        if node["type"] in _SEQUENCES:
            return list(data)
        if node["type"] in _MAPS:
            return [reference for entry in self._entries(index) for reference in entry]
        if not isinstance(data, dict):
            return []
        if node["type"] == "ir.DictAttrs":
            return [data["__dict__"]]
        skipped = ("span", _NOT_WALKED.get(node["type"]))
        fields = _reference_fields(node["type"])
        return [data[name] for name, refers in fields if refers and name in data and name not in skipped]

    def _entries(self, index: int) -> list[tuple[int, int]]:
        """The entries of a map that are kept, those keyed by a string sorted by it."""
        flat = self._nodes[index]["data"]
        entries = [(key, value) for key, value in zip(flat[::2], flat[1::2], strict=True)]
        kept = [entry for entry in entries if self._string(entry[0]) not in _DROPPED_ATTRIBUTES]
        return sorted(kept, key=lambda entry: self._string(entry[0]))

    def _string(self, index: int) -> str:
        node = self._nodes[index]
        if node["type"] == "ffi.String":
            return str(node["data"])
        if node["type"] == "ir.GlobalVar":
            name = self._string(node["data"]["name_hint"])
            # The kernel itself comes first: its callees are numbered as they appear in it.
            return "" if name == ROOT else self._function_names.get(name, name)
        raise InternalError(f"a kernel holds a map keyed by {node['type']}")

    def _copy(self, index: int) -> int:
        node = self._nodes[index]
        kind: str = node["type"]
        data: Any = node.get("data")
        if kind in _SEQUENCES:
            return self._share({"type": kind, "data": [self._number_of[child] for child in data]})
        if kind in _MAPS:
            flat = [self._number_of[child] for entry in self._entries(index) for child in entry]
            return self._share({"type": kind, "data": flat})
        if not isinstance(data, dict):
            return self._share(node)
        references = {name for name, refers in _reference_fields(kind) if refers} | {"__dict__"}
        skipped = ("span", _NOT_WALKED.get(kind))
        fields = {
            name: self._none if name in skipped else self._number_of[value] if name in references else value
            for name, value in data.items()
        }
        if kind in _NAMED:
            field, prefix = _NAMED[kind]
            is_root = kind == "s_tir.SBlock" and self._string(data[field]) == "root"
            fields[field] = self._share({"type": "ffi.String", "data": "root" if is_root else self._fresh(prefix)})
            return self._append({"type": kind, "data": fields})
        if kind == "ir.GlobalVar":
            name = self._string(data["name_hint"]) or ROOT
            name = self._function_names.get(name, name)
            fields["name_hint"] = self._share({"type": "ffi.String", "data": name})
        if kind in _STATEMENTS:
            return self._append({"type": kind, "data": fields})
        return self._share({"type": kind, "data": fields})

    def _fresh(self, prefix: str) -> str:
        number = self._counters.get(prefix, 0)
        self._counters[prefix] = number + 1
        return f"{prefix}{number}"

    def _share(self, node: Node) -> int:
        content = json.dumps(node, sort_keys=True)
        if content not in self._equal:
            self._equal[content] = self._append(node)
        return self._equal[content]

    def _append(self, node: Node) -> int:
        self.written.append(node)
        return len(self.written) - 1
