"""Every benchmark starts by the command that its docstring states, and imports only what exists."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
MODULES = sorted(path.stem for path in (PROJECT / "benchmarks").glob("*.py"))
COMMANDS = [name for name in MODULES if "__main__" in (PROJECT / "benchmarks" / f"{name}.py").read_text()]


def imports_of_ours(module: str) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse((PROJECT / "benchmarks" / f"{module}.py").read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in ("mlcbuild", "tests"):
            yield from ((node.module, alias.name) for alias in node.names)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_stated_command_starts(name: str) -> None:
    docstring = ast.get_docstring(ast.parse((PROJECT / "benchmarks" / f"{name}.py").read_text())) or ""
    stated = re.findall(r"python ((?:-m )?benchmarks\S*)", docstring)
    assert stated, "the docstring states no command"
    assert {command.rstrip("`.,:") for command in stated} == {f"-m benchmarks.{name}"}
    command = [sys.executable, "-m", f"benchmarks.{name}", "--help"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: ")


@pytest.mark.parametrize("name", MODULES)
def test_what_a_benchmark_imports_exists(name: str) -> None:
    missing = [
        f"{module}:{attribute}"
        for module, attribute in imports_of_ours(name)
        if not hasattr(importlib.import_module(module), attribute) and not exists(f"{module}.{attribute}")
    ]
    assert not missing


def exists(module: str) -> bool:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError:
        return False
    return True
