"""Calls a stage's function in the forked child, and describes the result.

Only the forked child imports this module. A call is a JSON object with `function`
(`package.module:name`), `inputs` ([argument, path or [path, …]] pairs), `groups` and `outputs` ([argument, path]
pairs), `plugins` ([argument, name or [name, …]] pairs; a name is `package.module:object`), `parameters` (an object),
`hints` (an object) and `module_paths` (where modules of a workspace lie). Paths are
relative to the current directory, which is the action's, and stay relative: an argument cannot bring an absolute path
into an output.

The answer is a JSON object: `kind` (`succeeded`, `failed`, `environment` or `out of memory`) and `message`.
"""

from __future__ import annotations

import errno
import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mlcbuild.errors import InfrastructureError, InternalError, MlcbuildError, StageError

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_MESSAGE_CHARACTERS = 4000
_ADVICE_ON_PACKAGES = (
    "\n  a stage imports what is installed beside mlcbuild"
    "\n  a program of a python_environment imports what that has inside its function"
)
_OWN_FILES = frozenset({__file__, str(Path(__file__).with_name("source_loader.py")), importlib.__file__})


def call(description: dict[str, Any]) -> dict[str, Any]:
    """Run the described call. Raises nothing: a failure is in the answer, and its traceback on standard error."""
    kind, message = _outcome(description)
    return {"kind": kind, "message": message[:_MESSAGE_CHARACTERS]}


def _outcome(description: dict[str, Any]) -> tuple[str, str]:
    try:
        function, arguments = _function(description["function"]), _arguments(description)
        _check_arguments(description["function"], function, arguments)
        function(**arguments)
    except MlcbuildError as error:
        # A bug would show on another machine as well.
        is_machines = isinstance(error, InfrastructureError) and not isinstance(error, InternalError)
        kind = "environment" if is_machines or _disk_full(error) else "failed"
        return kind, str(error)
    except MemoryError as error:
        _print_traceback(error)
        return (
            "out of memory",
            "out of memory\n  run fewer actions at once (--jobs), or use a machine with more memory",
        )
    except BaseException as error:
        if full := _disk_full(error):
            where = f" writing {full.filename}" if full.filename else ""
            return "environment", f"no space left on the disk{where}\n  free some space and build again"
        _print_traceback(error)
        advice = _advice_on_import(error, description["module_paths"])
        notes = "".join(f"\n  {note}" for note in getattr(error, "__notes__", ()))
        return "failed", f"{type(error).__name__}: {_first_paragraph(error)}{notes}{advice}"
    return "succeeded", ""


def _function(name: str) -> Callable[..., object]:
    module_name, _, attribute = name.partition(":")
    module = importlib.import_module(module_name)
    function = getattr(module, attribute, None)
    if callable(function):
        return function  # type: ignore[no-any-return]  # It is known to be callable, but not with what types.
    own = [
        known
        for known, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module_name and not known.startswith("_")
    ]
    raise StageError(
        f"the module {module_name} has no function {attribute}",
        advice=(f"it has: {', '.join(own) or 'none'}",),
    )


def _object(name: str) -> object:
    """The object that a plug-in's `package.module:name` names."""
    module_name, _, attribute = name.partition(":")
    module = importlib.import_module(module_name)
    if not hasattr(module, attribute):
        own = [
            known
            for known, value in vars(module).items()
            if not known.startswith("_") and getattr(value, "__module__", module_name) == module_name
            if not inspect.ismodule(value)
        ]
        raise StageError(
            f"the module {module_name} has no {attribute}", advice=(f"it has: {', '.join(own) or 'none'}",)
        )
    return getattr(module, attribute)


def _check_arguments(name: str, function: Callable[..., object], arguments: dict[str, Any]) -> None:
    """Raises StageError if the function does not take the arguments that the rule gives."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # It is callable, but does not say what it takes.
        return
    try:
        signature.bind(**arguments)
    except TypeError as error:
        takes = ", ".join(signature.parameters) or "nothing"
        raise StageError(
            f"{name} cannot be called: {error}",
            advice=(f"it takes: {takes}", f"the rule gives: {', '.join(sorted(arguments)) or 'nothing'}"),
        ) from None


def _arguments(description: dict[str, Any]) -> dict[str, Any]:
    arguments: dict[str, Any] = dict(description["parameters"])
    for argument, value in description["inputs"]:
        arguments[argument] = Path(value) if isinstance(value, str) else tuple(sorted(map(Path, value)))
    for argument, path in description["groups"]:
        arguments[argument] = tuple(sorted(Path(path).iterdir()))
    for argument, path in description["outputs"]:
        arguments[argument] = Path(path)
    for argument, value in description["plugins"]:
        arguments[argument] = _object(value) if isinstance(value, str) else tuple(map(_object, value))
    if description["hints"]:
        arguments["hints"] = description["hints"]
    return arguments


def _print_traceback(error: BaseException) -> None:
    """Print an error and its causes, without the frames that call and import the stage's code: they say nothing about
    the error.
    """
    told = traceback.TracebackException.from_exception(error)
    left: list[traceback.TracebackException] = [told]
    while left:
        one = left.pop()
        one.stack = traceback.StackSummary.from_list([frame for frame in one.stack if not _is_own(frame.filename)])
        left += [other for other in (one.__cause__, one.__context__, *(one.exceptions or ())) if other is not None]
    print("".join(told.format()), end="", file=sys.stderr)


def _is_own(file: str) -> bool:
    return file.startswith("<frozen importlib") or file in _OWN_FILES


def _advice_on_import(error: BaseException, module_paths: Sequence[str]) -> str:
    """Advice if a module is missing: the workspace may have it, but not in the stage's key."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    path = error.name.replace(".", "/")
    if not any(Path(root, path.partition("/")[0] + end).exists() for root in module_paths for end in ("", ".py")):
        return _ADVICE_ON_PACKAGES
    if not any(Path(root, path + end).exists() for root in module_paths for end in ("", ".py")):
        return ""
    return (
        f"\n  the workspace has {error.name}, but it is not in the stage's key"
        "\n  import it with an import statement at the top of a module, by its full name"
    )


def _disk_full(error: BaseException) -> OSError | None:
    """The error in this one's chain that says the disk is full."""
    return next((one for one in _chain(error) if isinstance(one, OSError) and one.errno in _DISK_FULL), None)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _first_paragraph(error: BaseException) -> str:
    text = str(error).strip()
    return " ".join(text.partition("\n\n")[0].split())[:1000] or "(no message)"
