"""The normal form of a module does not depend on how it is written, only on what it means."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import mlcbuild
from mlcbuild.engine.normal_form import ModuleForm, read_module


def form(source: str) -> ModuleForm:
    return read_module(source.encode(), name="a.b", is_package=False)


def test_sources_written_anew_from_their_trees_have_the_same_form() -> None:
    root = Path(mlcbuild.__file__).parent
    sources = sorted((root / "engine").glob("*.py")) + sorted((root / "cache").glob("*.py"))
    assert len(sources) > 15
    for path in sources:
        source = path.read_bytes()
        again = "# moved\n\n\n" + ast.unparse(ast.parse(source))
        assert read_module(again.encode(), name="a.b", is_package=False) == read_module(
            source, name="a.b", is_package=False
        ), path


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = 1", "x = 1.0"),
        ("x = 1", "x = True"),
        ("x = 'a'", "x = b'a'"),
        ("x = ''", "x = None"),
        ("x = a, b", "x = [a, b]"),
        ("f(a, b)", "f(a, *b)"),
        ("f(a)", "f(x=a)"),
        ("def f(a, b): pass", "def f(a, *, b): pass"),
        ("def f(a, b=1): pass", "def f(a=1, b=1): pass"),
        ("def f(): pass", "async def f(): pass"),
        ("def f() -> int: pass", "def f() -> str: pass"),
        ("if a:\n  b\nelse:\n  c", "if a:\n  b\nc"),
        ("if a:\n  b\n  c", "if a:\n  b\nc"),
        ("global x", "global y"),
        ("import a.b", "import a.b as c"),
        ("from . import a", "from .. import a"),
        ("x = a < b < c", "x = (a < b) < c"),
        ("x = f'{a!r}'", "x = f'{a!s}'"),
        ("x = f'{a:>3}'", "x = f'{a:>4}'"),
        ("x: int", "x: int = 0"),
        ("(x): int = 0", "x: int = 0"),
        ("lambda a: a", "lambda b: b"),
        ("x = 'Name(\\n'", "x = 'Name('"),
        ("1\n'text'", "1\n'other'"),
    ],
)
def test_different_programs_have_different_forms(one: str, other: str) -> None:
    assert form(one).digest != form(other).digest


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("'doc'", ""),
        ("def f():\n  'doc'", "def f():\n  pass"),
        ("class A:\n  'doc'\n  x = 1", "class A:\n  x = 1"),
        ("x = 'a' 'b'", 'x = "ab"'),
        ("x = (1)  # one", "x = 1"),
        ("x = 0x10", "x = 16"),
        ("x = u'a'", "x = 'a'"),
    ],
)
def test_the_same_program_has_one_form(one: str, other: str) -> None:
    assert form(one).digest == form(other).digest


def test_names_of_data_files_are_gathered_and_those_of_code_are_not() -> None:
    found = form("'doc.json'\nx = ['table.json', 'data/a.txt', 'code.py', 'no name', '.json', 'x.so', 'deep.tar.gz']")
    assert found.file_names == ("data/a.txt", "deep.tar.gz", "table.json")
