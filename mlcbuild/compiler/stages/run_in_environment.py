"""Runs a program in a Python environment; its other arguments are those of the program, and so are its outputs.

The environment's Python is the version that runs this, without its packages: `-I` and `-S` leave Python's own library,
and the environment's folder is all that is added. The program is a function of a plug-in module, and its file is read
by that Python (`compiler.environments.programs`).
"""

from __future__ import annotations

import inspect
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mlcbuild.compiler.environments import entry
from mlcbuild.errors import StageError

_ANSWER = "answer.json"


def run(*, environment: Path, program: Callable[..., None], **arguments: Any) -> None:
    """Raises StageError with what the program says, or if it does not end as a program should."""
    run_program(environment, program, arguments)


def run_program(
    environment: Path, program: Callable[..., None], arguments: Mapping[str, Any], *, seconds: float | None = None
) -> None:
    """Run a program to its end, for so many seconds at most. Raises StageError as `run` does, and where the program
    does not take these arguments."""
    file = source_of(program)
    _check_arguments(program, arguments)
    paths = {name: _path(value) for name, value in arguments.items() if _is_path(value)}
    values = {name: value for name, value in arguments.items() if not _is_path(value)}
    call = {"function": program.__name__, "paths": paths, "values": values}
    answer = Path(".tmp", _ANSWER)
    answer.parent.mkdir(exist_ok=True)
    answer.unlink(missing_ok=True)
    command = [sys.executable, "-I", "-S", "-B", str(Path(entry.__file__).resolve())]
    name = program.__module__.rpartition(".")[2]
    try:
        done = subprocess.run(
            [*command, str(environment), str(file), str(answer)],
            input=json.dumps(call).encode(),
            check=False,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        raise StageError(f"{name} took more than {seconds:g} s in its Python environment") from None
    if not answer.exists():
        raise StageError(f"{name} {_ending(done.returncode)} in its Python environment")
    told: Mapping[str, str] = json.loads(answer.read_text(encoding="utf-8"))
    answer.unlink()
    if told["kind"] == "refused":
        raise StageError(told["message"])
    if told["kind"] != "succeeded":
        raise StageError(f"{name}: {told['message']}")
    if done.returncode:
        raise StageError(f"{name} {_ending(done.returncode)} after its work was done")


def source_of(program: Callable[..., object]) -> Path:
    """The file that a plug-in function is in, which the environment's Python reads. Raises StageError."""
    file = inspect.getsourcefile(program)
    if file is None or not inspect.isfunction(program):
        raise StageError(f"a program is a function of a module, which {program!r} is not")
    return Path(file)


def _check_arguments(program: Callable[..., object], arguments: Mapping[str, Any]) -> None:
    signature = inspect.signature(program)
    try:
        signature.bind(**arguments)
    except TypeError as error:
        name = f"{program.__module__}:{program.__name__}"
        takes, gives = ", ".join(signature.parameters) or "nothing", ", ".join(sorted(arguments)) or "nothing"
        advice = (f"it takes: {takes}", f"the rule gives: {gives}")
        raise StageError(f"{name} cannot be called: {error}", advice=advice) from None


def _is_path(value: object) -> bool:
    return isinstance(value, Path) or (isinstance(value, tuple) and all(isinstance(each, Path) for each in value))


def _path(value: Path | tuple[Path, ...]) -> str | list[str]:
    return str(value) if isinstance(value, Path) else [str(each) for each in value]


def _ending(code: int) -> str:
    if code < 0:
        return f"crashed with {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
