"""What the Python of an environment is started with. It imports only the standard library.

Arguments: the environment's folder, the program's file, and the file for the answer. The call comes on standard input
as a JSON object: `function`, `paths` (argument → path or [path, …]) and `values` (argument → JSON value). The answer is
one as well: `kind` (`succeeded`, `refused`, `failed`) and `message`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

_INSTALLED = ("site-packages", "dist-packages")  # folders of packages, which may lie in that of Python's library


def main(environment: str, program: str, answer: str) -> None:
    call = json.loads(sys.stdin.read())
    # A program may change its directory.
    own, environment, answer = os.path.realpath(program), os.path.abspath(environment), os.path.abspath(answer)  # noqa: PTH100
    # The paths of the environment come last, as installed packages do: none of them hides a module of Python's.
    sys.path.append(environment)
    kind, message = _outcome(own, call)
    if kind == "succeeded" and (strangers := _from_elsewhere(environment, own)):
        kind, message = "failed", f"it loaded modules from outside of its environment: {', '.join(strangers)}"
    Path(answer).write_text(json.dumps({"kind": kind, "message": message}), encoding="utf-8")


def _outcome(program: str, call: dict[str, Any]) -> tuple[str, str]:
    try:
        specification = importlib.util.spec_from_file_location("environment_program", program)
        assert specification is not None
        assert specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        paths = {
            name: Path(value) if isinstance(value, str) else tuple(map(Path, value))
            for name, value in call["paths"].items()
        }
        getattr(module, call["function"])(**paths, **call["values"])
    except SystemExit as error:
        return "refused", str(error)
    except Exception as error:
        traceback.print_exc()
        return "failed", f"{type(error).__name__}: {error}{_advice(error, call['paths'])}"
    return "succeeded", ""


def _advice(error: Exception, paths: dict[str, str | list[str]]) -> str:
    """What a program may not do although a stage or a bare Python may."""
    if isinstance(error, ModuleNotFoundError):
        return "\n  a program imports its environment and Python's library: nothing of mlcbuild's or the workspace's"
    if isinstance(error, PermissionError) and isinstance(error.filename, str):
        named = os.path.realpath(error.filename)
        for argument, given in sorted(paths.items()):
            for path in [given] if isinstance(given, str) else given:
                if named in _files_below(path):
                    return (
                        f"\n  it is a file of the input {argument}, and inputs are read-only"
                        "\n  where something opens it for writing, give that a copy in TMPDIR"
                    )
    return ""


def _files_below(path: str) -> set[str]:
    inside = {os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names}  # noqa: PTH118
    return {os.path.realpath(file) for file in {path, *inside}}


def _from_elsewhere(environment: str, program: str) -> list[str]:
    """The modules that are neither the environment's, nor of Python's own library, nor the program."""
    within, own = environment + os.sep, os.path.realpath(__file__)
    standard = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120
    found = []
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not os.path.isabs(file):  # noqa: PTH117
            continue
        is_standard = file.startswith(standard) and not any(folder in file for folder in _INSTALLED)
        if not is_standard and not file.startswith(within) and os.path.realpath(file) not in (program, own):
            found.append(f"{name} ({file})")
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
