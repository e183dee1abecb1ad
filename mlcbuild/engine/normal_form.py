"""The normal form of a Python module: its syntax tree without positions, comments and docstrings.

One pass over the tree writes the normal form and collects imports, file names and definitions. It has to be quick,
because after an edit every module of a stage's closure is read in this way while the user waits.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_FILE_NAME = re.compile(r"[\w./-]*[\w-]\.[A-Za-z]\w{0,9}")
_CODE_SUFFIXES = (".py", ".pyc", ".pyi", ".so", ".typed")
_DEFINITION_DIGITS = 16
_IMPORTING_CALLS = ("import_module", "__import__")
_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleForm:
    """`imports` are dotted names that may be modules. For `from a import b` these are `a` and `a.b`.

    `file_names` are the strings that look like names of data files. Both are sorted.

    `definitions` are the parts of the module, by which people are told what changed: name and 16 hexadecimal digits for
    each top-level function, class and assigned name, each method (`Class.method`, without which its class counts), and
    "" for all other statements. They are sorted by name.
    """

    digest: str
    imports: tuple[str, ...]
    file_names: tuple[str, ...]
    definitions: tuple[tuple[str, str], ...] = ()


def read_module(source: bytes, *, name: str, is_package: bool) -> ModuleForm:
    """The form of the module with that dotted name. Raises SyntaxError, and ValueError for bytes that are no text."""
    reader = _Reader(name if is_package else name.rpartition(".")[0])
    tree = ast.parse(source)
    reader.names = dict(_named(tree))
    reader.write(tree, True)
    text = "".join(reader.parts)
    return ModuleForm(
        digest=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
        imports=tuple(sorted(reader.imports)),
        file_names=tuple(sorted(reader.file_names)),
        definitions=_definitions(reader.parts, reader.spans),
    )


class _Reader:
    def __init__(self, package: str) -> None:
        self.parts: list[str] = []
        self.names: dict[int, str] = {}  # of definitions, by the identity of their nodes
        self.spans: list[tuple[int, int, str]] = []  # first part, the one after the last, and name
        self.imports: set[str] = set()
        self.file_names: set[str] = set()
        self._package = package

    def write(self, node: object, is_run: bool) -> None:
        """Append the normal form of a node. `is_run` is False below `if TYPE_CHECKING:`, where imports do not count."""
        if isinstance(node, list):
            self.parts.append("[")
            for item in node:
                self.write(item, is_run)
            self.parts.append("]")
        elif isinstance(node, ast.Constant):
            self._write_constant(node)
        elif isinstance(node, ast.AST):
            if is_run:
                self._collect(node)
            start = len(self.parts)
            self.parts.append(f"{type(node).__name__}(")
            is_guard = isinstance(node, ast.If) and _name(node.test) == "TYPE_CHECKING"
            for field in node._fields:
                value = getattr(node, field, None)
                if field == "body" and isinstance(node, _WITH_DOCSTRING):
                    value = _without_docstring(node)
                self.write(value, is_run and not (is_guard and field == "body"))
            self.parts.append(")")
            if name := self.names.get(id(node)):
                self.spans.append((start, len(self.parts), name))
        else:
            # repr() escapes line breaks. So they separate fields, and no two trees have the same text.
            self.parts.append(f"{node!r}\n")

    def _write_constant(self, node: ast.Constant) -> None:
        value = node.value
        self.parts.append(f"{type(value).__name__} {value!r}\n")
        if isinstance(value, str) and _FILE_NAME.fullmatch(value) and not value.endswith(_CODE_SUFFIXES):
            self.file_names.add(value)

    def _collect(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            self.imports.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = self._package.split(".")
                base = ".".join([*parents[: len(parents) - node.level + 1], *([base] if base else [])])
            self.imports.add(base)
            self.imports.update(f"{base}.{alias.name}" for alias in node.names if alias.name != "*")
        elif isinstance(node, ast.Call) and node.args and _name(node.func) in _IMPORTING_CALLS:
            argument = node.args[0]
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                self.imports.add(argument.value)


def _named(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The definitions of a module: the identity of each one's node, and its name."""
    for statement in tree.body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield id(statement), statement.name
            case ast.ClassDef():
                yield id(statement), statement.name
                for member in statement.body:
                    if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                        yield id(member), f"{statement.name}.{member.name}"
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield id(statement), name


def _definitions(parts: Sequence[str], spans: list[tuple[int, int, str]]) -> tuple[tuple[str, str], ...]:
    """The digest of each definition, without those inside it. Definitions of one name count as one."""
    hashers = {"": hashlib.sha256()}
    around = [(len(parts), "")]
    position = 0

    def take(end: int) -> None:
        nonlocal position
        hashers[around[-1][1]].update("".join(parts[position:end]).encode("utf-8", "surrogatepass"))
        position = end

    for start, end, name in sorted(spans, key=lambda span: (span[0], -span[1])):
        while around[-1][0] <= start:
            take(around[-1][0])
            around.pop()
        take(start)
        hashers.setdefault(name, hashlib.sha256())
        around.append((end, name))
    while around:
        take(around[-1][0])
        around.pop()
    return tuple(sorted((name, hasher.hexdigest()[:_DEFINITION_DIGITS]) for name, hasher in hashers.items()))


def _without_docstring(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef,
) -> list[ast.stmt]:
    first = node.body[0] if node.body else None
    if not (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    ):
        return node.body
    return node.body[1:] or ([] if isinstance(node, ast.Module) else [ast.Pass()])


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
